"""One process of several: calls in which the processes disagree, or one of them has an error, one after the other.

After each, all processes make a call alike, whose values must be right.
"""

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.config.update("jax_num_cpu_devices", int(sys.argv[4]))
jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.launches import times as waits

ME, COUNT = jax.process_index(), jax.process_count()
LAST = ME == COUNT - 1
DEVICES = np.array(jax.devices())
EACH = len(DEVICES) // COUNT
LINE, AXES = Mesh(DEVICES, ("x",)), {"x": len(DEVICES)}
ROWS, COLUMNS, WHOLE = NamedSharding(LINE, P("x")), NamedSharding(LINE, P(None, "x")), NamedSharding(LINE, P())
PAIR = Mesh(DEVICES[: 2 * EACH], ("x",))  # of the first two processes
TURNED = Mesh(DEVICES[::-1], ("x",))
TURNED_PAIR = NamedSharding(Mesh(DEVICES[: 2 * EACH][::-1], ("x",)), P("x"))
TURNED_TAIL = NamedSharding(Mesh(DEVICES[-2 * EACH :][::-1], ("x",)), P("x"))  # of the last two
VALUES = np.arange(8.0 * 16, dtype=np.float32).reshape(8, 16)


def array(sharding: Any = ROWS, factor: int = 1, values: np.ndarray = VALUES) -> jax.Array:
    scaled = values * factor
    return jax.make_array_from_callback(values.shape, sharding, lambda index: scaled[index], dtype=values.dtype)


def is_right(moved: Any, factor: int = 1) -> bool:
    return all((np.asarray(shard.data) == factor * VALUES[shard.index]).all() for shard in moved.addressable_shards)


def deleted() -> jax.Array:
    gone = array()
    gone.delete()
    return gone


Named = Callable[[Any], Any]


def disagreements() -> Iterator[tuple[str, Callable[[Named], Any]]]:
    """Calls that some process makes in another way than the others; of trees with a name that no call had before."""
    a, b, integers = array(), array(factor=2), array(values=VALUES.astype(np.int32))
    on_pair = array(NamedSharding(PAIR, P("x")))
    with jax.enable_x64(True):
        wide = array(values=VALUES.astype(np.float64))
    local = jax.device_put(VALUES, jax.local_devices()[0])
    shape = jax.ShapeDtypeStruct(VALUES.shape, VALUES.dtype, sharding=ROWS)
    yield "shardings", lambda t: rd.reshard(t(a), WHOLE if LAST else COLUMNS)
    yield "shardings that all know", lambda _: rd.reshard(a, WHOLE if LAST else COLUMNS)
    yield "shardings that some know", lambda _: rd.reshard(a, NamedSharding(TURNED, P("x")) if LAST else COLUMNS)
    yield "a tree", lambda t: rd.reshard(t({"a": a, "b": b} if LAST else {"a": a, "c": b}), COLUMNS)
    yield "more leaves", lambda t: rd.reshard(t([a, b] if LAST else [a]), COLUMNS)
    yield "a dtype", lambda t: rd.reshard(t(integers if LAST else a), COLUMNS)
    yield "a shape", lambda t: rd.reshard(t(array(values=VALUES[:, :8]) if LAST else a), COLUMNS)
    yield "no elements", lambda t: rd.reshard(t(array(values=VALUES[:, :0]) if LAST else a), COLUMNS)
    yield "a move and none", lambda t: rd.reshard(t(a), ROWS if LAST else COLUMNS)
    yield "donation", lambda t: rd.reshard(t(a), COLUMNS, donate=LAST)
    yield "a limit", lambda t: rd.reshard(t(a), COLUMNS, memory_limit="1MiB" if LAST else None)
    yield "padding", lambda t: rd.reshard(t(a), COLUMNS, logical_shape=(7, 16) if LAST else (8, 16))
    yield "a function", lambda t: rd.reshard(t(a), COLUMNS, through=double if LAST else next_number)
    yield "a function and none", lambda t: rd.reshard(t(a), COLUMNS, through=double if LAST else None)
    yield "captured values", lambda t: rd.reshard(t(a), COLUMNS, through=times(np.full(16, 1 + LAST, np.float32)))
    yield "captured arrays", lambda t: rd.reshard(t(a), COLUMNS, through=times(np.ones(1 if LAST else 16, np.float32)))
    yield "order", lambda t: [rd.reshard(t(a), to) for to in ((COLUMNS, WHOLE) if LAST else (WHOLE, COLUMNS))]
    yield "host values", lambda t: rd.reshard(t(VALUES + LAST), COLUMNS)
    yield "committed local arrays", lambda t: rd.reshard(t(local), COLUMNS)
    yield "other devices", lambda t: rd.reshard(t(on_pair if LAST else a), COLUMNS)
    yield "a target on other devices", lambda t: rd.reshard(t(on_pair), TURNED_TAIL if LAST else COLUMNS)
    yield "fewer processes", lambda t: rd.reshard(t(a), COLUMNS) if ME else rd.reshard(t(on_pair), TURNED_PAIR)
    yield "a deleted leaf", lambda t: rd.reshard(t(deleted() if LAST else a), COLUMNS)
    yield "no array", lambda t: rd.reshard(t({"a": "text" if LAST else a, "b": b}), COLUMNS)
    yield "shardings of another tree", lambda t: rd.reshard(t([a, b]), t([COLUMNS] if LAST else [COLUMNS, ROWS]))
    yield "no sharding", lambda t: rd.reshard(t(a), "x" if LAST else COLUMNS)
    yield "an axis that there is not", lambda t: rd.reshard(t(a), P("y" if LAST else "x"), mesh=LINE)
    yield "no option", lambda t: rd.reshard(t(a), COLUMNS, via="post" if LAST else None)
    yield "no cost model", lambda t: rd.reshard(t(a), COLUMNS, machine="none such" if LAST else None)
    yield "too small a limit", lambda t: rd.reshard(t(a), COLUMNS, memory_limit=1 if LAST else "1MiB")
    yield "no size", lambda t: rd.reshard(t(a), COLUMNS, memory_limit="much" if LAST else "1MiB")
    yield "no elements' function", lambda t: rd.reshard(t(a), COLUMNS, through=decomposed if LAST else double)
    yield "a shape alone", lambda t: rd.reshard(t(shape if LAST else a), COLUMNS)
    yield "an error that all have", lambda t: rd.reshard(t(a), P("y"), mesh=LINE)
    yield "two functions", lambda t: rd.load("/none", {"a": COLUMNS}) if LAST else rd.reshard(t(a), COLUMNS)
    yield "no tree to save", lambda t: rd.save(t({"a": "text" if LAST else a, "b": b}), sys.argv[5])
    yield "a deleted leaf beside 64 bits", lambda t: rd.reshard(t([wide, deleted() if LAST else a]), COLUMNS)
    yield "an axis that the first devices have not", lambda t: rd.reshard(t(VALUES), P("y" if LAST else "x"), mesh=AXES)
    yield "no size of a load", lambda _: loaded_under_mesh("much" if LAST else "1MiB")
    yield "devices to load to", lambda _: rd.load(sys.argv[5], {"a": NamedSharding(TURNED, P("x")) if LAST else ROWS})
    yield "no sharding to load", lambda _: rd.load(sys.argv[5], {"a": 3 if LAST else COLUMNS, "b": COLUMNS})


def loaded_under_mesh(memory_limit: str) -> Any:
    with jax.set_mesh(LINE):
        return rd.load(sys.argv[5], {"a": P("x")}, memory_limit=memory_limit)


def moved_keys() -> bool:
    keys = rd.reshard(jax.random.split(jax.random.key(3), len(DEVICES)), ROWS)
    moved = rd.reshard(keys, NamedSharding(TURNED, P("x")))
    data = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(3), len(DEVICES))))
    shards = jax.random.key_data(moved).addressable_shards
    return all((np.asarray(shard.data) == data[shard.index]).all() for shard in shards)


def saved_and_loaded() -> bool:
    rd.save({"a": array(), "b": array(COLUMNS)}, sys.argv[5])
    return all(map(is_right, rd.load(sys.argv[5], {"a": COLUMNS, "b": ROWS}).values()))


def agreements() -> Iterator[tuple[str, Callable[[], bool]]]:
    """Calls that are right though processes pass other things."""
    yield "local arrays", lambda: is_right(rd.reshard(jnp.asarray(VALUES), COLUMNS))
    yield (
        "a tree of local arrays",
        lambda: all(map(is_right, rd.reshard([jnp.asarray(VALUES), array(), VALUES], COLUMNS, donate=True))),
    )
    key = jax.random.key(3)
    yield (
        "keys",
        lambda: bool(
            (
                np.asarray(jax.random.key_data(rd.reshard(key, WHOLE)).addressable_shards[0].data)
                == np.asarray(jax.random.key_data(key))
            ).all()
        ),
    )
    yield "keys that move", moved_keys
    there = NamedSharding(Mesh(DEVICES[:EACH], ("x",)), P("x"))
    here = NamedSharding(Mesh(DEVICES[EACH : 2 * EACH], ("x",)), P("x"))
    yield (
        "between two processes",
        lambda: is_right(
            rd.reshard(
                array(there) if ME < 2 else jax.ShapeDtypeStruct(VALUES.shape, VALUES.dtype, sharding=there), here
            )
        ),
    )
    yield (
        "captured alike",
        lambda: is_right(rd.reshard(array(), COLUMNS, through=lambda x: x * np.ones(16, np.float32))),
    )
    on_all = array(factor=2)
    yield "a captured array of all", lambda: is_right(rd.reshard(array(), COLUMNS, through=lambda x: x * 3 - on_all))
    yield "save and load", saved_and_loaded
    yield "to one process alone", lambda: is_right(rd.reshard(jnp.asarray(VALUES), there))


def double(tree: Any) -> Any:
    return jax.tree.map(lambda x: 2 * x, tree)


def times(captured: np.ndarray) -> Callable[[Any], Any]:
    return lambda tree: jax.tree.map(lambda x: x * captured, tree)


def next_number(tree: Any) -> Any:
    return jax.tree.map(lambda x: x + 1, tree)


def decomposed(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.linalg.qr(x)[0], tree)


def raised_by(call: Callable[[], Any]) -> str:
    try:
        call()
    except rd.RedistribError as error:
        return f"{type(error).__name__}: {error}".replace("\n", " ")
    return "nothing raised"


def main() -> None:
    waits.REPEATED_SECONDS = 0.3
    kept, wrong = array(), 0
    rd.reshard(kept, WHOLE)
    for name, right in agreements():
        print(f"RIGHT {name} {right()}", flush=True)
    for name, call in disagreements():
        started = time.monotonic()
        message = raised_by(lambda name=name, call=call: call(lambda value: {name: value}))
        print(f"DIFFERENT {name}: {message}", flush=True)
        print(f"SECONDS {name}: {time.monotonic() - started:.1f}", flush=True)
        wrong += not is_right(rd.reshard(kept, COLUMNS)) or not is_right(kept)
    print(f"RESULT {wrong}", flush=True)
    if ME == 0:  # the others come to no more calls
        print(f"ENDED {raised_by(lambda: rd.reshard(kept, COLUMNS))}", flush=True)


main()
