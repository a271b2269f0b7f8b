"""`donate=True` loses nothing: whatever fails or interrupts, an array is alive or what it became is at hand."""

from __future__ import annotations

import gc
import itertools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.backends.jax.buckets.compiled import CompiledBucket
from redistrib.errors import LeafError
from redistrib.launches import buckets
from redistrib.resharding import sharing
from redistrib.resharding.sharing import grouped_by_buffer
from tests.messages import exactly
from tests.reshard.arrays import COLUMNS, DELETED, EIGHT, GRID, ROWS

from .cases import bits, jax_mesh

TURNED = jax_mesh((("x", 8),), tuple(reversed(range(8))))
OTHERS = Mesh(np.array(jax.devices()[8:16]), ("y",))
WHOLE = NamedSharding(EIGHT, P())
TURNED_ROWS = NamedSharding(TURNED, P("x"))  # the same tiles on other devices
FAR = NamedSharding(OTHERS, P("y"))
SHARDS = "/jax/_src/sharding_impls.py"  # where JAX makes the shardings of shards
VALUES = np.arange(512, dtype=np.float32).reshape(16, 32)


def matrix(sharding: Any = ROWS, factor: int = 1) -> jax.Array:
    """An array of its own; the factor tells its values from those of others."""
    made: jax.Array = jax.device_put(VALUES * factor, sharding)
    return made


def alive(array: jax.Array, factor: int = 1) -> bool:
    """Whether an array is alive and has its values."""
    return not array.is_deleted() and np.array_equal(np.asarray(array), VALUES * factor)


# ------------------------------------------------------------------------------- leaves that fail


def refused_leaves() -> list[tuple[str, Any, Any, str]]:
    host = NamedSharding(EIGHT, P())
    none = "; give an array of numbers or booleans, or leave it out"
    return [
        ("int32", 3_000_000_000, host, "an integer of 32 bits does not fit JAX's int32; give an array"),
        ("huge", 2**70, host, "an integer of 71 bits does not fit JAX's int32; give an array"),
        ("unprintable", 10**5000, host, "an integer of 16610 bits does not fit JAX's int32; give an array"),
        ("text", "text", host, "str is neither an array nor a number"),
        ("texts", np.array(["a"]), host, "JAX has no arrays of dtype <U1" + none),
        ("object", np.array([1, None], object), host, "JAX has no arrays of dtype object" + none),
        ("structured", np.zeros(2, [("a", "i4")]), host, "JAX has no arrays of dtype [('a', '<i4')]" + none),
        ("dates", np.array(["2020-01-01"], "M8[ns]"), host, "JAX has no arrays of dtype datetime64[ns]" + none),
        ("date", np.datetime64("2020-01-01"), host, "JAX has no arrays of dtype datetime64[D]" + none),
        ("long double", np.longdouble(1), host, f"JAX has no arrays of dtype {np.dtype(np.longdouble)}" + none),
        (
            "abstract",
            jax.ShapeDtypeStruct((16, 32), np.float32, sharding=ROWS),
            COLUMNS,
            "a ShapeDtypeStruct has no values to move; pass arrays, or call reshard_plan",
        ),
    ]


@pytest.mark.parametrize("case", refused_leaves(), ids=lambda case: case[0])
def test_a_leaf_that_is_refused_is_named_and_costs_nothing(case: tuple[str, Any, Any, str]) -> None:
    _, bad, target, reason = case
    for donate in (False, True):
        tree = {"g": matrix(), "moved": matrix(), "far": matrix(), "step": [bad]}
        shardings = {"g": COLUMNS, "moved": TURNED_ROWS, "far": FAR, "step": target}
        with pytest.raises(LeafError) as caught:
            rd.reshard(tree, shardings, donate=donate)
        assert (caught.value.path, caught.value.reason) == ("step/0", reason)
        assert all(alive(tree[name]) for name in ("g", "moved", "far"))


def test_plans_refuse_what_moves_refuse() -> None:
    with pytest.raises(
        LeafError, match=exactly("leaf step: an integer of 32 bits does not fit JAX's int32; give an array")
    ):
        rd.reshard_plan({"step": 3_000_000_000}, WHOLE)


@pytest.mark.parametrize("fails_at", [0, 1])
def test_what_device_put_refuses_costs_nothing(fails_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the last of two that JAX cannot bring: at once, or only when it has arrived."""
    tree = {"g": matrix(), "far": matrix(), "late": matrix()}
    put, ready = jax.device_put, jax.block_until_ready

    def refuses(value: Any, *args: Any, **options: Any) -> Any:
        if fails_at == 0 and value is tree["late"]:
            raise ValueError("no such memory")
        return put(value, *args, **options)

    def never_arrives(value: Any) -> Any:
        if fails_at == 1 and getattr(value, "sharding", None) == FAR:
            raise jax.errors.JaxRuntimeError("no such memory")
        return ready(value)

    monkeypatch.setattr(jax, "device_put", refuses)
    monkeypatch.setattr(jax, "block_until_ready", never_arrives)
    with pytest.raises(LeafError, match=exactly("leaf late: no such memory")) as caught:
        rd.reshard(tree, {"g": COLUMNS, "far": TURNED_ROWS, "late": FAR}, donate=True)
    assert caught.value.path == "late"
    assert all(alive(leaf) for leaf in tree.values())


def test_an_array_of_which_a_shard_is_gone_is_refused() -> None:
    tree = {"a": matrix(), "b": matrix()}
    tree["b"].addressable_data(5).delete()
    with pytest.raises(LeafError, match=exactly(f"leaf b: {DELETED}")):
        rd.reshard(tree, COLUMNS, donate=True)
    assert alive(tree["a"])


# ------------------------------------------------------------------------------------- aliases


def test_groups_are_transitive() -> None:
    held = [[(0, 1), (1, 1)], [(2, 7)], [(3, 4), (1, 1)], [(0, 2)], [(3, 4), (2, 7)], []]
    assert grouped_by_buffer(held) == ((0, 1, 2, 4),)
    assert grouped_by_buffer([[(0, 1)], [(1, 1)], [(0, 2)]]) == ()
    assert grouped_by_buffer([[(0, 1)], [(0, 2)], [(0, 1)], [(0, 2)]]) == ((0, 2), (1, 3))


def same_bytes() -> tuple[jax.Array, jax.Array]:
    """Two arrays of the same buffers, the first shards of which are on different devices."""
    array = matrix()
    turned = NamedSharding(Mesh(np.array(jax.devices()[7::-1]), ("x",)), P("x"))
    pieces = [shard.data for shard in reversed(array.addressable_shards)]
    return array, jax.make_array_from_single_device_arrays(VALUES.shape, turned, pieces)


def test_aliases_in_another_order_of_devices_travel_both() -> None:
    first, second = same_bytes()
    back = np.concatenate(np.split(VALUES, 8)[::-1])
    assert np.array_equal(second, back)
    moved = rd.reshard([first, second], COLUMNS, donate=True)
    assert np.array_equal(moved[0], VALUES)
    assert np.array_equal(moved[1], back)
    assert first.is_deleted()
    assert second.is_deleted()


def test_an_alias_that_stays_keeps_the_buffers_of_the_others() -> None:
    first, second = same_bytes()
    moved = rd.reshard([first, second], [COLUMNS, second.sharding], donate=True)
    assert np.array_equal(moved[0], VALUES)
    assert np.array_equal(moved[1], np.concatenate(np.split(VALUES, 8)[::-1]))


@pytest.mark.parametrize("place", [0, 5])
def test_a_shard_beside_its_array(place: int) -> None:
    array = matrix()
    shard = array.addressable_data(place)
    there = jax.devices()[12]
    for order in (1, -1):
        array = matrix()
        shard = array.addressable_data(place)
        moved = rd.reshard([array, shard][::order], [COLUMNS, there][::order], donate=True)[::order]
        assert np.array_equal(moved[0], VALUES)
        assert np.array_equal(moved[1], VALUES[2 * place : 2 * place + 2])


def test_shards_and_their_array_to_other_devices() -> None:
    """All of it by `jax.device_put`, which told to donate would read buffers that are gone."""
    array = matrix()
    shards = [array.addressable_data(0), array.addressable_data(5)]
    moved = rd.reshard([array, *shards], [FAR, jax.devices()[9], jax.devices()[10]], donate=True)
    assert np.array_equal(moved[0], VALUES)
    assert np.array_equal(moved[1], VALUES[:2])
    assert np.array_equal(moved[2], VALUES[10:12])
    assert array.is_deleted()


@pytest.mark.usefixtures("several_launches")
def test_launches_of_tied_and_of_donated_leaves_have_programs_of_their_own() -> None:
    """A program whose outputs take the place of inputs must not be given arrays that others need."""
    values = np.arange(2**20, dtype=np.float32).reshape(1024, 1024)
    tied, single = jax.device_put(values, ROWS), jax.device_put(values + 1, ROWS)
    for leaves in ([single, tied, tied], [tied, tied, single]):
        leaves = [jax.device_put(np.asarray(leaf), ROWS) if leaf is single else tied for leaf in leaves]
        plan = rd.reshard_plan(leaves, TURNED_ROWS, donate=True)
        assert len({id(batch.program) for batch in plan.batches}) == 2
        assert {entry.reused for batch in plan.batches for entry in batch.program.entries} == {False, True}
        for group, entry in (part for batch in plan.batches for part in batch.parts):
            assert {item.gives_up_source for item in group} == {entry.reused}


@pytest.mark.parametrize("limit", [None, "1MiB"])
def test_after_a_donating_move_the_same_without_leaves_the_source(limit: str | None) -> None:
    first, second = matrix(), matrix()
    assert alive(rd.reshard(first, TURNED_ROWS, donate=True, memory_limit=limit))
    assert first.is_deleted()
    moved = rd.reshard(second, TURNED_ROWS, memory_limit=limit)
    assert alive(second)
    assert alive(moved)


# ------------------------------------------------- arrays outside the tree that have the same buffers


def test_what_stays_where_it_is_outlives_its_source() -> None:
    source = matrix()
    kept = rd.reshard(source, ROWS, donate=True)
    moved = rd.reshard(source, TURNED_ROWS, donate=True)
    assert alive(kept)
    assert alive(moved)
    (batch,) = rd.reshard_plan(kept, TURNED_ROWS, donate=True).batches
    assert batch.items[0].gives_up_source  # its source was given up before
    again = rd.reshard(kept, TURNED_ROWS, donate=True)
    assert kept.is_deleted()
    assert alive(again)


def test_undonated_neither_of_two_goes_with_the_other() -> None:
    for turn in (1, -1):
        pair = [matrix()]
        pair.append(rd.reshard(pair[0], NamedSharding(GRID, P(("a", "b")))))
        first, second = pair[::turn]
        moved = rd.reshard(first, TURNED_ROWS, donate=True)
        assert alive(second)
        assert alive(moved)


def test_when_the_other_is_gone_the_source_is_given_up() -> None:
    source = matrix()
    kept = rd.reshard(source, ROWS, donate=True)
    del kept
    rd.reshard(source, TURNED_ROWS, donate=True)
    assert source.is_deleted()
    tree = [matrix()]
    tree.append(rd.reshard(tree[0], ROWS))
    moved = rd.reshard(tree, TURNED_ROWS, donate=True)  # both are given up
    assert all(leaf.is_deleted() for leaf in tree)
    assert all(map(alive, moved))


def test_nothing_is_kept_of_arrays_that_are_gone() -> None:
    """Python gives the identity of one to another array, which shares its buffers with none."""
    source = matrix()
    kept = rd.reshard(source, ROWS)
    names = {id(source), id(kept)}
    assert names <= sharing._RELATIONS.keys()
    del source, kept
    gc.collect()
    assert not names & sharing._RELATIONS.keys()


@pytest.mark.parametrize("donate", [False, True])
def test_what_device_put_leaves_on_some_of_the_devices_outlives_its_source(donate: bool) -> None:
    source = matrix(WHOLE)
    fewer = NamedSharding(Mesh(np.array(jax.devices()[:4]), ("x",)), P())
    kept = rd.reshard(source, fewer, donate=donate)
    assert alive(source)
    moved = rd.reshard(source, FAR, donate=True)
    assert alive(kept)
    assert alive(moved)


def test_tied_leaves_stay_for_what_has_their_buffers() -> None:
    """Outside the tree, and among what `jax.device_put` has returned for one of them."""
    tied = matrix()
    kept = rd.reshard(tied, ROWS)
    moved = rd.reshard([tied, tied], TURNED_ROWS, donate=True)
    assert all(map(alive, [kept, *moved]))
    whole = matrix(WHOLE)
    fewer = NamedSharding(Mesh(np.array(jax.devices()[:4]), ("x",)), P())
    assert all(map(alive, rd.reshard([whole, whole], [fewer, ROWS], donate=True)))


def test_sources_that_device_put_has_copied_are_given_up() -> None:
    tree = {"far": matrix(), "near": matrix(), "kept": matrix(), "host": VALUES}
    moved = rd.reshard(tree, {"far": FAR, "near": COLUMNS, "kept": ROWS, "host": WHOLE}, donate=True)
    assert {name: leaf.is_deleted() for name, leaf in tree.items() if name != "host"} == {
        "far": True,
        "near": True,
        "kept": False,
    }
    assert all(map(alive, moved.values()))


# -------------------------------------------------------------------------------- cut off midway


def leaves() -> dict[str, Any]:
    """Leaves that go in every way, in several launches."""
    tied = matrix(factor=5)
    return {
        "turned": matrix(TURNED_ROWS, 2),  # outputs take the place of inputs
        "grown": matrix(factor=3),
        "far": matrix(factor=4),
        "tied": tied,
        "tied too": tied,
        "kept": matrix(factor=6),
        "half": jax.device_put(VALUES[:8] * 7, ROWS),
        "key": jax.device_put(jax.random.split(jax.random.key(0), 8), ROWS),
        "number": np.float32(3),
    }


def model() -> tuple[dict[str, Any], dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """Such leaves, whose shards nothing has asked for yet; their targets and values."""
    tree = leaves()
    values = {name: bits(leaf) for name, leaf in leaves().items()}
    shardings = dict.fromkeys(tree, COLUMNS) | {"turned": ROWS, "far": FAR, "kept": ROWS, "key": WHOLE, "number": WHOLE}
    return tree, shardings, values


def lost(tree: dict[str, Any], error: BaseException, values: dict[str, np.ndarray[Any, Any]]) -> list[str]:
    """Leaves that are neither alive in the tree nor among what the error brings along."""
    found = getattr(error, "partial", tree)
    assert found.keys() == tree.keys()
    return [name for name in tree if not np.array_equal(bits(found[name]), values[name])]


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """SIGINT interrupts, also where a shell has started the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def several_launches(fresh: None, by_collectives: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "BUCKET_BYTES", 1)


@pytest.mark.usefixtures("several_launches")
@pytest.mark.parametrize("launch", [0, 2, 4])
def test_a_signal_between_a_launch_and_its_note(launch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, shardings, values = model()
    run, launches = CompiledBucket.launch, itertools.count()

    def interrupted(self: CompiledBucket, *args: Any) -> list[jax.Array]:
        moved = run(self, *args)
        if next(launches) == launch:
            signal.raise_signal(signal.SIGINT)
        return moved

    monkeypatch.setattr(CompiledBucket, "launch", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        rd.reshard(tree, shardings, donate=True)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert next(launches) == launch + 1  # and none after
    found: Any = caught.value.partial  # type: ignore[attr-defined]
    assert sum(found[name] is not tree[name] for name in tree) >= launch + 1
    assert not lost(tree, caught.value, values)
    monkeypatch.undo()
    rd.clear_caches()
    moved = rd.reshard(found, shardings, donate=True)  # as if nothing had happened
    assert all(np.array_equal(bits(moved[name]), values[name]) for name in tree)
    assert all(leaf.sharding.is_equivalent_to(shardings[name], leaf.ndim) for name, leaf in moved.items())


@pytest.mark.usefixtures("several_launches")
@pytest.mark.parametrize("launch", [0, 2, 4])
def test_a_launch_that_fails(launch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, shardings, values = model()
    run, launches = CompiledBucket.launch, itertools.count()

    def failing(self: CompiledBucket, *args: Any) -> list[jax.Array]:
        if next(launches) == launch:
            raise jax.errors.JaxRuntimeError("out of memory")
        return run(self, *args)

    monkeypatch.setattr(CompiledBucket, "launch", failing)
    with pytest.raises(jax.errors.JaxRuntimeError, match="out of memory") as caught:
        rd.reshard(tree, shardings, donate=True)
    assert not lost(tree, caught.value, values)


class Stop(BaseException):
    """What a handler of the caller's raises."""


@pytest.fixture
def stopping() -> Iterator[None]:
    """SIGALRM raises `Stop`."""

    def stop(*_: Any) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    yield
    assert signal.signal(signal.SIGALRM, before) is stop


def cut_off(call: Callable[[], Any], line: int, number: int, inside: str = "/redistrib/") -> int:
    """Call something, with a signal before a line that runs in some files, counted from 0; how many ran."""
    lines = itertools.count()

    def trace(context: Any, event: str, _: Any) -> Any:
        if inside not in context.f_code.co_filename or context.f_code.co_name == "forget":
            return None  # also of callbacks of weak references, from which Python lets no exception out
        if event == "line" and next(lines) == line:
            signal.raise_signal(number)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return next(lines)


@pytest.mark.usefixtures("several_launches", "stopping")
@pytest.mark.parametrize("step", [101, pytest.param(23, marks=pytest.mark.long)])
def test_a_signal_before_any_line(step: int) -> None:
    """Every so many lines and the last ones; by two signals, one of which ends in the interpreter's own exception."""
    tree, shardings, _ = model()
    rd.reshard(tree, shardings, donate=True)
    tree, shardings, _ = model()
    count = cut_off(partial(rd.reshard, tree, shardings, donate=True), -1, 0)
    assert count > 500
    partly, alarmed = 0, signal.getsignal(signal.SIGALRM)
    for line in [*range(0, count, step), *range(count - 30, count)]:
        tree, shardings, values = model()
        number, expected = [(signal.SIGINT, KeyboardInterrupt), (signal.SIGALRM, Stop)][line % 2]
        try:
            ran = cut_off(partial(rd.reshard, tree, shardings, donate=True), line, number)
        except expected as error:
            assert not lost(tree, error, values), line
            found = getattr(error, "partial", tree)
            partly += any(found[name] is not tree[name] for name in tree)
        else:
            # Caches make some calls a few lines shorter than the one that was counted.
            assert ran <= line >= count - 30, f"no exception for a signal before line {line}"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGALRM) is alarmed
    assert partly > 5


@pytest.mark.usefixtures("stopping")
@pytest.mark.parametrize("options", [{"donate": True}, {"donate": True, "check": True}, {}, {"check": True}], ids=str)
def test_a_signal_while_jax_makes_the_shards_of_an_array(options: dict[str, bool]) -> None:
    """JAX makes them in Python when it is first asked, and an array whose shards are made in part stays so."""
    tree, shardings, _ = model()
    rd.reshard(tree, shardings, **options)
    tree, shardings, _ = model()
    count = cut_off(partial(rd.reshard, tree, shardings, **options), -1, 0, SHARDS)
    assert count > 50
    for line in range(0, count, count // 25):
        tree, shardings, values = model()
        number, expected = [(signal.SIGINT, KeyboardInterrupt), (signal.SIGALRM, Stop)][line % 2]
        with pytest.raises(expected) as caught:
            cut_off(partial(rd.reshard, tree, shardings, **options), line, number, SHARDS)
        assert not lost(tree, caught.value, values), line


def start_and_join(thread: threading.Thread) -> None:
    """So that a handler, which runs in this thread, raises in here."""
    thread.start()
    while thread.is_alive():
        thread.join(0.1)


@pytest.mark.usefixtures("stopping")
def test_a_signal_while_another_thread_moves_arrays() -> None:
    """Its handler runs in the main thread, and cuts off what that does."""
    tree, shardings, values = model()
    moved: list[Any] = []
    ended = threading.Event()  # Python 3.11 takes a thread for ended whose join a signal has cut off

    def run() -> None:
        try:
            cut_off(lambda: moved.append(rd.reshard(tree, shardings, donate=True)), 5, signal.SIGALRM, SHARDS)
        finally:
            ended.set()

    with pytest.raises(Stop):
        start_and_join(threading.Thread(target=run))
    assert ended.wait(60)
    assert all(np.array_equal(bits(moved[0][name]), values[name]) for name in tree)


def test_in_another_thread_handlers_are_left_alone() -> None:
    moved: list[Any] = []
    thread = threading.Thread(target=lambda: moved.append(rd.reshard(matrix(), COLUMNS, donate=True)))
    thread.start()
    thread.join()
    assert alive(moved[0])


def test_errors_before_anything_moves_have_no_part_of_it() -> None:
    with pytest.raises(LeafError) as caught:
        rd.reshard({"a": matrix(), "b": "text"}, COLUMNS, donate=True)
    assert not hasattr(caught.value, "partial")
