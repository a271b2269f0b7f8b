"""A program by ours and by XLA, compiled for the same devices and run on the same arguments."""

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
    """A program on JAX devices.

    Attributes:
        mesh: the mesh over the first devices.
    """

    def __init__(self, case: Case, devices: Sequence[Any]) -> None:
        self.case, self.mesh = case, case.mesh_of(devices)
        self._expected: Any = None

    def compile(self, options: dict[str, Any], part: Part, report: bool = True) -> dict[str, Callable[..., Any]]:
        """Compile all sides, ours first, since XLA may kill the process; return functions of the result of `array`."""
        programs: dict[str, Callable[..., Any]] = {}
        for name, compile_side in self.sides().items():
            part({"stage": name})
            start = time.perf_counter()
            try:
                compiled, entry, call = compile_side(options)
                entry["compile_s"] = time.perf_counter() - start
                if report:
                    entry |= _counts(compiled)
                programs[name] = call
            except Exception as error:  # a compiler may raise any exception; it is that side's result
                entry = {"error": f"{type(error).__name__}: {error}"[:400]}
            part({name: entry})
        return programs

    def sides(self) -> dict[str, Callable[..., Any]]:
        """The functions that compile the sides, by name."""
        return {OURS: self._ours, XLA: self._xla}

    def _ours(self, options: dict[str, Any]) -> tuple[Any, dict[str, Any], Callable[..., Any]]:
        f = self.case.distributed(self.mesh, machine=model_of(options["cost_model"]))
        compiled = f.lower().compile()
        entry = {
            "predicted": f.compiled_received_bytes,
            "predicted_peak": f.compiled_memory,
            "opaque": [name for name, _, _ in f.opaque],
            "moves": len(f.program.moves),
        }
        return compiled, entry, lambda args: compiled(*jax.tree.leaves(args))

    def _xla(self, _: dict[str, Any]) -> tuple[Any, dict[str, Any], Callable[..., Any]]:
        compiled = self.case.jitted(self.mesh).lower(*self.case.args).compile()
        return compiled, {}, lambda args: compiled(*args)

    def array(self) -> Any:
        """The arguments, laid out by `ins`."""
        return placed(self.case.values(), shardings(self.mesh, self.case.ins))

    def check(self, result: Any) -> str | None:
        """The first error of the results, or None. Every element on every device of this process is compared."""
        ends = jax.tree.leaves(_like(self.expected, shardings(self.mesh, self.case.outs)))
        leaves = jax.tree_util.tree_leaves_with_path(self.expected)
        for (path, expected), array, to in zip(leaves, jax.tree.leaves(result), ends, strict=True):
            if not array.sharding.is_equivalent_to(to, expected.ndim):
                return f"result {jax.tree_util.keystr(path)}: sharding {array.sharding}, expected {to}"
        return self.difference(result)

    @property
    def expected(self) -> Any:
        """The results of the undistributed function."""
        if self._expected is None:
            with jax.default_device(jax.local_devices()[0]):
                self._expected = jax.tree.map(np.asarray, self.case.undistributed(*self.case.values()))
        return self._expected

    def difference(self, result: Any) -> str | None:
        """The first result that differs from that of the undistributed function by more than the tolerance, or None."""
        leaves = jax.tree_util.tree_leaves_with_path(self.expected)
        for (path, expected), array in zip(leaves, jax.tree.leaves(result), strict=True):
            name, most = jax.tree_util.keystr(path), self.case.tolerance * max(float(np.max(np.abs(expected))), 1e-30)
            for shard in array.addressable_shards:
                error = float(np.max(np.abs(np.asarray(shard.data) - expected[shard.index])))
                if not error <= most:
                    return f"result {name} differs by {error:.3g} on device {shard.device.id}, {most:.3g} at most"
        return None


def placed(values: Any, prefix: Any) -> Any:
    """Arrays of `values`, laid out by a tree of shardings or a prefix of one."""

    def put(value: Any, to: Any) -> Any:
        return jax.make_array_from_callback(value.shape, to, lambda index: value[index])

    return jax.tree.map(put, values, _like(values, prefix))


def _like(tree: Any, prefix: Any) -> Any:
    """A tree of shardings of the structure of `tree`, from a prefix."""
    subtrees = jax.tree.structure(prefix).flatten_up_to(tree)
    pairs = zip(jax.tree.leaves(prefix), subtrees, strict=True)
    leaves = [sharding for sharding, subtree in pairs for _ in jax.tree.leaves(subtree)]
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def _counts(compiled: Any) -> dict[str, Any]:
    """Collectives, bytes received by all devices, and peak bytes of a device."""
    from redistrib.explain.profiling.inspect import inspect

    report, memory = inspect(compiled), compiled.memory_analysis()
    peak = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    return {"received": report.received_bytes, "kinds": dict(report.kinds), "exact": report.exact, "peak": peak}
