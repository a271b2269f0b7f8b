"""A JAX without what is private to it: the public ways are slower, and right."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import signal
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax import private
from redistrib.errors import JaxVersionError
from redistrib.resharding.interrupts import SignalsPutOff
from tests.messages import exactly

MESH = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"))
ROWS, COLUMNS = NamedSharding(MESH, P(("x", "y"))), NamedSharding(MESH, P(None, ("x", "y")))


pytestmark = pytest.mark.usefixtures("fresh")


def matrix(dtype: Any = np.float32, sharding: Any = ROWS) -> jax.Array:
    return jax.device_put(np.arange(64).reshape(8, 8).astype(dtype), sharding)


class Unlike:
    """An array class whose constructor is not the one that was known."""

    def __init__(self, *_: Any) -> None: ...


def public(array: Any, *_: Any) -> Any:
    """As a JAX does whose arrays list no buffers, or check them always."""
    return None


@pytest.mark.parametrize("lacks", ["_arrays", "_skip_checks"])
def test_arrays_that_cannot_be_made_of_buffers_are_not_made(lacks: str) -> None:
    array: Any = Unlike()
    if lacks == "_skip_checks":
        array._arrays = [0]
    assert private.array_of_buffers(array, None, ROWS, [0]) is None


@pytest.mark.parametrize("dtype", [np.float32, np.int8, jnp.bfloat16])
def test_arrays_change_their_sharding_without_it(monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    monkeypatch.setattr(private, "array_of_buffers", public)
    array = matrix(dtype)
    for target in (COLUMNS, ROWS):
        moved = rd.reshard(array, target)
        assert moved.sharding == target
        np.testing.assert_array_equal(np.asarray(moved), np.asarray(array))


@pytest.mark.parametrize("placing", [None, lambda tiles: tiles])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, jnp.bfloat16])
def test_copies_are_placed_without_it(monkeypatch: pytest.MonkeyPatch, dtype: Any, placing: Any) -> None:
    array = matrix(dtype)
    fast = [rd.reshard(array, COLUMNS, via="copies") for _ in range(2)][1]
    monkeypatch.setattr(private, "_batched_device_put", placing)
    assert private.array_of_tiles([], fast.aval, COLUMNS, []) is None
    moved = rd.reshard(array, COLUMNS, via="copies")
    assert (moved.aval, moved.sharding, moved.committed) == (fast.aval, fast.sharding, fast.committed)
    for slow, quick in zip(moved.addressable_shards, fast.addressable_shards, strict=True):
        assert (slow.device, slow.data.devices()) == (quick.device, {quick.device})
        np.testing.assert_array_equal(np.asarray(slow.data), np.asarray(quick.data))
    np.testing.assert_array_equal(np.asarray(moved), np.asarray(array))


@pytest.mark.parametrize("target", [COLUMNS, ROWS, SingleDeviceSharding(jax.devices()[0])])
def test_weak_types_stay_without_it(monkeypatch: pytest.MonkeyPatch, target: Any) -> None:
    monkeypatch.setattr(private, "array_of_buffers", public)
    source = ROWS if isinstance(target, NamedSharding) else target
    array = jax.jit(lambda: jnp.broadcast_to(2.5, (8, 8)), out_shardings=source)()
    assert array.weak_type
    moved = rd.reshard(array, target)
    assert moved.weak_type
    assert (moved.sharding, moved[0, 0]) == (target, 2.5)


@pytest.mark.parametrize("value", [2.5, 1j, 3])
def test_traced_weak_types_without_the_private_conversion(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    def weak(array: jax.Array) -> bool:
        return bool(jax.jit(lambda x: private.weakly_typed(x)).eval_shape(array).weak_type)

    array = jnp.full((2,), value, jnp.asarray(value).dtype)
    assert weak(array)
    monkeypatch.setattr(private, "_convert_element_type", None)
    assert weak(array) == (value != 3)  # an integer keeps its strong type
    np.testing.assert_array_equal(jax.jit(private.weakly_typed)(array), array)


def test_without_addresses_all_arrays_of_a_device_go_when_all_have_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        """A tile that does not tell where it lies."""

        def __init__(self, shard: Any) -> None:
            self._shard = shard

        def unsafe_buffer_pointer(self) -> int:
            raise NotImplementedError

        def block_until_ready(self) -> None:
            self._shard.block_until_ready()

    address = private._address
    monkeypatch.setattr(private, "_address", lambda shard: address(Silent(shard)))
    assert {where for _, where in private.addresses(matrix())} == {0}
    tree = [matrix(), matrix(np.int32), matrix(sharding=COLUMNS)]
    values = [np.asarray(array) for array in tree]
    moved = rd.reshard(tree, [COLUMNS, COLUMNS, ROWS], donate=True)
    assert all(array.is_deleted() for array in tree)
    for array, value in zip(moved, values, strict=True):
        np.testing.assert_array_equal(np.asarray(array), value)
    alive = matrix()
    kept, _ = rd.reshard([alive, matrix()], [ROWS, COLUMNS], donate=True)
    np.testing.assert_array_equal(np.asarray(kept), values[0])  # what stays is not given up with the others


def test_tracers_that_hide_their_values_are_moved_by_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(x: jax.Array, **known: Any) -> jax.Array:
        return (rd.reshard(x, COLUMNS, **known) ** 2).sum()

    told = jax.grad(loss)(matrix())
    monkeypatch.setattr(private, "value_inside", lambda array: array)
    np.testing.assert_array_equal(np.asarray(jax.grad(loss)(matrix())), np.asarray(told))
    np.testing.assert_array_equal(np.asarray(jax.grad(loss)(matrix(), source=ROWS)), np.asarray(told))


class Lowered:
    """A program that compiles with no options, or not at all."""

    def __init__(self, text: str, compiles: bool = True) -> None:
        self.text, self.compiles, self.asked = text, compiles, list[Any]()

    def compile(self, compiler_options: Any = None) -> str:
        self.asked.append(compiler_options)
        if compiler_options or not self.compiles:
            raise jax.errors.JaxRuntimeError(self.text)
        return "compiled"


@pytest.mark.parametrize("text", ["No such compile option: 'a'", "INVALID_ARGUMENT: in words of tomorrow"])
def test_options_that_a_compiler_refuses_are_left_out(text: str) -> None:
    lowered = Lowered(text)
    assert private.compiled_with(lowered, {"a": 1}) == "compiled"
    assert lowered.asked == [{"a": 1}, None]


def test_what_fails_without_options_raises_what_it_raised_with_them() -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match="out of memory"):
        private.compiled_with(Lowered("out of memory", compiles=False), {"a": 1})
    with pytest.raises(jax.errors.JaxRuntimeError, match=exactly("'x' is not a valid int")):
        private.compiled_with(Lowered("'x' is not a valid int"), {"a": "x"})


# ---------------------------------------------------------------------------- a JAX that lacks a private name


def private_names() -> list[tuple[str, str]]:
    """Module and name of everything that `private` imports from JAX's private modules."""
    tree = ast.parse(Path(private.__file__).read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and "_src" in (node.module or "")]
    return [(str(node.module), alias.name) for node in found for alias in node.names]


def copy_of_private() -> Any:
    """The module, imported anew under another name."""
    spec = importlib.util.spec_from_file_location("private_of_another_jax", private.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_private_names_stand_in_one_module() -> None:
    assert len(private_names()) >= 5
    package = Path(rd.__file__).parent
    private_import = re.compile(r"^\s*(from|import) jax\._src", re.MULTILINE)
    users = [path for path in package.rglob("*.py") if private_import.search(path.read_text())]
    assert users == [Path(private.__file__)]


@pytest.mark.parametrize(("module", "name"), private_names())
def test_every_private_name_may_be_missing(monkeypatch: pytest.MonkeyPatch, module: str, name: str) -> None:
    with monkeypatch.context() as patch:  # JAX itself needs it afterwards
        patch.delattr(importlib.import_module(module), name)
        if f"{module}.{name}" in sys.modules:
            patch.setitem(sys.modules, f"{module}.{name}", None)
        lacking = copy_of_private()
        assert not hasattr(importlib.import_module(module), name)
    equation = jax.make_jaxpr(lambda x: x + 1)(1.0).eqns[0]
    assert isinstance(lacking.source_line(equation), str)
    assert lacking.notes_of_processes() is None
    assert lacking.new_primitive("of_a_test").name == "of_a_test"
    assert (lacking.virtual_devices(16) is None) == (name == "xla_client")
    assert jax.jit(lacking.weakly_typed).eval_shape(jnp.ones(2)).weak_type
    with jax.set_mesh(MESH):
        if hasattr(jax.sharding, "get_mesh") or name != "get_concrete_mesh":
            assert lacking.mesh_of_devices() == MESH
        else:
            with pytest.raises(JaxVersionError, match=f"JAX {jax.__version__} does not say the mesh"):
                lacking.mesh_of_devices()


def test_a_jax_without_any_way_to_the_mesh_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(jax.sharding, "get_mesh", raising=False)
    monkeypatch.setattr(private, "_concrete_mesh", None)
    with jax.set_mesh(MESH), pytest.raises(JaxVersionError, match=f"JAX {jax.__version__} does not say the mesh"):
        rd.reshard(matrix(), P("x"))


@pytest.mark.parametrize("name", ["_distributed", "_convert_element_type", "_concrete_mesh"])
def test_arrays_move_without_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(private, name, None)
    for array in (matrix(), jnp.float32(2.5)):
        target = COLUMNS if array.ndim else NamedSharding(MESH, P())
        np.testing.assert_array_equal(rd.reshard(array, target), array)
    moved = jax.jit(lambda x: rd.reshard(x, COLUMNS, source=ROWS))(matrix())
    np.testing.assert_array_equal(moved, matrix())


# ------------------------------------------------------------------- what is switched off in the whole process


def test_keys_are_waited_for_as_their_integers_are() -> None:
    keys = jax.block_until_ready(jax.random.split(jax.random.key(0), 4))
    assert private.is_computed(keys) and private.is_computed(jax.block_until_ready(matrix()))
    assert private.is_computed(object())  # type: ignore[arg-type]  # of a JAX that has neither name


def test_handlers_of_signals_are_put_back_when_an_exception_comes() -> None:
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]
    before = [signal.signal(number, lambda *_: None) for number in numbers]
    mine = [signal.getsignal(number) for number in numbers]
    try:
        with pytest.raises(KeyError) as caught, SignalsPutOff(lambda: "what there is"):
            raise KeyError(*map(signal.getsignal, numbers))
        assert not set(mine) & set(caught.value.args)
        assert [signal.getsignal(number) for number in numbers] == mine
        assert caught.value.partial == "what there is"  # type: ignore[attr-defined]
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
