"""One process of several: loads files under several shardings, checks its own shards, prints what it has read."""

import itertools
import json
import os
import sys
import threading
import time
from pathlib import Path

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.config.update("jax_num_cpu_devices", int(sys.argv[4]))
jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import redistrib as rd
from redistrib.weights import open_files, saving
from redistrib.weights.landing import landing
from tests.weights.files import CountingFile, arrays, drawn_sharding, drawn_tree, same_bits

PATH, WHAT = Path(sys.argv[5]), sys.argv[6]
open_files.open_file = CountingFile


def cut(shape: tuple[int, ...], mesh: Mesh) -> P:
    """The first dimensions that the axes of a mesh divide are cut."""
    axes = list(mesh.shape.items())
    spec: list[str | None] = []
    for size in shape:
        axis = next(((name, count) for name, count in axes if size % count == 0 and size), None)
        if axis is not None:
            axes.remove(axis)
        spec.append(None if axis is None else axis[0])
    return P(*spec)


def wrong(array: jax.Array, values: np.ndarray) -> int:
    return sum(not same_bits(shard.data, values[shard.index]) for shard in array.addressable_shards)


def loads() -> None:
    values = arrays()
    devices = np.array(jax.devices())
    grid = Mesh(devices.reshape(2, -1), ("tp", "fsdp"))
    turned = Mesh(devices[::-1].reshape(-1, 2), ("p", "q"))
    some = Mesh(devices[: len(devices) // 2], ("x",))
    last = Mesh(devices[len(devices) // 2 :], ("x",))
    layouts = {
        "grid": {name: NamedSharding(grid, cut(value.shape, grid)) for name, value in values.items()},
        "replicas": {name: NamedSharding(grid, P()) for name in values},
        "rows": {name: NamedSharding(grid, P("tp") if value.ndim and value.shape[0] % 2 == 0 else P())
                 for name, value in values.items()},
        "turned": {name: NamedSharding(turned, cut(value.shape[::-1], turned)) for name, value in values.items()
                   if value.ndim == 2 and value.shape[0] == value.shape[1]},
        "sides": {name: NamedSharding((some, last)[k % 2], P()) for k, name in enumerate(values)},
    }  # fmt: skip
    everywhere = NamedSharding(grid, P())
    leaders = {jax.local_devices(process_index=k)[0] for k in range(jax.process_count())}
    assert landing(everywhere).device_set == leaders
    uneven = NamedSharding(Mesh(devices[:-1], ("x",)), P())
    assert landing(uneven).device_set == leaders
    halves = NamedSharding(grid, P("tp"))  # each process holds one half, or both are held by several
    assert len(landing(halves).device_set) == max(2, jax.process_count())
    assert landing(NamedSharding(grid, P(("tp", "fsdp")))).device_set == set(devices.flat)
    for name, shardings in layouts.items():
        for local in (False, True) if name == "grid" else (False,):
            CountingFile.reads.clear()
            loaded = rd.load(PATH, shardings, local=local, memory_limit="3MB")
            bad = sum(wrong(array, values[tensor]) for tensor, array in loaded.items())
            bad += sum(array.sharding != shardings[tensor] for tensor, array in loaded.items())
            plan = rd.load_plan(PATH, shardings)
            told = [plan.read_bytes, plan.moved_bytes, plan.bound_bytes]
            print("RESULT", json.dumps([name, local, bad, CountingFile.reads, told]))
    shardings = layouts["grid"]
    loaded = rd.load(PATH, shardings, dtype={"embed.weight": "bfloat16", "layers.0.attn.q": "float32"})
    bad = 0
    for tensor, dtype in (("embed.weight", jax.numpy.bfloat16), ("layers.0.attn.q", np.float32)):
        with np.errstate(all="ignore"):
            expected = np.asarray(jax.numpy.asarray(values[tensor]).astype(dtype))
        bad += loaded[tensor].dtype != dtype or wrong(loaded[tensor], expected)
    print("RESULT", json.dumps(["cast", False, int(bad), []]))
    renamed = rd.load(PATH, {"a": [shardings["embed.weight"]]}, rename={"embed.weight": "a.0"})["a"][0]
    print("RESULT", json.dumps(["renamed", False, wrong(renamed, values["embed.weight"]), []]))
    wide, folder = np.arange(2**16, dtype=np.float64).reshape(256, 256), PATH if PATH.is_dir() else PATH.parent
    with jax.enable_x64(True):
        loaded = rd.load(folder / "wide.safetensors", {"wide": NamedSharding(grid, P(None, "fsdp"))})
        bad = wrong(loaded["wide"], wide + 1 / 3)
    print("RESULT", json.dumps(["wide", False, bad, []]))
    fused_spec = NamedSharding(grid, P(None, ("tp", "fsdp")))

    def fused(tensors: dict[str, jax.Array]) -> jax.Array:
        return jax.numpy.concatenate([tensors["layers.0.attn.q"], tensors["layers.0.attn.k"].T], 1)

    expected = np.concatenate([values["layers.0.attn.q"], values["layers.0.attn.k"].T], 1)
    CountingFile.reads.clear()
    bad = wrong(rd.load(PATH, fused_spec, through=fused), expected)
    print("RESULT", json.dumps(["through", False, bad, CountingFile.reads]))
    # From devices of some processes to those of others, each of which knows the inputs' shapes alone.
    own = any(device.process_index == jax.process_index() for device in some.devices.flat)
    placed = NamedSharding(some, P("x"))
    inputs = {
        name: jax.make_array_from_callback((512, 512), placed, lambda index, name=name: values[name][index])
        if own
        else jax.ShapeDtypeStruct((512, 512), values[name].dtype, sharding=placed)
        for name in ("layers.0.attn.q", "layers.0.attn.k")
    }
    bad = wrong(rd.reshard(inputs, NamedSharding(last, P(None, "x")), through=fused), expected)
    print("RESULT", json.dumps(["reshard through", False, bad, []]))


def refusals() -> None:
    """Calls that must fail in the same words everywhere."""
    devices = np.array(jax.devices())
    everywhere = NamedSharding(Mesh(devices, ("x",)), P())
    rank = jax.process_index()

    def refused(what: str, path: Path, shardings: object, **options: object) -> None:
        try:
            rd.load(path, shardings, **options)
            message = "nothing"
        except rd.RedistribError as error:
            message = f"{type(error).__name__}: {error}"
        print(f"REFUSED {what}: {message}")

    class Shrinking(CountingFile):
        def read_into(self, buffer: memoryview, start: int) -> int:
            return 0 if rank == 1 else super().read_into(buffer, start)

    refused("missing name", PATH, {"embed.weigth": everywhere})
    refused("no file in one process", PATH if rank != 1 else PATH.with_name("gone.safetensors"), everywhere)
    other = PATH.parent / "other" / PATH.name
    if rank == 1:
        other.parent.mkdir()
        other.write_bytes(PATH.read_bytes() + b"more")
    refused("another file in one process", PATH if rank != 1 else other, everywhere)
    refused("other options", PATH, {"embed.weight": everywhere}, dtype="bfloat16" if rank else "float16")
    refused("other names", PATH, {"embed.weight": everywhere}, rename={"scale": str(rank)})
    open_files.open_file = Shrinking
    refused("shrinks", PATH, {"embed.weight": everywhere})
    open_files.open_file = CountingFile
    refused("memory", PATH, {"embed.weight": everywhere}, memory_limit=1000)
    loaded = rd.load(PATH, {"embed.weight": everywhere})  # and then it goes on
    print("RESULT", json.dumps(["after", False, wrong(loaded["embed.weight"], arrays()["embed.weight"]), []]))


def replaced() -> None:
    """Loads of a folder that the first process replaces some thirty times a second."""
    folder, stop = PATH.parent / "replaced", threading.Event()
    everywhere = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P())

    def save(version: int) -> None:
        tree = {name: np.full(64, version, np.float32) for name in ("a", "b", "c")}
        rd.save(tree, folder, shard_bytes=(1, 512, "5GB")[version % 3])

    def run() -> None:
        for version in itertools.count(1):
            if stop.is_set():
                return
            save(version)
            time.sleep(0.03)

    threads = [threading.Thread(target=run, daemon=True)] if jax.process_index() == 0 else []
    if threads:
        save(0)
    multihost_utils.sync_global_devices("saved")
    for thread in threads:
        thread.start()
    versions = []
    for _ in range(20):
        loaded = rd.load(folder, everywhere)
        values = {
            float(value) for name in ("a", "b", "c") for value in np.asarray(loaded[name].addressable_shards[0].data)
        }
        versions.append(sorted(values))
    stop.set()
    for thread in threads:
        thread.join()
    print("RESULT", json.dumps(["replaced", False, 0, versions]))


def saves() -> None:
    """Arrays under several layouts, saved together; then a process that cannot write."""
    values = arrays()
    devices = np.array(jax.devices())
    grid = Mesh(devices.reshape(2, -1), ("tp", "fsdp"))
    write = os.pwrite
    for folder, whole in (("cut", False), ("whole", True)):
        shardings = {
            name: NamedSharding(grid, P() if whole else cut(value.shape[::-1], grid)) for name, value in values.items()
        }
        shardings["layers.0.mlp.up"] = NamedSharding(grid, P(None, "fsdp"))
        for name, value in values.items():
            if not whole and value.shape[:1] != value.shape[-1:]:
                shardings[name] = NamedSharding(grid, cut(value.shape, grid))
        tree = {
            name: jax.make_array_from_callback(value.shape, shardings[name], lambda index, value=value: value[index])
            for name, value in values.items()
        }
        written = 0

        def counted(descriptor: int, data: memoryview, start: int) -> int:
            nonlocal written
            count = write(descriptor, data, start)
            written += count
            return count

        saving.os.pwrite = counted
        rd.save(tree, PATH / folder, shard_bytes="1MB")
        saving.os.pwrite = write
        print("RESULT", json.dumps([folder, False, written, []]))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    for part in (tree, {f"of process {jax.process_index()}": tree["scale"]}):
        if part is tree and jax.process_index() == 1:
            saving.os.pwrite = full
        try:
            rd.save(part, PATH / "full")
        except rd.RedistribError as error:
            print(f"REFUSED {type(error).__name__}: {error}")
        saving.os.pwrite = write


def trees(act: str) -> None:
    """Save drawn trees, or load them again; every process draws the same."""
    bad = 0
    for seed in map(int, sys.argv[7].split(",")):
        values, rng = drawn_tree(seed), np.random.default_rng([seed, jax.process_count()])
        targets = {name: drawn_sharding(rng, value.shape, jax.devices()) for name, value in values.items()}
        folder = PATH / str(seed)
        if act == "save":
            tree = {
                name: jax.make_array_from_callback(
                    value.shape, targets[name], lambda index, value=value: value[index], dtype=value.dtype
                )
                for name, value in values.items()
            }
            everywhere = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P())
            tree["every process has a part of this"] = jax.make_array_from_callback(
                (), everywhere, lambda _: np.float32(1)
            )
            rd.save(tree, folder, shard_bytes=int(rng.choice([1, 4096, 2**30])))
        else:
            targets["every process has a part of this"] = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P())
            loaded = rd.load(folder, targets, memory_limit="4MB")
            bad += sum(wrong(loaded[name], value) for name, value in values.items())
            bad += sum(loaded[name].sharding != sharding for name, sharding in targets.items())
    print("RESULT", json.dumps([act, False, bad, []]))


{
    "save": lambda: trees("save"),
    "load": lambda: trees("load"),
    "loads": loads,
    "refusals": refusals,
    "replaced": replaced,
    "saves": saves,
}[WHAT]()
