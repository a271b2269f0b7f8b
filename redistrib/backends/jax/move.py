"""A compiled move: a program of the tiles of devices; any array can come in as rows of a line of them, uncopied."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from redistrib.backends.jax.private import compiled_with
from redistrib.backends.jax.rows import line_of, over_tiles, rows_shape, rows_spec
from redistrib.backends.jax.sharding import alone_on
from redistrib.backends.jax.values import is_packed

_NO_OPTIONS: Mapping[str, Any] = {}


def rows(devices: Sequence[Any], tile: Sequence[int], dtype: Any) -> jax.ShapeDtypeStruct:
    """The array of rows that has a tile of this shape on each device; a scalar is the same on all."""
    sharding = NamedSharding(line_of(devices), rows_spec(len(tile)))
    return jax.ShapeDtypeStruct(rows_shape(len(devices), tile), dtype, sharding=sharding)


class CompiledMove:
    """A function of one device's tiles as a program of arrays over one mesh, as rows over a line of devices are.

    The constructor lowers the program. `compile` is a separate call, so that several programs may compile at the same
    time.

    Args:
        run: the function of one device's tiles, to a tile or a tuple of tiles.
        ins, outs: arguments and results, with shardings over one mesh.
        reused: the numbers of arguments that results overwrite.
    """

    def __init__(
        self,
        run: Callable[..., Any],
        ins: Sequence[jax.ShapeDtypeStruct],
        outs: Sequence[jax.ShapeDtypeStruct] | jax.ShapeDtypeStruct,
        reused: Sequence[int] = (),
    ) -> None:
        self._mesh, self._packed = jax.tree.leaves(outs)[0].sharding.mesh, any(is_packed(each.dtype) for each in ins)
        with alone_on(self._mesh):
            specs = tuple(each.sharding.spec for each in ins), jax.tree.map(lambda each: each.sharding.spec, outs)
            self._jitted = jax.jit(over_tiles(run, self._mesh, *specs), donate_argnums=tuple(reused))
            self._lowered = self._jitted.lower(*ins)
        self._executable: Any = None

    @property
    def text(self) -> str:
        """The lowered program."""
        return str(self._lowered.as_text())

    def compile(self, options: Mapping[str, Any] = _NO_OPTIONS) -> CompiledMove:
        """The compiled program; the first call compiles it, with these options of the compiler."""
        if self._executable is None:
            self._executable = compiled_with(self._lowered, options)
        return self

    @property
    def hlo(self) -> str:
        """The compiled program as text."""
        return str(self._executable.as_text())

    @property
    def scratch_bytes(self) -> int | None:
        """Bytes per device besides arguments and results, as the compiler reports them; None if it does not."""
        sizes = self._executable.memory_analysis()
        return None if sizes is None else int(sizes.temp_size_in_bytes)

    @property
    def added_bytes(self) -> int | None:
        """Bytes per device besides arguments: results and scratch, as the compiler reports them."""
        sizes = self._executable.memory_analysis()
        if sizes is None:
            return None
        return int(sizes.output_size_in_bytes - sizes.alias_size_in_bytes + sizes.temp_size_in_bytes)

    def __call__(self, *arrays: jax.Array) -> Any:
        """The results, of arguments with the shardings of `ins`.

        Under another sharding packed elements lose that mark, which an executable requires.
        """
        if not self._packed:
            return self._executable(*arrays)
        with alone_on(self._mesh):
            return self._jitted(*arrays)


def can_exist(shape: Sequence[int], itemsize: int) -> bool:
    """Whether a compiler can describe an array, together with its copies: it has fewer than 2^62 bytes."""
    return math.prod(shape) * itemsize < 2**62


def all_can_exist(arrays: Sequence[jax.ShapeDtypeStruct]) -> bool:
    """Whether a compiler can describe all these arrays; XLA ends the process at arrays of 2^63 bytes."""
    return all(can_exist(each.shape, np.dtype(each.dtype).itemsize) for each in arrays)
