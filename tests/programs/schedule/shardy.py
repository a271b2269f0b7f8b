"""What Shardy's registry of sharding rules says of an operation: run from jaxlib's MLIR bindings, and read.

A factor is a set of places, each a dimension of an operand or result and the elements that one step along the factor
skips there. A factor that is summed is `"sum"`; factors that must be whole are left out, and so are those of size 1.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any, NamedTuple

import jax
from jaxlib.mlir.passmanager import PassManager

from redistrib.programs.ir.graph import Array, Operation
from redistrib.programs.run.region import TracedRange

PASS = "builtin.module(func.func(sdy-populate-op-sharding-rules))"
RULE = re.compile(r"#sdy.op_sharding_rule<\((.*?)\)->\((.*?)\)(?: \{(.*?)\})?(.*)>$")


class Factor(NamedTuple):
    """A factor of an operation.

    Attributes:
        places: operand or result, its number, the dimension, the stride.
        size: steps along it.
        kind: `"pass"` or `"sum"`.
    """

    places: frozenset[tuple[str, int, int, int]]
    size: int
    kind: str

    def __str__(self) -> str:
        where = (f"{side}{k}.{dim}" + (f"/{stride}" if stride > 1 else "") for side, k, dim, stride in self.places)
        return f"{self.kind} of {self.size} in {' '.join(sorted(where))}"


def ours(operation: Operation) -> set[Factor]:
    """The factors of a nest that may be cut."""
    nest, places = operation.nest, defaultdict(set)
    for side, accesses in (("in", nest.reads), ("out", nest.writes)):
        for k, access in enumerate(accesses):
            for dim, names in enumerate(access.dims):
                stride = 1
                for name in reversed(names):
                    places[name].add((side, k, dim, stride))
                    stride *= nest.size(name)
    return {
        Factor(frozenset(found), nest.size(name), "sum" if name in nest.combiner else "pass")
        for name, found in places.items()
        if nest.size(name) > 1 and name not in nest.whole
    }


def theirs(operation: Operation, arrays: dict[str, Array]) -> set[Factor] | None:
    """The same of what the operation is lowered to; None where the registry has no rule for any part of that."""
    forms = [jax.ShapeDtypeStruct(arrays[name].shape, arrays[name].dtype) for name in operation.ins]
    at = {name: TracedRange(over.start, len(over)) for name, over in operation.nest.ranges}
    run = jax.jit(lambda *tiles: operation.nest.body(at, *tiles))  # type: ignore[misc]
    module = run.lower(*forms).compiler_ir("stablehlo")
    with module.context:
        PassManager.parse(PASS).run(module.operation)
        functions = {str(f.attributes["sym_name"]).strip('"'): f for f in module.body.operations}
        return _Reader(functions).read()


class _Reader:
    """Factors joined through the values between operations."""

    def __init__(self, functions: dict[str, Any]) -> None:
        self.functions = functions
        self.above: dict[Any, Any] = {}
        self.kinds: dict[Any, set[str]] = defaultdict(set)
        self.size: dict[Any, int] = {}
        self.count = 0

    def read(self) -> set[Factor] | None:
        block = self.functions["main"].regions[0].blocks[0]
        args = [("in", k) for k in range(len(block.arguments))]
        found = self.walk(block, args)
        if not self.above:
            return None
        outs: dict[Any, list[int]] = defaultdict(list)
        for k, value in enumerate(found):
            outs[value].append(k)
        joined: dict[Any, set[Any]] = defaultdict(set)
        kinds: dict[Any, set[str]] = defaultdict(set)
        for node in list(self.above):
            value, dim, stride = node
            root = self.root(node)
            kinds[root] |= self.kinds[node]
            if value[0] == "in":
                joined[root].add((*value, dim, stride))
            joined[root] |= {("out", k, dim, stride) for k in outs.get(value, ())}
        whole = {"need_replication", "permutation"}
        return {
            Factor(frozenset(places), self.size[root], "sum" if "reduction" in kinds[root] else "pass")
            for root, places in joined.items()
            if places and self.size[root] > 1 and not kinds[root] & whole
        }

    def walk(self, block: Any, args: list[Any], outer: dict[Any, Any] | None = None) -> list[Any]:
        """What a block returns, called with values; a branch reads those around it too."""
        known = {**(outer or {}), **dict(zip(block.arguments, args, strict=True))}
        for each in block.operations:
            op = each.operation
            ins = [known[value] for value in op.operands]
            if op.name in ("func.return", "stablehlo.return"):
                return ins
            if op.name == "func.call":
                inner = self.functions[str(op.attributes["callee"]).removeprefix("@")]
                known.update(zip(op.results, self.walk(inner.regions[0].blocks[0], ins), strict=True))
                continue
            if op.name == "stablehlo.optimization_barrier":  # its results are its operands
                known.update(zip(op.results, ins, strict=True))
                continue
            if op.name == "stablehlo.case":  # by platform, where all branches return what they read
                branches = [self.walk(region.blocks[0], [], known) for region in op.regions]
                if all(branch == branches[0] for branch in branches):
                    known.update(zip(op.results, branches[0], strict=True))
                    continue
            outs = []
            for value in op.results:
                self.count += 1
                outs.append(("value", self.count))
                known[value] = outs[-1]
            if "sdy.sharding_rule" in op.attributes:
                self.add(str(op.attributes["sdy.sharding_rule"]), ins, outs)
        raise AssertionError("a block without an end")

    def add(self, text: str, ins: list[Any], outs: list[Any]) -> None:
        match = RULE.match(text)
        assert match, text
        sizes = {name: int(size) for name, size in re.findall(r"(\w+)=(\d+)", match[3] or "")}
        kinds: dict[str, set[str]] = defaultdict(set)
        for kind, names in re.findall(r"(\w+)=\{(.*?)\}", match[4]):
            for name in names.split(", "):
                kinds[name].add(kind)
        first: dict[str, Any] = {}
        for value, dims in zip([*ins, *outs], re.findall(r"\[(.*?)\]", f"{match[1]}, {match[2]}"), strict=True):
            for dim, entry in enumerate(dims.split(", ") if dims else []):
                stride = 1
                for name in reversed(re.findall(r"[a-z](?:_\d+)?", entry)):
                    node = (value, dim, stride)
                    self.above.setdefault(node, node)
                    self.size[self.root(node)] = sizes[name]
                    self.kinds[node] |= kinds[name]
                    self.above[self.root(node)] = self.root(first.setdefault(name, node))
                    stride *= sizes[name]

    def root(self, node: Any) -> Any:
        while self.above[node] != node:
            node = self.above[node]
        return node
