"""What `inspect` reads off compiled programs, held against programs whose traffic is known by hand."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from redistrib.errors import HloTextError
from redistrib.explain.profiling.hlo import parse_module, replica_groups
from redistrib.explain.profiling.inspect import inspect

BOTH = ("x", "y")


def mesh_of(*sizes):
    devices = np.array(jax.devices()[: int(np.prod(sizes))]).reshape(sizes)
    return Mesh(devices, tuple("xyz"[: len(sizes)]), axis_types=(AxisType.Auto,) * len(sizes))


def compiled(body, source, target, shape, mesh=None, dtype=jnp.float32):
    mesh = mesh or mesh_of(2, 4)
    mapped = jax.shard_map(body, mesh=mesh, in_specs=source, out_specs=target, check_vma=False)
    argument = jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, source))
    return jax.jit(mapped).lower(argument).compile()


def only(program):
    (collective,) = inspect(program).collectives
    return collective


def test_all_gather_over_one_axis():
    program = compiled(lambda t: lax.all_gather(t, "y", axis=0, tiled=True), P("y"), P(), (64, 8))
    gather = only(program)
    assert gather.kind == "all-gather"
    assert gather.groups == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert [str(a) for a in gather.operands] == ["f32[16,8]"]
    assert [str(a) for a in gather.results] == ["f32[64,8]"]
    assert inspect(program).received_per_device == 3 * 16 * 8 * 4
    assert str(inspect(program).largest_array()) == "f32[64,8]"


def test_all_gather_over_listed_groups():
    groups = [[0, 3, 5, 6], [1, 2, 4, 7]]
    program = compiled(lambda t: lax.all_gather(t, BOTH, axis_index_groups=groups), P(BOTH), P(), (64, 8))
    assert only(program).groups == ((0, 3, 5, 6), (1, 2, 4, 7))


def test_all_to_all_counts_its_own_share_as_kept():
    program = compiled(lambda t: lax.all_to_all(t, BOTH, 1, 0, tiled=True), P(BOTH), P(None, BOTH), (64, 64))
    exchange = only(program)
    assert exchange.kind == "all-to-all"
    assert exchange.groups == (tuple(range(8)),)
    assert inspect(program).received_per_device == Fraction(7, 8) * 8 * 64 * 4


def test_permute_counts_only_devices_that_move():
    pairs = [(0, 1), (1, 0), (2, 2), (3, 4)]
    program = compiled(lambda t: lax.ppermute(t, BOTH, pairs), P(BOTH), P(BOTH), (64, 64))
    permute = only(program)
    assert permute.pairs == ((0, 1), (1, 0), (2, 2), (3, 4))
    assert permute.moves == ((0, 1), (1, 0), (3, 4))
    assert inspect(program).received_per_device == Fraction(3, 8) * 8 * 64 * 4


def test_all_reduce_and_reduce_scatter():
    def body(t):
        return lax.psum_scatter(t, "x", tiled=True) + lax.psum(t, "y")[:4]

    report = inspect(compiled(body, P(BOTH), P(BOTH), (64, 64)))
    operand = 8 * 64 * 4
    assert {c.kind: c.received_bytes for c in report.collectives} == {
        "all-reduce": 8 * 2 * 3 * operand // 4,
        "reduce-scatter": 8 * operand // 2,
    }
    assert report.scratch is not None and report.scratch >= operand


def test_loop_multiplies_by_its_trips():
    ring = [(d, (d + 1) % 8) for d in range(8)]

    def body(t):
        return lax.fori_loop(0, 5, lambda _, c: lax.ppermute(c, BOTH, ring) + 1, t)

    program = compiled(body, P(BOTH), P(BOTH), (64, 64))
    assert only(program).times == 5
    assert inspect(program).kinds == {"collective-permute": 5}
    assert inspect(program).received_per_device == 5 * 8 * 64 * 4


def test_loop_of_unknown_length_is_said_to_be_inexact():
    ring = [(d, (d + 1) % 8) for d in range(8)]

    def body(t):
        return lax.while_loop(lambda c: c[0, 0] < 9, lambda c: lax.ppermute(c, BOTH, ring) + 1, t)

    report = inspect(compiled(body, P(BOTH), P(BOTH), (64, 64)))
    assert report.kinds == {"collective-permute": 1}
    assert not report.exact


@pytest.mark.parametrize(
    ("sizes", "source", "target", "kept"),
    [
        ((2, 4), P(("x", "y")), P("x"), "x"),
        ((2, 4), P(("y", "x")), P("y"), "y"),
        ((2, 3, 4), P(("x", "y", "z")), P("x"), "x"),
        ((2, 3, 4), P(("y", "x", "z")), P(("y", "x")), "yx"),
        ((2, 3, 4), P("x", ("z", "y")), P("x"), "x"),
        ((2, 3, 4), P("y", ("z", "x")), P("y", "z"), "yz"),
    ],
)
def test_groups_that_xla_writes_for_its_own_gathers(sizes, source, target, kept):
    """XLA gathers over the axes that the target drops: the members of a group agree on all others."""
    mesh = mesh_of(*sizes)
    argument = jax.ShapeDtypeStruct((48, 48), jnp.float32, sharding=NamedSharding(mesh, source))
    program = jax.jit(lambda x: x, out_shardings=NamedSharding(mesh, target)).lower(argument).compile()
    gather = only(program)
    assert gather.kind == "all-gather"
    numbers = np.arange(mesh.size).reshape(sizes)
    places = {int(d): dict(zip("xyz", np.argwhere(numbers == d)[0], strict=False)) for d in numbers.flat}
    expected = {}
    for device, place in places.items():
        expected.setdefault(tuple(place[name] for name in kept), set()).add(device)
    assert {frozenset(group) for group in gather.groups} == {frozenset(group) for group in expected.values()}


def group_lines(written, devices):
    module = parse_module(
        f"HloModule m, num_partitions={devices}\n\nENTRY %main (p: f32[8]) -> f32[8] {{\n"
        "  %p = f32[8]{0} parameter(0)\n"
        f"  ROOT %a = f32[8]{{0}} all-to-all(%p), channel_id=1, replica_groups={written}, dimensions={{0}}\n}}\n"
    )
    return replica_groups(module.computations["main"].root, devices)


@pytest.mark.parametrize(
    ("written", "groups"),
    [
        ("{{0,1},{2,3}}", ((0, 1), (2, 3))),
        ("{}", ((0, 1, 2, 3),)),
        ("[2,2]<=[4]", ((0, 1), (2, 3))),
        ("[2,2]<=[2,2]T(1,0)", ((0, 2), (1, 3))),
        ("mesh['a'=2,'b'=2] {'a'}", ((0, 2), (1, 3))),
        ("mesh['a'=2,'b'=2] {'b','a'}", ((0, 2, 1, 3),)),
        ("mesh['a'=4] {'a':(2)2}", ((0, 1), (2, 3))),
        ("mesh['a'=4] {'a':(1)2}", ((0, 2), (1, 3))),
        ("mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'b'}", ((0, 2), (1, 3))),
        ("mesh['a'=2,'b'=2], device_ids=(3,2,1,0) {'b'}", ((3, 2), (1, 0))),
    ],
)
def test_every_way_to_write_groups(written, groups):
    assert group_lines(written, 4) == groups


# As the TPU compiler writes it: tiled layouts, starts and dones, a loop without its trip count.
TPU = """HloModule jit_f, is_scheduled=true, num_partitions=8

%wrapped (p: f32[16,8]) -> f32[64,8] {
  %p = f32[16,8]{1,0:T(8,128)} parameter(0)
  ROOT %g = f32[64,8]{1,0:T(8,128)S(1)} all-gather(%p), channel_id=3, replica_groups=[2,4]<=[8], dimensions={0}
}

%body (s: (s32[], f32[16,8])) -> (s32[], f32[16,8]) {
  %one = s32[]{:T(128)} constant(1)
  %s = (s32[]{:T(128)}, f32[16,8]{1,0:T(8,128)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%s), index=0
  %t = f32[16,8]{1,0:T(8,128)} get-tuple-element(%s), index=1
  %cp = (f32[16,8]{1,0:T(8,128)}, f32[16,8]{1,0:T(8,128)S(1)}, u32[]{:S(2)}) collective-permute-start(%t), PAIRS
  %kept = s32[]{:T(128)S(6)} copy(%i)
  %next = s32[]{:T(128)} add(%kept, %one)
  %done = f32[16,8]{1,0:T(8,128)S(1)} collective-permute-done(%cp)
  ROOT %r = (s32[]{:T(128)}, f32[16,8]{1,0:T(8,128)}) tuple(%next, %done)
}

%condition (s.1: (s32[], f32[16,8])) -> pred[] {
  %s.1 = (s32[]{:T(128)}, f32[16,8]{1,0:T(8,128)}) parameter(0)
  %stop = s32[]{:T(128)} constant(7)
  %i.1 = s32[]{:T(128)} get-tuple-element(%s.1), index=0
  ROOT %lt = pred[]{:T(512)} compare(%i.1, %stop), direction=LT
}

ENTRY %main (x: f32[16,8]) -> f32[64,8] {
  %x = f32[16,8]{1,0:T(8,128)} parameter(0)
  %zero = s32[]{:T(128)} constant(0)
  %start = s32[]{:T(128)} copy(%zero)
  %state = (s32[]{:T(128)}, f32[16,8]{1,0:T(8,128)}) tuple(%start, %x)
  %loop = (s32[]{:T(128)}, f32[16,8]{1,0:T(8,128)}) while(%state), condition=%condition, body=%body
  %tile = f32[16,8]{1,0:T(8,128)} get-tuple-element(%loop), index=1
  %as = ((f32[16,8]{1,0:T(8,128)}), f32[64,8]{1,0:T(8,128)}, u32[]{:S(2)}) async-start(%tile), calls=%wrapped
  ROOT %ad = f32[64,8]{1,0:T(8,128)} async-done(%as), calls=%wrapped
}
""".replace("PAIRS", "channel_id=1, source_target_pairs={{0,1},{1,0}}")


def test_starts_and_dones_count_once_and_loops_without_trip_counts_are_followed():
    report = inspect(TPU)
    permute, gather = report.collectives
    assert (permute.kind, permute.times, permute.exact) == ("collective-permute", 7, True)
    assert gather.kind == "all-gather"
    assert gather.groups == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert report.received_bytes == 7 * 2 * 512 + 8 * 3 * 512
    assert report.scratch is None


def test_an_update_between_start_and_done_is_not_another_collective():
    start, done = "async-start(%tile), calls=%wrapped\n", "async-done(%as), calls=%wrapped"
    update = "  %au = ((f32[16,8]), f32[64,8], u32[]) async-update(%as), calls=%wrapped\n"
    text = TPU.replace(start, start + update).replace(done, done.replace("%as", "%au"))
    assert text.count("%wrapped\n") == TPU.count("%wrapped\n") + 1
    assert inspect(text).collectives == inspect(TPU).collectives


def test_arrays_inside_fusions_have_no_buffer_and_dtypes_select():
    def body(t):
        table = jnp.arange(4096, dtype=jnp.int32).reshape(8, 512)[lax.axis_index(BOTH)]
        return jnp.tile(t, (16, 1)).sum(0, keepdims=True) + table[:1]

    report = inspect(compiled(body, P(BOTH), P(BOTH), (8, 8)))
    largest = report.largest_array({"f32"})
    assert largest is not None and largest.bytes <= 16 * 8 * 4
    assert report.largest_array({"c64"}) is None


def test_packed_types_count_their_bits():
    text = TPU.replace("f32[16,8]{1,0:T(8,128)}", "s4[16,8]{1,0:T(8,128)E(4)}")
    assert inspect(text).collectives[1].operand_bytes == 64
    assert inspect(TPU.replace("f32[16,8]", "s4[16,8]")).collectives[1].operand_bytes == 128


def test_text_that_is_no_module_is_refused():
    with pytest.raises(HloTextError) as caught:
        inspect("module @jit_f {}")
    assert str(caught.value) == "the text holds no line that starts with 'HloModule'; pass compiled.as_text()"


def test_instructions_that_write_nothing_are_not_copies():
    module = (
        "HloModule m, num_partitions=1\n\nENTRY %main (p: f32[8]) -> (f32[2,4]) {\n  %p = f32[8]{0} parameter(0)\n"
        "  %b = f32[2,4]{1,0} bitcast(%p)\n  %n = f32[2,4]{1,0} negate(%b)\n  ROOT %t = (f32[2,4]{1,0}) tuple(%n)\n}\n"
    )
    assert inspect(module).copied_bytes == 2 * 4 * 4


def test_a_module_without_an_entry_is_refused():
    with pytest.raises(HloTextError) as caught:
        inspect(TPU.replace("ENTRY %main", "%main"))
    assert str(caught.value) == "the module has no ENTRY computation; pass the whole of compiled.as_text()"


def test_groups_in_an_unknown_syntax_are_refused_and_not_guessed():
    with pytest.raises(HloTextError) as caught:
        group_lines("strided(2)", 4)
    assert str(caught.value) == ("replica groups of a are written in an unknown way: 'strided(2), dimensions={0}'")
