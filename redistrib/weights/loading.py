"""`load`: tensors of safetensors files under any shardings; each byte is read once, and plans move the tensors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from redistrib.backends.jax import memory_copies, memory_kinds
from redistrib.backends.jax.dummies import without_shards
from redistrib.backends.jax.host_values import from_host
from redistrib.backends.jax.meetings import Meeting, processes_of, raised_in_all
from redistrib.backends.jax.rows import line_of
from redistrib.backends.jax.sharding import alone_on, text_of
from redistrib.cache import Cache
from redistrib.cost.presets import MachineLike
from redistrib.digests import digest_of_parts
from redistrib.errors import LeafError, WeightsFileError
from redistrib.plans.dtypes import dtype_of, itemsize_of
from redistrib.renamed import renamed
from redistrib.resharding.entry import move_tree
from redistrib.resharding.planning import Planner
from redistrib.resharding.progress import bytes_bar
from redistrib.resharding.through.boxes import Backwards
from redistrib.resharding.through.function import TracedFunction
from redistrib.resharding.through.prepared import PreparedThrough
from redistrib.sizes import parse_size
from redistrib.weights.ahead import BatchesAhead
from redistrib.weights.batches import Batch, CutArray, in_batches, line_of_landing, pieces_of
from redistrib.weights.direct import put, tile_pieces
from redistrib.weights.folders import path_of
from redistrib.weights.headers import WeightFiles
from redistrib.weights.landing import landing, spread
from redistrib.weights.layout import line_by_process, line_sharding
from redistrib.weights.names import Rename, named_leaves
from redistrib.weights.opening import OpenWeights, open_together, open_weights, read_headers
from redistrib.weights.reading import AHEAD_BYTES, PieceReader
from redistrib.weights.targets import TargetTree, asked_for, is_place, target_tree

IN_FLIGHT = 2  # batches that move while the next is put on devices


@renamed("cost_model", "machine")
def load(
    path: str | Path,
    shardings: Any,
    *,
    mesh: Any = None,
    through: Callable[[Any], Any] | None = None,
    dtype: Any = None,
    rename: Rename = None,
    memory_limit: int | str | None = None,
    local: bool = False,
    machine: MachineLike | None = None,
    progress: bool | None = None,
) -> Any:
    """Load tensors from safetensors files onto devices, under any shardings.

    Each process reads one part of every tensor, in long runs and in the order of the file. From this layout of reading,
    plans move tensors to their shardings while the next tensors are read. So each byte is read once over all processes,
    whatever the shardings are. A single process reads the tiles of its devices directly, without a plan.

    With several processes of a `jax.distributed` job, each process that owns a device of the shardings makes the same
    call. An error of one process is raised in all of them. See docs/weights.md.

    Args:
        path: a safetensors file, an index, or a folder.
        shardings: a tree whose leaves are shardings, devices, partition specs over `mesh` or under `jax.set_mesh`, or
            `jax.ShapeDtypeStruct` with a sharding, for which an array may stand: the result has its shape and type. The
            name of a tensor is the keys on the path to its leaf, joined by dots, so a flat dict by name works too.
            Tensors that are not named are not read. A single sharding loads every tensor into a flat dict; so do
            patterns of names (`{"*.kernel": P("x"), "*": P()}`) and a function of name and `jax.ShapeDtypeStruct`, as
            `reshard` takes them, of the tensors that a pattern matches or for which the function returns no None.
        mesh: of partition specs: as JAX has it, or axes and sizes over the first devices.
        through: a function of the flat dict of all tensors, as in `reshard`; its result is loaded, under `shardings`.
            Only tensors that the result depends on are read.
        rename: from the name of a tensor in the files to the name that all other arguments and the result have: a
            mapping, beside which other names stay, or a function of the name. None leaves a tensor out.
        dtype: element type of the floating-point tensors of the file, or a dict of types by name. A cast to
            a smaller type is done before the tensor moves, a cast to a larger type afterwards.
        memory_limit: bytes of host memory of a process for data that is read and not yet on a device: an integer or a
            text such as `"2GiB"`; by default 256 MiB, or the largest part of a tensor if that is larger.
        local: whether each process has its own copy of the files. Then each process reads the tiles of its devices,
            and nothing moves.
        machine: see `synthesize`; by default the preset of the devices' platform.
        progress: whether to show a bar on stderr; None shows one for long loads on a terminal.

    Returns:
        The tree of `shardings`, every array under exactly its sharding.

    Raises:
        WeightsFileError: in every process, for a file that is missing, malformed or shrinks, a missing name, and a
            tensor whose shape is not that of its leaf. What an index names and nobody asks for may be missing.
        LeafError: for a leaf of `shardings` that is no sharding, or one that does not fit its tensor; if `rename` makes
            two names one.
        DtypeError: if `dtype` is no element type; for a dict of types it is a `LeafError`.
        ThroughError: if `through` has an operation that is neither a view nor element-wise.
        MemoryLimitError: if one part of a tensor is larger than the limit.
        CommunicatorError: if processes make different calls, or a process makes none.

    >>> import tempfile
    >>> from redistrib import save
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save({"w": jnp.ones((8, 8))}, f"{folder}/w.safetensors")
    ...     load(f"{folder}/w.safetensors", PartitionSpec("x"), mesh={"x": 4})["w"].sharding.shard_shape((8, 8))
    (2, 8)
    """
    with raised_in_all("load", lambda: processes_of(shardings, mesh=mesh)):
        limit = None if memory_limit is None else parse_size(memory_limit)
        headers = None if through else lambda: read_headers(path_of(path), rename)
        shardings = asked_for(headers, shardings, mesh)
        call = _LoadCall(path_of(path), shardings, dtype, rename, limit, local, Planner(machine))
        _devices(shardings)
    return call.run(progress) if through is None else call.run_through(through, progress)


@dataclass
class _LoadCall:
    """A call of `load` in a process."""

    path: Path
    shardings: Any
    dtype: Any
    rename: Rename
    limit: int | None
    local: bool
    planner: Planner

    def run(self, progress: bool | None) -> Any:
        devices = _devices(self.shardings)
        processes = sorted({device.process_index for device in devices})
        if jax.process_index() not in processes:
            return self._without_shards()
        meeting = Meeting(processes or [jax.process_index()], "load")
        with self._opened(meeting) as weights:
            return self._arrays(meeting, weights, progress)

    def _arrays(self, meeting: Meeting, weights: OpenWeights, progress: bool | None) -> Any:
        """The tensors of open files under the shardings."""
        files = weights.files
        tree, _ = meeting.agreed(lambda: target_tree(files, self.shardings, self.dtype))
        total = sum({tensor.stored.name: tensor.stored.nbytes for tensor in tree.tensors}.values())
        with bytes_bar("loading", total, progress) as advance:
            if self.local or len(meeting.processes) < 2:
                results = self._directly(meeting, weights, tree, advance)
            else:
                results = self._by_plan(meeting, weights, tree, advance)
        return jax.tree.unflatten(tree.structure, [results[place] for place in tree.places])

    def run_through(self, function: Callable[[Any], Any], progress: bool | None) -> Any:
        """Load the tensors that a function depends on, cut over all devices, and move its result.

        Operations that `through` may not have are refused before anything is read.
        """
        devices = _devices(self.shardings)
        processes = sorted({device.process_index for device in devices})
        if jax.process_index() not in processes:
            raise LeafError("", "this process owns no device of the shardings; call load with through= where they are")
        meeting = Meeting(processes, "load")
        with self._opened(meeting) as weights:
            tensors, of_chosen = self._inputs(meeting, weights, line_by_process(devices), function, progress)
        return PreparedThrough(tensors, self.shardings, of_chosen, donate=True).run()

    def _inputs(
        self, meeting: Meeting, weights: OpenWeights, line: Any, function: Callable[[Any], Any], progress: bool | None
    ) -> tuple[Any, Callable[[Any], Any]]:
        """The tensors that a function depends on, and the function of these alone."""
        files = weights.files

        def prepared() -> tuple[PreparedThrough, Callable[[Any], Any], dict[str, NamedSharding]]:
            whole = NamedSharding(line, PartitionSpec())
            names = list(filter(files.is_readable, files.names))
            every = target_tree(files, dict.fromkeys(names, whole), self.dtype, strict=False)
            shapes = {
                name: jax.ShapeDtypeStruct(files[name].shape, jnp.dtype(every.tensors[place].dtype))
                for name, place in zip(names, every.places, strict=True)
            }
            try:
                used = Backwards(TracedFunction(jax.make_jaxpr(function)(shapes))).used()
            except KeyError as error:
                name = error.args[0] if error.args else None
                if isinstance(name, str) and name not in shapes:
                    files[name]  # says why there is no such tensor
                raise
            chosen = {name: line_sharding(files[name].shape, line) for k, name in enumerate(names) if k in used}

            def of_chosen(tensors: Any) -> Any:
                rest = {name: jnp.zeros(shape.shape, shape.dtype) for name, shape in shapes.items()}
                return function({**rest, **tensors})

            placed = {
                name: jax.ShapeDtypeStruct(shapes[name].shape, shapes[name].dtype, sharding=sharding)
                for name, sharding in chosen.items()
            }
            return PreparedThrough(placed, self.shardings, of_chosen, donate=True), of_chosen, chosen

        (_, of_chosen, chosen), _ = meeting.agreed(prepared)
        types = (
            None
            if self.dtype is None or not isinstance(self.dtype, Mapping)
            else {name: kind for name, kind in self.dtype.items() if name in chosen}
        )
        of_sources = replace(self, shardings=chosen, dtype=self.dtype if types is None else types)
        return of_sources._arrays(meeting, weights, progress), of_chosen

    def _without_shards(self) -> Any:
        """The result in a process that owns none of the devices: arrays without shards."""
        tree = target_tree(read_headers(self.path, self.rename), self.shardings, self.dtype)
        arrays = [without_shards(t.stored.shape, jnp.dtype(t.dtype), t.sharding) for t in tree.tensors]
        return jax.tree.unflatten(tree.structure, [arrays[place] for place in tree.places])

    def _opened(self, meeting: Meeting) -> OpenWeights:
        """The files, opened and compared by all processes, or by each if each has its own; all must be equal."""
        if self.local or len(meeting.processes) == 1:
            weights, _ = meeting.agreed(lambda: open_weights(self.path))
        else:
            weights = open_together(self.path, meeting)
        try:
            request = [repr(self.dtype), self.limit, self.local, *_described(self.shardings)]
            headers = weights.files.to_json() if self.local else ""
            weights.files, notes = meeting.agreed(
                lambda: weights.files.renamed(self.rename),
                note=lambda files: digest_of_parts([*request, headers, *_names(files, self.rename)]),
            )
            if len(set(notes)) > 1:
                raise WeightsFileError(
                    str(self.path),
                    "",
                    f"the processes {list(meeting.processes)} load different files, or under different names, "
                    "shardings or options; make the same call everywhere",
                )
        except BaseException:
            weights.close()
            raise
        return weights

    # ------------------------------------------------------------------------------------ one process by itself

    def _directly(
        self, meeting: Meeting, weights: OpenWeights, tree: TargetTree, advance: Callable[[int], None]
    ) -> list[jax.Array]:
        """Load every tensor without other processes."""

        def act() -> list[jax.Array]:
            most = AHEAD_BYTES if self.limit is None else self.limit
            pieces = {k: tile_pieces(tree.tensors[k], most) for k in _in_file_order(tree)}
            results: dict[int, jax.Array] = {}
            with PieceReader(weights, list(chain.from_iterable(pieces.values())), self.limit) as reader:
                for k, of_tensor in pieces.items():
                    target = tree.tensors[k]
                    array = cast(put(target, of_tensor, reader), target.dtype)
                    results[k] = memory_copies.stored(array, target.sharding)
                    advance(target.stored.nbytes)
            return [results[k] for k in range(len(results))]

        return meeting.agreed(act)[0]

    # ------------------------------------------------------------------------------------ several, by plans

    def _by_plan(
        self, meeting: Meeting, weights: OpenWeights, tree: TargetTree, advance: Callable[[int], None]
    ) -> list[jax.Array]:
        """Load every tensor in parts read by all processes, moved by plans."""
        batches = in_batches(tree.tensors, line_of_landing(tree.tensors))
        reader, _ = meeting.agreed(lambda: PieceReader(weights, pieces_of(batches), self.limit))
        results: dict[int, jax.Array] = {}
        moving: deque[dict[int, jax.Array]] = deque()

        def arrive() -> None:
            for k, array in jax.block_until_ready(moving.popleft()).items():
                sharding = tree.tensors[k].sharding
                results[k] = memory_copies.stored(spread(array, memory_kinds.in_default(sharding)), sharding)

        of_batches = Meeting(meeting.processes, "load", channel="batches")  # in a thread of their own
        with reader, BatchesAhead(of_batches, batches, reader) as ahead:
            for batch in batches:
                arrays = ahead.next()
                if len(moving) == IN_FLIGHT:
                    arrive()
                moving.append(self._moved(batch, arrays, tree))
                del arrays
                advance(sum(array.nbytes for array in batch))
        while moving:
            arrive()
        return [results[k] for k in range(len(results))]

    def _moved(self, batch: Batch, arrays: list[jax.Array], tree: TargetTree) -> dict[int, jax.Array]:
        by_name: dict[str, list[int]] = {}
        for k, tensor in enumerate(tree.tensors):
            by_name.setdefault(tensor.stored.name, []).append(k)
        places: list[int] = []
        sources: list[jax.Array] = []
        shardings: list[Sharding] = []
        shapes: list[tuple[int, ...] | None] = []
        if batch[0].dtype is None:
            return self._small_moved(batch[0], arrays, by_name, tree)
        for cut, array in zip(batch, arrays, strict=True):
            (stored,) = cut.stored
            for k in by_name[stored.name]:
                target = tree.tensors[k]
                places.append(k)
                sources.append(cast(array, target.dtype, only_if_smaller=True))
                shardings.append(landing(target.sharding))
                shapes.append(cut.logical)
        single = len({id(source) for source in sources}) == len(sources)
        del arrays
        moved = move_tree(sources, shardings, self.planner, shapes, donate=single, agreed=True)
        return {k: cast(array, tree.tensors[k].dtype) for k, array in zip(places, moved, strict=True)}

    def _small_moved(
        self, small: CutArray, arrays: list[jax.Array], by_name: dict[str, list[int]], tree: TargetTree
    ) -> dict[int, jax.Array]:
        """Small tensors, from their bytes, which every process gathers."""
        whole = NamedSharding(small.layout.sharding.mesh, PartitionSpec())
        (moved,) = move_tree(arrays, [whole], self.planner, [None], donate=True, agreed=True)
        data = np.asarray(moved.addressable_shards[0].data)
        results, place = {}, 0
        for stored in small.stored:
            values = data[place : place + stored.nbytes].view(dtype_of(stored.dtype)).reshape(stored.shape)
            place += stored.nbytes
            for k in by_name[stored.name]:
                target = tree.tensors[k]
                results[k] = cast(from_host(values, memory_kinds.in_default(target.sharding)), target.dtype)
        return results


def cast(array: jax.Array, dtype: str, *, only_if_smaller: bool = False) -> jax.Array:
    """An array cast in place of its tiles."""
    if str(array.dtype) == dtype or (only_if_smaller and itemsize_of(dtype) >= array.dtype.itemsize):
        return array
    result: jax.Array = _CASTS.get((array.aval, array.sharding, dtype), lambda: _cast_of(array, dtype))(array)
    return result


# Compiled, by abstract value and sharding of the array, and the element type of the result.
_CASTS: Cache[Callable[[jax.Array], jax.Array]] = Cache(512)


def _cast_of(array: jax.Array, dtype: str) -> Callable[[jax.Array], jax.Array]:
    where = array.sharding
    mesh: Any = where.mesh if isinstance(where, NamedSharding) else line_of(where.device_set)
    with alone_on(mesh):
        jitted = jax.jit(lambda value: value.astype(jnp.dtype(dtype)), out_shardings=where)
        compiled: Callable[[jax.Array], jax.Array] = jitted.lower(array).compile()
        return compiled


def _names(files: WeightFiles, rename: Rename) -> list[str]:
    """What `rename` makes of the names, as text."""
    return [] if rename is None else [f"{name} {tensor.name}" for name, tensor in files.tensors.items()]


def _in_file_order(tree: TargetTree) -> list[int]:
    def place(k: int) -> tuple[int, int]:
        stored = tree.tensors[k].stored
        return stored.file, stored.start

    return sorted(range(len(tree.tensors)), key=place)


def _devices(shardings: Any) -> set[Any]:
    """The devices of a tree of shardings."""
    devices: set[Any] = set()
    for _, _, leaf in named_leaves(shardings, is_leaf=is_place)[0]:
        if isinstance(leaf, jax.Device):
            devices.add(leaf)
        elif is_place(leaf):
            sharding = leaf.sharding if isinstance(leaf, jax.ShapeDtypeStruct) else leaf
            devices |= getattr(sharding, "device_set", set())
    return devices


def _described(shardings: Any) -> Iterable[str]:
    """A tree of shardings as text, the same in all processes."""
    for name, _, leaf in named_leaves(shardings, is_leaf=is_place)[0]:
        yield f"{name} {leaf}"
        sharding = getattr(leaf, "sharding", leaf)
        if isinstance(sharding, Sharding):
            yield text_of(sharding)
