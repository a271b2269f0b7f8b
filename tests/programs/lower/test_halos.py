"""Convolutions and poolings cut in space: values beside `jit`, and bytes beside those that windows read elsewhere."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import redistrib as rd
from redistrib.explain.profiling.inspect import inspect
from redistrib.programs.ir.data import Compute
from redistrib.programs.ir.parse import parse
from redistrib.programs.ir.project import project, run_ranks
from redistrib.programs.ir.reference import collect, distribute, run_by_rank
from redistrib.programs.ir.text import bodies_of, to_text
from redistrib.programs.search.evaluation import evaluated

NHWC = ("NHWC", "HWIO", "NHWC")
DEVICES = 4


def ints(*shape: int, dtype: Any = np.float32, high: int = 9) -> Any:
    numbers = np.arange(math.prod(shape)) * 7919 % high - high // 2
    return jnp.asarray(numbers.reshape(shape)).astype(dtype)


def conv(x: Any, k: Any, stride: int = 1, padding: Any = "SAME", **options: Any) -> Any:
    return lax.conv_general_dilated(x, k, (stride, 1), padding, dimension_numbers=NHWC, **options)


def pooled(x: Any, kind: str, taps: int, stride: int, padding: Any = "SAME", **options: Any) -> Any:
    init, fn = {"max": (-jnp.inf, lax.max), "min": (jnp.inf, lax.min), "sum": (0.0, lax.add)}[kind]
    if jnp.issubdtype(x.dtype, jnp.integer):
        limits = jnp.iinfo(x.dtype)
        init = {"max": limits.min, "min": limits.max, "sum": 0}[kind]
    return lax.reduce_window(x, np.array(init, x.dtype), fn, (1, taps, 2, 1), (1, stride, 2, 1), padding, **options)


def distributed(f: Any, *args: Any, schedule: Any = None, mesh: Any = None, exact: bool = True) -> Any:
    """The function cut along the second dimension of its first argument, once it gives what `jit` gives.

    The compiled program receives the bytes that the program predicts.
    """
    found = rd.distribute(f, args, mesh or {"d": DEVICES}, schedule=schedule or [rd.along("d", {"x": 1})])
    for ours, theirs in zip(jax.tree.leaves(found(*args)), jax.tree.leaves(jax.jit(f)(*args)), strict=True):
        assert ours.dtype == theirs.dtype
        compare = np.testing.assert_array_equal if exact else close
        compare(np.asarray(ours), np.asarray(theirs))
    assert inspect(found.lower().compile()).received_bytes == found.program.received_bytes
    return found


def close(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(ours.astype(np.float32), theirs.astype(np.float32), rtol=2e-2, atol=1e-2)


def cut(found: Any, kind: str) -> list[str]:
    """The iteration dimensions that are cut of operations of a kind."""
    parts = [part for op in found.program.ops if isinstance(op, Compute) and op.kind == kind for part in op.parts]
    return [name for part in parts for name, dim in zip(part.nest.position, part.cut.dims, strict=True) if dim.axes]


def read_elsewhere(rows: int, read: list[list[int]]) -> int:
    """Rows that devices read of others' tiles, if points that read these rows, in order, are cut."""
    total, tile, points = 0, rows // DEVICES, len(read) // DEVICES
    for device in range(DEVICES):
        needed = {row for taps in read[device * points : (device + 1) * points] for row in taps if 0 <= row < rows}
        if needed:  # tiles are read from the first to the last of these
            needed = set(range(min(needed), max(needed) + 1))
        total += len(needed - set(range(device * tile, (device + 1) * tile)))
    return total


def slow(*cases: Any) -> list[Any]:
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long) for case in cases]


WINDOWS = {  # rows, taps, stride, padding before and behind, dilation of rows and of taps
    "same": (32, 3, 1, (1, 1), 1, 1),
    "stride": (32, 3, 2, (0, 1), 1, 1),
    "dilated": (32, 3, 1, (3, 3), 1, 3),
    "over more than one tile": (32, 3, 1, (12, 12), 1, 12),
    "transposed": (32, 3, 1, (1, 2), 2, 1),
    "cropped": (32, 3, 1, (-2, 4), 1, 1),
    "no padding": (32, 5, 1, (0, 0), 1, 1),
    "apart": (32, 1, 2, (0, -1), 1, 1),
    "one side": (32, 3, 1, (2, 0), 1, 1),
    "dilated both ways": (32, 3, 3, (2, 2), 3, 2),
    "a part reads nothing of its own": (32, 1, 1, (8, -8), 1, 1),
    "many": (32, 7, 2, (3, 3), 1, 1),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_convolution_receives_the_rows_that_its_windows_read(name: str) -> None:
    rows, taps, stride, padding, spacing, dilation = WINDOWS[name]
    x, k = ints(2, rows, 4, 3), ints(taps, 3, 3, 4)
    options = {"lhs_dilation": (spacing, 1), "rhs_dilation": (dilation, 1)}
    found = distributed(lambda x, k: conv(x, k, stride, (padding, (1, 1)), **options), x, k)
    points = found.program.values[found.program.outputs[0]].shape[1]
    at = [[o * stride + t * dilation - padding[0] for t in range(taps)] for o in range(points)]
    read = [[row // spacing for row in own if row % spacing == 0] for own in at]
    assert cut(found, "conv_general_dilated") == ["h0"]
    received = read_elsewhere(rows, read) * 2 * 4 * 3 * 4
    if name == "no padding":  # messages are equally long, those of devices that need less too
        assert received <= found.cost.received_bytes < 2 * received
    else:
        assert found.cost.received_bytes == received


@pytest.mark.parametrize("dtype", ["bfloat16", *slow("float32", "float16", "int32", "int8", "uint8", "complex64")])
def test_element_types(dtype: str) -> None:
    x, k = ints(2, 16, 4, 3, dtype=dtype), ints(3, 3, 3, 4, dtype=dtype)
    found = distributed(lambda x, k: conv(x, k, preferred_element_type=dtype), x, k)
    assert found.cost.received_bytes == 6 * 2 * 4 * 3 * x.dtype.itemsize
    if dtype != "complex64":
        for kind in ("max", "min", "sum"):
            poolings = distributed(lambda x, kind=kind: pooled(x - x.dtype.type(9), kind, 3, 1), x)
            assert poolings.cost.received_bytes == 6 * 2 * 4 * 3 * x.dtype.itemsize


def test_groups_of_channels_and_of_rows() -> None:
    x = ints(4, 16, 4, 6)
    distributed(lambda x, k: conv(x, k, feature_group_count=3), x, ints(3, 3, 2, 6))
    distributed(lambda x, k: conv(x, k, batch_group_count=2), x, ints(3, 3, 6, 4))
    schedule = [rd.along("d", {"x": 1}), rd.along("t", {"x": 0})]
    grouped = distributed(
        lambda x, k: conv(x, k, batch_group_count=2), x, ints(3, 3, 6, 4), schedule=schedule, mesh={"d": 2, "t": 2}
    )
    assert cut(grouped, "conv_general_dilated") == ["g", "h0"]


@pytest.mark.parametrize("kind", ["max", *slow("min", "sum")])
@pytest.mark.parametrize(
    ("taps", "stride", "padding"), [(3, 2, "SAME"), *slow((2, 2, "VALID"), (3, 1, "SAME"), (5, 2, "SAME"))]
)
def test_poolings(kind: str, taps: int, stride: int, padding: str) -> None:
    x = np.array(ints(2, 16, 4, 3))
    x[0, 3:6, 1, 0], x[1, 8, :, 1], x[1, 12:, 2, 2], x[0, 0, 0, 0] = -np.inf, np.nan, np.inf, np.nan
    found = distributed(lambda x: pooled(x, kind, taps, stride, padding), x)
    before = {(2, 2): 0, (3, 2): 0, (3, 1): 1, (5, 2): 1}[taps, stride]
    read = [[o * stride + t - before for t in range(taps)] for o in range(16 // stride)]
    assert found.cost.received_bytes == read_elsewhere(16, read) * 2 * 4 * 3 * 4


def test_windows_that_begin_within_an_array_and_end_beyond_it() -> None:
    x = -1 - jnp.abs(ints(2, 16, 4, 3))
    found = distributed(lambda x: pooled(x, "max", 2, 1, ((0, 0), (-1, 2), (0, 0), (0, 0))), x)
    assert cut(found, "reduce_window_max") == ["d1"]


def test_windows_of_any_function() -> None:
    x = ints(2, 16, 4, 3)
    window = ((1, 3, 1, 1), (1, 1, 1, 1), "SAME")
    found = distributed(lambda x: lax.reduce_window(x, np.float32(2), lambda a, b: jnp.maximum(a, b) * 1, *window), x)
    assert cut(found, "reduce_window") == ["d1"]
    pairs = distributed(
        lambda x: lax.reduce_window(
            (x, -x),
            (np.float32(-9), np.float32(9)),
            lambda a, b: (jnp.maximum(a[0], b[0]), jnp.minimum(a[1], b[1])),
            *window,
        ),
        x,
    )
    assert cut(pairs, "reduce_window") == ["d1"]


@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_of_a_convolution(stride: int) -> None:
    """That of the picture is a transposed convolution; that of the kernel sums over space, with halos."""
    x, k = ints(2, 16, 4, 3, high=5), ints(3, 3, 3, 4, high=5)
    found = distributed(jax.grad(lambda x, k: (conv(x, k, stride) ** 2).sum(), (0, 1)), x, k)
    assert sorted(cut(found, "conv_general_dilated")) == ["h0", "h0", "r0"]
    halo = 2 * 4 * 3 * 4 * (6 if stride == 1 else 3)  # of the picture, once for both that read it
    back = 2 * 4 * 4 * 4 * (6 if stride == 1 else 3)
    summed = 2 * (DEVICES - 1) * k.size * 4
    assert found.cost.received_bytes == halo + back + summed


def test_gradients_of_groups_and_of_transposed_convolutions() -> None:
    x = ints(2, 16, 4, 3, high=5)
    for f, k in (
        (lambda x, k: conv(x, k, feature_group_count=3), ints(3, 3, 1, 6, high=5)),
        (lambda x, k: lax.conv_transpose(x, k, (2, 1), "SAME", dimension_numbers=NHWC), ints(3, 3, 3, 4, high=5)),
    ):
        found = distributed(jax.grad(lambda x, k, f=f: (f(x, k) ** 2).sum(), (0, 1)), x, k)
        assert sorted(cut(found, "conv_general_dilated")) == ["h0", "h0", "r0"]


@pytest.mark.parametrize(("taps", "stride"), [(3, 2), *slow((2, 2), (3, 1), (2, 1), (2, 4))])
def test_gradients_of_max_pooling(taps: int, stride: int) -> None:
    """Of distinct numbers, and of equal ones, of which the first counts; also where all are infinite."""

    def loss(x: Any) -> Any:
        return (pooled(x, "max", taps, stride) * jnp.arange(1, 4)).sum()

    distinct = jnp.asarray(np.random.default_rng(1).permutation(2 * 16 * 4 * 3).reshape(2, 16, 4, 3), jnp.float32)
    for x in (distinct, ints(2, 16, 4, 3, high=3), jnp.full((2, 16, 4, 3), -jnp.inf)):
        found = distributed(jax.grad(loss), x)
        assert cut(found, "select_and_scatter_add") == ["d1"]
    elements = 2 * 4 * 3
    reach = max(0, taps - stride)  # rows of a neighbour, once for the result and once for its gradient
    assert found.cost.received_bytes <= (DEVICES - 1) * 4 * elements * (4 * reach)


def test_two_dimensions_over_two_axes_and_one_over_both() -> None:
    """Corners come with the rows of a neighbour beside: they are received once."""
    x, k = ints(2, 16, 16, 3), ints(3, 3, 3, 4)
    mesh = {"a": 2, "b": 4}
    found = distributed(conv, x, k, schedule=[rd.along("a", {"x": 1}), rd.along("b", {"x": 2})], mesh=mesh)
    assert cut(found, "conv_general_dilated") == ["h0", "h1"]
    rows, columns = 2 * 4 * 4, 6 * 2 * 10  # of halos: messages along the second dimension have the first's halo
    assert found.cost.received_bytes == (rows + columns) * 2 * 3 * 4
    one = distributed(conv, x, k, schedule=[rd.along("a", {"x": 1}), rd.along("b", {"x": 1})], mesh=mesh)
    assert one.cost.received_bytes == 14 * 2 * 16 * 3 * 4
    grad = jax.grad(lambda x, k: (conv(x, k) ** 2).sum(), (0, 1))
    distributed(grad, x, k, schedule=[rd.along("a", {"x": 1}), rd.along("b", {"x": 2})], mesh=mesh)


@pytest.mark.parametrize(
    ("rows", "taps", "stride", "padding", "spacing", "why"),
    [
        (16, 3, 1, (0, 0), 1, "4 parts do not divide the 14 points that read it in windows"),
        (16, 3, 3, (1, 1), 1, "4 parts do not divide the 6 points that read it in windows"),
        (16, 1, 1, (0, -30), 3, "parts of 4 points do not begin alike between the elements that they read"),
        (8, 8, 1, (4, 3), 1, "the windows of 2 points reach over all of the 8 elements"),
    ],
)
def test_sizes_that_do_not_divide_run_whole(
    rows: int, taps: int, stride: int, padding: Any, spacing: int, why: str
) -> None:
    x, k = ints(2, rows, 4, 3), ints(taps, 3, 3, 4)
    options = {"lhs_dilation": (spacing, 1)}
    found = distributed(lambda x, k: conv(x, k, stride, (padding, (1, 1)), **options), x, k)
    assert "h0" not in cut(found, "conv_general_dilated")
    start = "conv_general_dilated, axis 'd': dimension 1 of 'x' is cut, and the operation needs it whole"
    assert f"{start}: {why}" in " ".join(str(found).split())


def test_programs_with_halos_run_elsewhere_too() -> None:
    """Rank by rank, and by ranks that know nothing but their messages; its text is read back."""
    x, k = ints(2, 16, 16, 3), ints(3, 3, 3, 4)
    schedule = [rd.along("a", {"x": 1}), rd.along("b", {"x": 2})]
    found = rd.distribute(conv, (x, k), {"a": 2, "b": 4}, schedule=schedule)
    program, expected = found.program, np.asarray(jax.jit(conv)(x, k))
    np.testing.assert_array_equal(run_by_rank(program, [np.asarray(x), np.asarray(k)])[0], expected)
    values = zip(program.inputs, (np.asarray(x), np.asarray(k)), strict=True)
    tiles = {value.name: distribute(array, value) for value, array in values}
    (end,) = program.outputs
    np.testing.assert_array_equal(collect(run_ranks(project(program), tiles)[end], program.values[end]), expected)
    assert parse(to_text(program), bodies_of(program)) == program
    assert "halo" in str(found)
    assert rd.simulate(program, "v100").seconds > 0
    halo = next(value for value in program.values.values() if value.windows)
    assert halo.form == "[2, 8{a}16, 4{b}16, 3] windows (1, (8 -1 10), (4 -1 6), 1)"
    assert (halo.tile, halo.tile_bytes) == ((2, 10, 6, 3), 2 * 10 * 6 * 3 * 4)


def _net(width: int) -> tuple[Any, Any]:
    """A step of training of convolutions, poolings, a skip and a transposed convolution; and its parameters."""

    def net(p: Any, x: Any) -> Any:
        first = jax.nn.relu(conv(x, p["in"]))
        low = lax.reduce_window(first, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        low = low + jax.nn.relu(conv(low, p["low"]))
        up = lax.conv_transpose(low, p["up"], (2, 2), "SAME", dimension_numbers=NHWC)
        return conv(jnp.concatenate([first, up], 3), p["out"])

    def step(p: Any, x: Any, y: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: jnp.mean((net(p, x) - y) ** 2))(p)
        return loss, jax.tree.map(lambda w, g: w - 0.1 * g, p, grads)

    key = jax.random.key(0)
    shapes = {
        "in": (3, 3, 3, width),
        "low": (3, 3, width, width),
        "up": (2, 2, width, width),
        "out": (3, 3, 2 * width, 4),
    }
    p = {name: 0.2 * jax.random.normal(jax.random.fold_in(key, k), s) for k, (name, s) in enumerate(shapes.items())}
    return step, p


@pytest.mark.long
def test_a_small_net_stays_cut_in_space() -> None:
    """Each device does its share, forward and backward."""
    step, p = _net(8)
    x, y = jax.random.normal(jax.random.key(1), (1, 64, 16, 3)), jnp.ones((1, 64, 16, 4))
    found = distributed(step, p, x, y, exact=False)
    assert found.opaque == ()
    whole = rd.distribute(step, (p, x, y), {"d": 1}).cost.flops
    assert found.cost.flops <= 1.02 * whole / DEVICES
    mesh = jax.make_mesh((DEVICES,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "d"))
    others = jax.jit(step, in_shardings=(None, rows, rows)).lower(p, x, y).compile()
    assert found.cost.received_bytes < inspect(others).received_bytes


@pytest.mark.parametrize("objective", ["seconds", "bytes"])
def test_a_search_cuts_in_space_what_has_no_batch(objective: Any) -> None:
    """The price of its halos is that of the program, once for all that read them."""
    step, p = _net(32)
    shapes = [jax.ShapeDtypeStruct((1, 1024, 1024, channels), np.float32) for channels in (3, 4)]
    (found,) = rd.search(step, (p, *shapes), {"d": 8}, objective=objective, machine="v100", progress=False)
    spatial = {name for kind in ("conv_general_dilated", "reduce_window_max") for name in cut(found, kind)}
    assert spatial <= {"h0", "h1", "r0", "r1", "d1", "d2"}
    guess = evaluated(found.problem, found.result.decisions)
    assert guess.received == found.received_bytes == found.program.received_bytes > 0
    assert guess.memory == pytest.approx(found.memory, rel=0.05)
    assert objective == "bytes" or guess.seconds == pytest.approx(found.seconds, rel=1e-9)
    assert found.bound <= found.rank[0]


def kinds(found: Any) -> list[str]:
    return [op.kind for op in found.program.ops if isinstance(op, Compute)]


def test_a_padding_before_a_convolution_is_its_own() -> None:
    """An array of 18 rows, which no axis of 4 divides, is never made; nor is one in the gradient."""
    x, k = ints(2, 16, 4, 3, high=5), ints(3, 3, 3, 4, high=5)

    def padded(x: Any, k: Any) -> Any:
        return conv(jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), k, 1, "VALID")

    found = distributed(padded, x, k)
    assert kinds(found) == ["conv_general_dilated"] and cut(found, "conv_general_dilated") == ["h0"]
    assert found.cost.received_bytes == 6 * 2 * 4 * 3 * 4
    back = distributed(jax.grad(lambda x, k: (padded(x, k) ** 2).sum(), (0, 1)), x, k)
    assert sorted(cut(back, "conv_general_dilated")) == ["h0", "h0", "r0"] and "pad" not in kinds(back)
    mean = distributed(jax.grad(lambda x: (pooled(x, "sum", 3, 2) ** 2).sum()), x)
    assert cut(mean, "reduce_window_sum") == ["d1", "d1"] and "pad" not in kinds(mean)


@pytest.mark.parametrize(
    ("value", "config", "padding"),
    [
        (1.0, ((0, 0, 0), (1, 1, 0), (0, 0, 0), (0, 0, 0)), "VALID"),
        (0.0, ((0, 0, 0), (1, 1, 0), (0, 0, 0), (1, 0, 0)), "VALID"),
        (0.0, ((0, 0, 0), (-1, 3, 0), (0, 0, 0), (0, 0, 0)), "SAME"),
    ],
)
def test_a_padding_that_is_not_by_zeros_around_it_stays(value: float, config: Any, padding: Any) -> None:
    x, k = ints(2, 16, 4, 3), ints(3, 3, 3 + config[3][0], 4)
    found = distributed(lambda x, k: conv(lax.pad(x, np.float32(value), config), k, 1, padding), x, k)
    assert "pad" in kinds(found)


@pytest.mark.parametrize(
    ("low", "high", "inside", "stride", "spacing"),
    [(2, 3, 0, 2, 1), (1, 2, 1, 1, 1), (3, 1, 0, 1, 2), (-2, 2, 0, 1, 1)],
)
def test_paddings_of_both(low: int, high: int, inside: int, stride: int, spacing: int) -> None:
    x, k = ints(2, 16, 4, 3, high=5), ints(3, 3, 3, 4, high=5)
    config = ((0, 0, 0), (low, high, inside), (0, 0, 0), (0, 0, 0))

    def padded(x: Any, k: Any) -> Any:
        options = {"lhs_dilation": (spacing, 1)}
        return conv(lax.pad(x, np.float32(0), config), k, stride, ((0, 1), (1, 1)), **options)

    for function in (padded, jax.grad(lambda x, k: (padded(x, k) ** 2).sum(), (0, 1))):
        found = distributed(function, x, k)
        assert function is not padded or kinds(found) == ["conv_general_dilated"]


def test_a_convolution_that_is_cropped_and_read_elsewhere_too_is_done_once() -> None:
    x, k = ints(2, 16, 4, 3), ints(3, 3, 3, 4)

    def both(x: Any, k: Any) -> Any:
        whole = conv(x, k)
        return whole, lax.pad(whole, np.float32(0), ((0, 0, 0), (-1, -3, 0), (0, 0, 0), (0, 0, 0)))

    assert sorted(kinds(distributed(both, x, k))) == ["conv_general_dilated", "pad"]
    cropped = distributed(lambda x, k: both(x, k)[1], x, k)
    assert kinds(cropped) == ["conv_general_dilated"]


@pytest.mark.parametrize("taps", [(3, 5), (5, 3), (1, 3)])
def test_halos_of_several_operations_are_received_once(taps: tuple[int, int]) -> None:
    """The wider ones, of which the others are a part; with a pooling of another side beside them."""
    x, kernels = ints(2, 16, 4, 3), tuple(ints(n, 3, 3, 4) for n in taps)

    def inception(x: Any, kernels: Any) -> Any:
        return (*(conv(x, k) for k in kernels), pooled(x, "max", 3, 2))

    found = distributed(inception, x, kernels)
    rows = max(taps) - 1
    assert found.cost.received_bytes == (DEVICES - 1) * rows * 2 * 4 * 3 * 4
    given, expected = [np.asarray(array) for array in (x, *kernels)], jax.jit(inception)(x, kernels)
    tiles = {value.name: distribute(array, value) for value, array in zip(found.program.inputs, given, strict=True)}
    ends = run_ranks(project(found.program), tiles)
    alone = [collect(ends[name], found.program.values[name]) for name in found.program.outputs]
    for results in (alone, run_by_rank(found.program, given)):
        for ours, theirs in zip(results, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert parse(to_text(found.program), bodies_of(found.program)) == found.program


def test_a_search_prices_shared_halos_once() -> None:
    x, k, wide = (jax.ShapeDtypeStruct(s, np.float32) for s in ((1, 1024, 1024, 32), (3, 3, 32, 32), (7, 3, 32, 32)))
    (found,) = rd.search(
        lambda x, k, wide: (conv(x, k), conv(x, wide), pooled(x, "max", 3, 2)),
        (x, k, wide),
        {"d": 8},
        pins=[rd.along("d", {"x": 1})],
        machine="v100",
        progress=False,
    )
    assert set(cut(found, "conv_general_dilated")) == {"h0"}
    guess = evaluated(found.problem, found.result.decisions)
    assert guess.received == found.received_bytes == found.program.received_bytes == 7 * 6 * 1024 * 32 * 4
    assert guess.seconds == pytest.approx(found.seconds, rel=1e-9)
    assert found.bound <= found.rank[0]


@pytest.mark.parametrize("kind", ["cond", "proxy"])
def test_what_may_not_move_has_no_halos(kind: str) -> None:
    """A branch, and a kernel that is looked at through a proxy, run whole in space, also where no halo is needed."""
    x, k = ints(2, 16, 4, 3), ints(3, 3, 3, 3)

    def tiles(x: Any, k: Any) -> Any:
        return jnp.repeat(pooled(x, "max", 2, 2), 2, 1)[:, :, :1] + k[0, 0, 0, 0]

    for slid in (conv, tiles):
        if kind == "cond":
            found = distributed(
                lambda x, k, slid=slid: lax.cond(x.sum() > 0, slid, lambda x, k: 2 * slid(x, k), x, k), x, k
            )
        else:
            named = jax.jit(_named("slid", slid))
            found = rd.distribute(
                lambda x, k, named=named: named(x, k),
                (x, k),
                {"d": DEVICES},
                schedule=rd.along("d", {"x": 1}),
                rules={"slid": rd.proxy(slid, run=slid)},
            )
            np.testing.assert_array_equal(found(x, k), jax.jit(slid)(x, k))
        assert not any(value.windows for value in found.program.values.values())


def _named(name: str, function: Any) -> Any:
    def run(x: Any, k: Any) -> Any:
        return function(x, k)

    run.__name__ = name
    return run


def test_loops_exchange_halos_in_each_step() -> None:
    """Of what is carried in every step; of what comes from outside once, before it."""
    x, kernels = ints(2, 16, 4, 3, high=3), ints(5, 3, 3, 3, 3, high=3)

    def layers(x: Any, k: Any) -> Any:
        return lax.scan(lambda c, w: (jnp.clip(conv(c, w), -2, 2) + conv(x, w), None), x, k)[0]

    found = distributed(layers, x, kernels)
    rows = 6 * 2 * 4 * 3 * 4
    assert found.cost.received_bytes == (5 + 1) * rows
    back = distributed(jax.grad(lambda x, k: (layers(x, k) ** 2).sum() * 1e-3, (0, 1)), x, kernels, exact=False)
    assert back.opaque == ()


@pytest.mark.parametrize(("low", "high", "stride"), [(-1, 1, 1), (-2, 1, 1), (-3, 2, 2), (-1, 1, 2), (1, -1, 1)])
@pytest.mark.parametrize("groups", ["batch", "feature", "none"])
def test_an_array_cropped_at_its_begin_and_padded_at_its_end(low: int, high: int, stride: int, groups: str) -> None:
    """`jax.jit` on CPUs gives wrong sums for such a convolution, unless the batch has groups (jaxlib 0.10.2)."""
    count = {} if groups == "none" else {f"{groups}_group_count": 2}
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (8, 8, 8)).astype(np.float32)
    kernel = rng.integers(-3, 4, (3, 4 if groups == "feature" else 8, 4)).astype(np.float32)

    def convolved(x: Any, kernel: Any, padding: tuple[int, int]) -> Any:
        return lax.conv_general_dilated(
            x, kernel, (stride,), [padding], dimension_numbers=("NWC", "WIO", "NWC"), **count
        )

    padded = lax.pad(x, np.float32(0), [(0, 0, 0), (low, high, 0), (0, 0, 0)])
    expected = convolved(padded, kernel, (0, 0))
    for dim in (0, 1, 2):
        f = rd.distribute(
            lambda x, w: convolved(x, w, (low, high)), (x, kernel), {"d": 2}, schedule=rd.along("d", {"x": dim})
        )
        np.testing.assert_array_equal(f(x, kernel), expected)
