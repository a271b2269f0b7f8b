"""One process of several: calls that are drawn, in which some process differs from the others, or none does.

Every process draws the same calls from the seed, and makes its own part of them. It prints of each what became of it.
"""

import json
import random
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
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
from redistrib.backends.jax import private
from redistrib.launches import times

ME, COUNT = jax.process_index(), jax.process_count()
DEVICES, EACH = np.array(jax.devices()), len(jax.local_devices())
VALUES = np.arange(24.0 * 48, dtype=np.float32).reshape(24, 48)  # whole tiles on 2, 3, 4, 6 and 8 devices
FOLDER = Path(sys.argv[5])
SPECS = (P("x"), P(None, "x"), P())
FAULTS = {  # of the functions that are called: errors that one process has
    "reshard": ("no array", "deleted", "no sharding", "no option"),
    "through": ("no array", "deleted", "no sharding", "raising"),
    "load": ("no sharding", "no such tensor"),
    "save": ("no array", "deleted"),
    "distribute": ("no array", "deleted"),
}


@dataclass(frozen=True)
class Call:
    """A call of a process.

    Attributes:
        function: its name.
        owners: the processes whose devices are source and target.
        source, target: specs.
        reverse: whether the target's devices are in reverse order.
        on_host: whether the values come from the host.
        names: of the leaves.
        dtype: of the leaves.
        columns: of each leaf.
        factor: by which the values are multiplied.
        options: of the call.
        fault: the error that it has, if any.
    """

    function: str
    owners: tuple[int, ...]
    source: P
    target: P
    reverse: bool = False
    on_host: bool = False
    names: tuple[str, ...] = ("a", "b")
    dtype: str = "float32"
    columns: int = 48
    factor: int = 1
    options: tuple[tuple[str, Any], ...] = ()
    fault: str = ""

    @property
    def values(self) -> np.ndarray:
        return (self.factor * VALUES[:, : self.columns]).astype(self.dtype)

    def sharding(self, spec: P, *, reverse: bool = False) -> NamedSharding:
        devices = np.concatenate([DEVICES[EACH * k : EACH * (k + 1)] for k in self.owners])
        return NamedSharding(Mesh(devices[::-1] if reverse else devices, ("x",)), spec)

    def leaf(self) -> Any:
        if self.fault == "no array":
            return "text"
        if self.on_host:
            return self.values
        values = self.values
        array = jax.make_array_from_callback(
            values.shape, self.sharding(self.source), lambda index: values[index], dtype=values.dtype
        )
        if self.fault == "deleted" and ME in self.owners:
            array.delete()
        return array


def made(call: Call, number: int, suffix: str) -> Any:
    """The results of a call."""
    leaves = [call.leaf(), *(replace(call, fault="").leaf() for _ in call.names[1:])]
    tree = {f"{name}{suffix}": leaf for name, leaf in zip(call.names, leaves, strict=True)}
    target = call.sharding(call.target, reverse=call.reverse)
    shardings: dict[str, Any] = dict.fromkeys(tree, target)
    if call.fault == "no sharding":
        shardings[f"a{suffix}"] = "text"
    options = dict(call.options)
    if call.function == "reshard":
        if call.fault == "no option":
            options["via"] = "post"
        return rd.reshard(tree, shardings, **options)
    if call.function == "through":
        return rd.reshard(tree, shardings, through=raising if call.fault == "raising" else double)
    if call.function == "save":
        rd.save(tree, FOLDER / str(number), shard_bytes=64)
        return {}
    if call.function == "load":
        shardings = {name: shardings[f"{name}{suffix}"] for name in call.names}
        if call.fault == "no such tensor":
            shardings["none"] = target
        return rd.load(FOLDER / "kept", shardings, **options)
    first = jax.ShapeDtypeStruct(VALUES.shape, call.dtype)
    axis = {"x": SPECS.index(call.target)}
    f = rd.distribute(lambda x: jnp.tanh(x) * call.factor, (first,), target.mesh, schedule=[rd.along("x", axis)])
    return f(leaves[0])


def double(tree: Any) -> Any:
    return jax.tree.map(lambda x: x * 2, tree)


def raising(_: Any) -> Any:
    raise rd.RedistribError("the function has an error")


def is_right(call: Call, moved: Any) -> bool:
    """Whether the shards of this process are those of the values."""
    values = call.values
    if call.function == "through":
        values = values * 2
    elif call.function == "distribute":
        values = np.tanh(values) * call.factor
    elif call.function == "load":
        values = VALUES.astype(dict(call.options).get("dtype", "float32"))
    return all(
        np.allclose(np.asarray(shard.data, np.float64), np.asarray(values[shard.index], np.float64), 1e-5)
        for array in jax.tree.leaves(moved)
        for shard in array.addressable_shards
    )


# ------------------------------------------------------------------------------------------------------- drawn


def drawn_call(rng: random.Random) -> Call:
    owners = range(COUNT) if rng.random() < 0.7 else sorted(rng.sample(range(COUNT), rng.randint(2, COUNT)))
    function = rng.choice((*FAULTS, "reshard"))
    options: dict[str, Any] = {}
    if function == "reshard" and rng.random() < 0.4:
        options |= rng.choice(({"donate": True}, {"memory_limit": "1MiB"}, {"order": "any"}, {"check": True}))
    if function == "load" and rng.random() < 0.5:
        options["dtype"] = "bfloat16"
    return Call(
        function, tuple(owners), rng.choice(SPECS), drawn_target(rng, function), reverse=rng.random() < 0.4,
        on_host=function in ("reshard", "distribute") and rng.random() < 0.3, options=tuple(options.items()),
    )  # fmt: skip


def drawn_target(rng: random.Random, function: str) -> P:
    return rng.choice(SPECS[:2] if function == "distribute" else SPECS)


def other(rng: random.Random, call: Call) -> tuple[str, Call]:
    """A call that differs, and how."""
    option = ("memory_limit", "2MiB") if call.function == "reshard" else ("dtype", "float16")
    compared = call.on_host or call.function == "distribute"  # values on devices are not
    ways: dict[str, dict[str, Any]] = {
        "tree": {"names": rng.choice((("a",), ("a", "c"), ("a", "b", "c")))},
        "dtype": {"dtype": "int32"},
        "shape": {"columns": 24},
        "target": {"target": drawn_target(rng, call.function)},
        "devices": {"reverse": not call.reverse},
        "options": {"options": (option,) if call.function in ("reshard", "load") else ()},
        "values": {"factor": 3 if compared else 1},
        "group": {"owners": tuple(sorted(rng.sample(range(COUNT), rng.randint(1, COUNT))))},
        "error": {"fault": rng.choice(FAULTS[call.function])},
    }
    way = rng.choice((*ways, "error", "function"))
    return way, drawn_call(rng) if way == "function" else replace(call, **ways[way])


def drawn_round(rng: random.Random) -> tuple[str, list[list[Call]]]:
    """What differs, and the calls of each process; a process without devices of a call need not make it."""
    first, second = drawn_call(rng), replace(drawn_call(rng), owners=tuple(range(COUNT)))
    by_process = [[first, second] for _ in range(COUNT)]
    odd, way = rng.randrange(COUNT), rng.choice(("nothing", "order", "a call too few", "outsiders", *["a call"] * 6))
    if way == "order":
        by_process[odd] = [second, first]
    elif way == "a call too few":  # where both are alike, the one that is left out is the call that comes next
        by_process[odd] = [second] if first != second else by_process[odd]
    elif way == "a call":
        way, different = other(rng, first)
        by_process[odd] = [different, second]
    if way != "outsiders":
        by_process = [[call for call in calls if k in call.owners] for k, calls in enumerate(by_process)]
    return f"{way} in process {odd}", by_process


def outcome(calls_made: list[Call], number: int, suffix: str, *, stops: bool = False) -> tuple[list[str], bool]:
    """The errors of the calls, and whether the results of the others are right.

    Calls that wait for each other end together, so that none is left to be made. `stops` says that no error leaves any.
    """
    right, errors = True, []
    for call in calls_made:
        try:
            right &= is_right(call, jax.block_until_ready(made(call, number, suffix)))
        except rd.RedistribError as error:
            errors.append(f"{type(error).__name__}: {error}")
            if stops or "processes wait for each other in different calls" in errors[-1]:
                break
        except Exception as error:
            errors.append(f"FOREIGN {type(error).__name__}: {str(error)[:400]}")
    return errors, right


def main() -> None:
    times.REPEATED_SECONDS, times.WAIT_SECONDS = 0.3, 100.0
    store = private.notes_of_processes()
    everywhere = Call("reshard", tuple(range(COUNT)), SPECS[0], SPECS[1])
    rd.save({name: everywhere.leaf() for name in "abc"}, FOLDER / "kept")
    for number in map(int, sys.argv[7].split(",")):
        rng = random.Random(f"disagreements/{sys.argv[6]}/{COUNT}/{number}")
        suffix = rng.choice(("", str(number)))  # calls of names that were there before, or of new ones
        way, by_process = drawn_round(rng)
        store.wait_at_barrier(f"fuzz/{number}", 120_000)
        print("DRAWN", number, way, *by_process[ME], sep="\n  ", flush=True)  # of a round that does not end
        started = time.monotonic()
        of_all = {sum(len(call.owners) == COUNT for call in part) for part in by_process}
        errors, right = outcome(by_process[ME], number, suffix, stops=len(of_all) > 1)
        seconds = time.monotonic() - started
        store.wait_at_barrier(f"fuzz/{number}/made", 120_000)
        errors_after, right_after = outcome([everywhere], number, "after")
        record = {"number": number, "way": way, "calls": [f"{way}: {call}" for call in by_process[ME]]}
        record |= {"errors": errors, "seconds": seconds, "after": errors_after, "right": right and right_after}
        print("ROUND", json.dumps(record), flush=True)


main()
