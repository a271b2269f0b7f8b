"""Ours beside XLA's of one program, compiled for the same devices and run on the same arguments."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from bench.library import model_of
from bench.pairing import Part
from bench.programs.case import Case, shardings
from bench.summary import OURS, XLA


class Pair:
    """A program on given devices.

    Attributes:
        mesh: of JAX, over the first of them.
    """

    def __init__(self, case: Case, devices: Sequence[Any]) -> None:
        self.case, self.mesh = case, case.mesh_of(devices)
        self._values: Any = None
        self._wanted: Any = None

    def compile(self, options: dict[str, Any], part: Part, report: bool = True) -> dict[str, Callable[..., Any]]:
        """All, compiled, as functions of the results of `array`, ours first: XLA may end the process."""
        programs: dict[str, Callable[..., Any]] = {}
        for name, make in self.sides().items():
            part({"stage": name})
            start = time.perf_counter()
            try:
                compiled, entry, call = make(options)
                entry["compile_s"] = time.perf_counter() - start
                if report:
                    entry |= _counts(compiled)
                programs[name] = call
            except Exception as error:  # compilers raise any exception; it is that side's result
                entry = {"error": f"{type(error).__name__}: {error}"[:400]}
            part({name: entry})
        return programs

    def sides(self) -> dict[str, Callable[..., Any]]:
        """The compared sides, each with the function that compiles it."""
        return {OURS: self._ours, XLA: self._xla}

    def _ours(self, options: dict[str, Any]) -> tuple[Any, dict[str, Any], Callable[..., Any]]:
        f = self.case.distributed(self.mesh, cost_model=model_of(options["cost_model"]))
        compiled = f.lower().compile()
        entry = {
            "predicted": f.cost.received_bytes,
            "predicted_peak": f.compiled_memory,
            "opaque": [name for name, _, _ in f.opaque],
            "moves": len(f.program.moves),
        }
        return compiled, entry, lambda args: compiled(*jax.tree.leaves(args))

    def _xla(self, _: dict[str, Any]) -> tuple[Any, dict[str, Any], Callable[..., Any]]:
        compiled = self.case.jitted(self.mesh).lower(*self.case.args).compile()
        return compiled, {}, lambda args: compiled(*args)

    def array(self) -> Any:
        """The arguments where they begin."""
        return placed(self.case.values(), shardings(self.mesh, self.case.ins))

    def check(self, result: Any) -> str | None:
        """The fault of results, or None: every element on every device of this process is compared."""
        ends = jax.tree.leaves(_like(self.wanted, shardings(self.mesh, self.case.outs)))
        leaves = jax.tree_util.tree_leaves_with_path(self.wanted)
        for (path, wanted), found, to in zip(leaves, jax.tree.leaves(result), ends, strict=True):
            if not found.sharding.is_equivalent_to(to, wanted.ndim):
                return f"result {jax.tree_util.keystr(path)}: sharding {found.sharding}, wanted {to}"
        return self.away(result)

    @property
    def wanted(self) -> Any:
        """The results of the undistributed function."""
        if self._wanted is None:
            with jax.default_device(jax.local_devices()[0]):
                self._wanted = jax.tree.map(np.asarray, self.case.undistributed(*self.case.values()))
        return self._wanted

    def away(self, result: Any) -> str | None:
        """Which elements are not those of the undistributed function, or None."""
        for path, wanted, found in zip(
            [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(self.wanted)],
            *map(jax.tree.leaves, (self.wanted, result)),
            strict=True,
        ):
            most = self.case.tolerance * max(float(np.max(np.abs(wanted))), 1e-30)
            for shard in found.addressable_shards:
                away = float(np.max(np.abs(np.asarray(shard.data) - wanted[shard.index])))
                if not away <= most:
                    return f"result {path} is away by {away:.3g} on device {shard.device.id}, {most:.3g} at most"
        return None


def placed(values: Any, prefix: Any) -> Any:
    """Arrays of values, laid out as a tree of shardings, or a prefix of one, says."""

    def put(value: Any, to: Any) -> Any:
        return jax.make_array_from_callback(value.shape, to, lambda index: value[index])

    return jax.tree.map(put, values, _like(values, prefix))


def _like(tree: Any, prefix: Any) -> Any:
    """A tree of shardings from a prefix of it."""
    spread = [
        [one] * len(jax.tree.leaves(below))
        for one, below in zip(jax.tree.leaves(prefix), jax.tree.structure(prefix).flatten_up_to(tree), strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(tree), [one for several in spread for one in several])


def _counts(compiled: Any) -> dict[str, Any]:
    """Collectives, bytes that all devices receive, bytes that a device holds."""
    from redistrib.backends.jax.profiling.inspect import inspect

    found, memory = inspect(compiled), compiled.memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    return {"received": found.received_bytes, "kinds": dict(found.kinds), "exact": found.exact, "peak": held}
