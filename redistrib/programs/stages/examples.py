"""The roles of a program's values, found from the inputs that have examples."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from redistrib.errors import ProgramError
from redistrib.programs.ir.graph import CountedStep
from redistrib.programs.ir.inline import inlined
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.program import Compute, Move, Program, Value
from redistrib.programs.ir.record import Sums
from redistrib.programs.ir.value import fresh
from redistrib.programs.stages.fission import fission, reads_complete_sums
from redistrib.programs.stages.loops import loop_on_examples
from redistrib.programs.stages.roles import BatchedLoop, BatchedProgram, BatchStep, Role, RoleKind, as_carried

_WIDER = {"float32": ("bfloat16", "float16"), "float64": ("bfloat16", "float16", "float32")}


def batch_of(
    program: Program,
    batch: Mapping[str, int],
    *,
    passes_sums: bool = False,
    sums: Collection[str] = (),
    finals: Collection[str] = (),
    unnamed: dict[str, int] | None = None,
) -> BatchedProgram:
    """The roles of a program's values.

    Args:
        program: a program; its cuts and moves are ignored.
        batch: for every input with examples the dimension that runs over them.
        passes_sums: whether what is linear in sums over examples is such a sum too, each microbatch's its part; else
            it is computed once, from the complete sums.
        sums: inputs that are sums over examples.
        finals: inputs that are computed from complete sums.
        unnamed: gets the inputs without examples of which an operation reads a row for each, with the dimension.

    Raises:
        ProgramError: if examples are combined except by a sum at the end, or an input has no such dimension.
    """
    flat = inlined(program)
    roles: dict[str, Role] = {}
    for value in flat.inputs:
        kind: RoleKind = "summed" if value.name in sums else "final" if value.name in finals else "constant"
        roles[value.name] = Role("batched", batch[value.name]) if value.name in batch else Role(kind)
    size = _size(flat, batch) if batch or not finals else 1
    called: dict[str, str] = {}
    rows = _Steps(roles, dict(flat.values), passes_sums, {} if unnamed is None else unnamed)
    for op in flat.ops:
        match op:
            case Move():
                called[op.out.name] = called.get(op.value, op.value)
            case Compute():
                ins = tuple((array, called.get(name, name)) for array, name in op.ins)
                rows.add(replace(op, ins=ins))
    outputs = tuple(called.get(name, name) for name in flat.outputs)
    return BatchedProgram(flat.inputs, tuple(rows.steps), roles, outputs, size, rows.values, rows.rows)


def sums_of(program: Program, batch: Mapping[str, int]) -> set[str]:
    """The values of a program of examples alone that are not computed example by example: sums, maxima, sorted ones.

    Args:
        program: a program; its cuts and moves are ignored.
        batch: as `batch_of` takes it.
    """
    flat = inlined(program)
    roles = {v.name: Role("batched", batch[v.name]) if v.name in batch else Role("constant") for v in flat.inputs}
    rows, sums = _Steps(roles, dict(flat.values), False, {}), set[str]()
    for op in flat.ops:
        if not isinstance(op, Compute):
            continue
        try:
            rows.add(op)
            found = {value.name for _, value in op.outs if roles[value.name].kind in ("summed", "final")}
        except ProgramError:
            found = {value.name for _, value in op.outs}
        for name in found:  # to its readers it is a value from before the call
            roles[name] = Role("constant")
            rows.makers.pop(name, None)
        sums |= found
    return sums


def _size(program: Program, batch: Mapping[str, int]) -> int:
    inputs = {value.name: value for value in program.inputs}
    sizes = {}
    for name, dim in batch.items():
        if name not in inputs:
            raise ProgramError("", name, "Batch", f"there is no such input; there are {', '.join(inputs)}")
        shape = inputs[name].type.global_shape
        if not 0 <= dim < len(shape):
            raise ProgramError("", name, "Batch", f"{dim} is no dimension of an array of shape {shape}")
        sizes[name] = shape[dim]
    if not sizes:
        raise ProgramError("", "", "Batch", "no input has examples; name those that do, each with its dimension")
    if len(set(sizes.values())) > 1:
        # a dimension may be made of examples and their elements, as the rows of a flattened array are
        smallest = min(sizes.values())
        odd = next((name for name, size in sizes.items() if size % smallest), None)
        if odd is not None:
            raise ProgramError("", odd, "Batch", f"inputs have {sizes} examples, and the smallest divides not all")
    return min(sizes.values())


@dataclass
class _Steps:
    """The operations so far.

    An operation that reads a constant along the examples, a bias or random bits, reads rows: the operations that
    compute the constant are added a second time, and are cut and run with the examples.

    Attributes:
        roles: of every value.
        values: every value by its name.
        passes_sums, unnamed: see `batch_of`.
        steps: the operations, in order.
        makers: for every result the operation that makes it.
        rows: for constants of which there are rows, with the dimension of the examples, the name of the rows.
    """

    roles: dict[str, Role]
    values: dict[str, Value]
    passes_sums: bool
    unnamed: dict[str, int]
    steps: list[BatchStep] = field(default_factory=list)
    makers: dict[str, Compute] = field(default_factory=dict)
    rows: dict[tuple[str, int], str] = field(default_factory=dict)

    def add(self, op: Compute) -> None:
        """Add an operation, after the rows that it reads."""
        loop = self._loop(op)
        if loop is None:
            steps: Sequence[BatchStep] = (self._step(op),)
        elif isinstance(loop.loop, ProgramError):
            steps = (self._by_factors(op, loop.loop),)
        elif loop.loop is not None and loop.kind == "batched" and reads_complete_sums(loop.loop):
            steps = fission(loop, loop.loop, self._new_value)
        else:
            steps = (loop,)
        for step in steps:
            self.steps.append(step)
            self.roles |= dict(_roles_of(step))
        self.makers |= {value.name: op for _, value in op.outs}

    def _new_value(self, like: Value) -> Value:
        """A value of another name."""
        value = replace(like, name=fresh(f"{like.name}.sums", {*self.values}))
        self.values[value.name] = value
        return value

    def _step(self, op: Compute) -> BatchStep:
        over = dict.fromkeys(_examples(op, op.parts[0].nest, self.roles)) if len(op.parts) == 1 else {}
        if len(over) == 1:
            op = self._reading_rows(op, *over) or op
        return self._passing(op) or _step(op, self.roles)

    def _by_factors(self, op: Compute, refused: ProgramError) -> BatchStep:
        """A loop whose steps cannot be cut apart, if nothing has to be moved in them."""
        try:
            return self._step(op)._replace(loop=refused)
        except ProgramError as error:
            raise refused if refused.operation == op.name else error from None

    def _loop(self, op: Compute) -> BatchStep | None:
        """A counted loop on examples, or on sums over them; with an error in the place of its step if it cannot be."""
        step = getattr(op.parts[0].nest.body, "step", None) if len(op.parts) == 1 else None
        kinds = {self.roles[name].kind for _, name in op.ins}
        if not isinstance(step, CountedStep) or not kinds & {"batched", "summed", "final"}:
            return None
        try:
            loop, examples = loop_on_examples(op, step, self, batch_of)
        except ProgramError as error:
            return BatchStep(op, "", "batched", loop=error) if "batched" in kinds else None
        if "batched" not in kinds:
            return BatchStep(op, "", "final", loop=loop)
        ins = dict(op.ins)
        for array, dim in examples.items():
            if self.roles[ins[array]].kind == "constant":
                ins[array] = self.rows[ins[array], dim]
        return BatchStep(replace(op, ins=tuple(ins.items())), "", "batched", loop=loop)

    def _passing(self, op: Compute) -> BatchStep | None:
        """An operation on sums over examples that is linear in them, so that its results are sums too."""
        if not self.passes_sums or len(op.parts) != 1:
            return None
        nest, operands = op.parts[0].nest, dict(op.ins)
        kinds = [self.roles[operands[access.array]].kind for access in nest.reads]
        if nest.effectful or {"batched", "rows", "final"} & {*kinds}:
            return None
        summed = {k for k, kind in enumerate(kinds) if kind == "summed"}
        if self._widens(op):
            op = replace(op, parts=(replace(op.parts[0], nest=replace(nest, linear=((0,),))),))
        group = next((g for g, reads in enumerate(op.parts[0].nest.linear) if {*reads} == summed), None)
        return None if group is None else BatchStep(op, "", "batched", group)

    def _widens(self, op: Compute) -> bool:
        """Whether an operation converts floats to others that have all of them: sums lose nothing by it."""
        if op.record.sums is not Sums.CONVERTED or len(op.ins) != 1:
            return False
        before, after = (self.values[name].dtype for name in (op.ins[0][1], op.outs[0][1].name))
        return before in _WIDER.get(after, ())

    def _reading_rows(self, op: Compute, over: str) -> Compute | None:
        """The operation with rows in the place of constants along an iteration dimension; None if there are none."""
        nest, operands = op.parts[0].nest, dict(op.ins)
        for access in nest.reads:
            dim = next((k for k, names in enumerate(access.dims) if over in names), None)
            if dim is not None and self.roles[operands[access.array]].kind == "constant":
                rows = self.made_of_rows(operands[access.array], dim) if access.dims[dim][0] == over else None
                if rows is None:
                    return None
                operands[access.array] = rows
        return replace(op, ins=tuple(operands.items()))

    def made_of_rows(self, name: str, dim: int) -> str | None:
        """The name of the rows of a constant along a dimension; None if it has none."""
        op = self.makers.get(name)
        if op is None:
            self.unnamed[name] = dim
        if (name, dim) in self.rows or op is None or len(op.parts) != 1:
            return self.rows.get((name, dim))
        nest, array = op.parts[0].nest, next(array for array, value in op.outs if value.name == name)
        over = next(access for access in nest.writes if access.array == array).dims[dim]
        again = self._reading_rows(op, over[0]) if over and over[0] not in nest.whole else None
        if again is None:
            return None
        new = fresh(f"{name}.rows", {*self.values})
        value = replace(self.values[name], name=new)
        self.values[new], self.roles[new] = value, Role("rows", dim)
        self.steps.append(BatchStep(replace(again, outs=((array, value),)), over[0], "constant"))
        self.rows[name, dim] = new
        return new


def _step(op: Compute, roles: Mapping[str, Role]) -> BatchStep:
    if len(op.parts) != 1:
        raise ProgramError(op.name, "", "Batch", "fused operations are not taken apart; give each nest its own")
    nest, operands = op.parts[0].nest, dict(op.ins)
    if nest.effectful:
        raise ProgramError(
            op.name, "", "Effect", "every microbatch would have the effect of the operation once, in the order of the "
            "stages; leave the operation out, and show a result of the function in its place",
        ).at(op.source)  # fmt: skip
    kinds = {roles[name].kind for name in operands.values()}
    if "batched" not in kinds:
        return BatchStep(op, "", "final" if kinds & {"summed", "final"} else "constant")
    if kinds & {"summed", "final"}:
        raise ProgramError(
            op.name, "", "Batch", "it reads a sum over all examples beside examples, so microbatches would wait for "
            "each other; combine the finished sums and gradients at the end (the gradient of a sum, over the count), "
            "or compute this sum before the call and pass it as an argument without examples",
        ).at(op.source)  # fmt: skip
    over = dict.fromkeys(_examples(op, nest, roles))
    if len(over) > 1:
        raise ProgramError(op.name, "", "Batch", f"examples run along {', '.join(over)}, so each meets all others")
    (name,) = over
    if name in nest.whole:
        raise ProgramError(op.name, "", "Batch", f"{name!r} runs over the examples and must stay whole")
    for access in nest.reads:
        if name in access.names and roles[operands[access.array]].kind == "constant":
            raise ProgramError(
                op.name, operands[access.array], "Batch", "it has a row for each example, and is not named as an input "
                "with examples",
            )  # fmt: skip
    return BatchStep(op, name, "batched")


def _examples(op: Compute, nest: Nest, roles: Mapping[str, Role]) -> Iterator[str]:
    operands = dict(op.ins)
    for access in nest.reads:
        role = roles[operands[access.array]]
        if role.kind in ("batched", "rows"):
            names = access.dims[role.dim]
            if not names:
                why = (
                    "it reads the examples whole, so that microbatches cannot take them apart; compute it before the "
                    "function, or leave the array out of batch="
                )
                raise ProgramError(op.name, operands[access.array], "Batch", why)
            yield names[0]


def _roles_of(step: BatchStep) -> Iterator[tuple[str, Role]]:
    results = dict(step.op.outs)
    if isinstance(step.loop, BatchedLoop):
        loop = step.loop
        for k, (access, output) in enumerate(zip(step.nest.writes, loop.batch.outputs, strict=True)):
            role = as_carried(loop.batch.roles[output]) if step.kind == "batched" else Role(step.kind)
            is_entry = k >= loop.form.carried and role.kind == "batched"
            yield results[access.array].name, Role("batched", role.dim + 1) if is_entry else role
        return
    for number, access in enumerate(step.nest.writes):
        if access.array not in results:
            continue
        name = results[access.array].name
        if step.linear is not None:
            yield name, Role("summed")
            continue
        dims = [k for k, names in enumerate(access.dims) if step.batch and step.batch in names]
        if step.kind != "batched":
            yield name, Role(step.kind)
        elif dims and access.dims[dims[0]][0] == step.batch:
            yield name, Role("batched", dims[0])
        elif not dims and step.nest.is_summed(number, step.batch):
            yield name, Role("summed")
        elif number in step.nest.replicated:  # every microbatch makes it, and makes the same
            yield name, Role("constant")
        else:
            raise ProgramError(
                step.op.name, name, "Batch", "examples are combined, and not by a sum, or lie in a minor factor of a "
                "dimension; make them the major one",
            )  # fmt: skip
