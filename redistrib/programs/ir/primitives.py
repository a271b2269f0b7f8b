"""The record of each primitive, by its name; those with equal records stand in one line, apart by spaces."""

from __future__ import annotations

from redistrib.programs.ir.record import (
    Blocks,
    Bounds,
    Combines,
    Effects,
    Fusion,
    Joins,
    Keys,
    Opens,
    Positions,
    Record,
    Sums,
    Tails,
    WorkClass,
)

COPY = "copy of an operand"  # before a product
_BY_NAMES = {
    (
        "acos acosh asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt complex cos cosh digamma erf "
        "erf_inv erfc expm1 igamma igamma_grad_a igammac lgamma log log1p logistic nextafter polygamma pow "
        "regularized_incomplete_beta rsqrt sin sinh tan tanh threefry2x32 zeta"
    ): Record(work=WorkClass.FUNCTION, flops=10),
    "add add_any": Record(sums=Sums.BOTH, bounds=Bounds.ADDED),
    "all_gather all_gather_invariant all_to_all pbroadcast ppermute": Record(tails=Tails.NEVER, keys=Keys.SHAPE),
    (
        "and ceil cholesky clamp clz conj eig eigh eq eq_to floor ge geqp3 geqrf "
        "gt hessenberg householder_product integer_pow is_finite le le_to lt_to lu "
        "lu_pivots_to_permutation mulhi ne not or ormqr population_count qr reduce reduce_precision "
        "reduce_window reduce_window_max reduce_window_min round schur select_and_gather_add "
        "select_and_scatter select_and_scatter_add shift_left shift_right_arithmetic shift_right_logical sign "
        "square svd symmetric_product triangular_solve tridiagonal tridiagonal_solve xor"
    ): Record(),
    "argmax argmin": Record(fusion=Fusion.FOLD, work=WorkClass.INDEX, blocks=Blocks.EXTREME),
    "pure_callback random_clone random_unwrap random_wrap": Record(tails=Tails.NEVER, opens=Opens.NEVER),
    "debug_callback debug_print io_callback": Record(effects=Effects.CALLBACK),
    "cond": Record(tails=Tails.NEVER, opens=Opens.NEVER, effects=Effects.INSIDE),
    "while": Record(tails=Tails.NEVER, opens=Opens.LOOP, effects=Effects.INSIDE),
    "copy_to_host layout_constraint mesh_cast name pvary reduced_vary_cast_p": Record(
        tails=Tails.NEVER, opens=Opens.OPERAND
    ),
    "cumlogsumexp cumprod": Record(work=WorkClass.RUNNING, blocks=Blocks.RUNNING, rounds=True),
    "cummax cummin": Record(work=WorkClass.RUNNING, blocks=Blocks.RUNNING),
    "dynamic_slice slice": Record(fusion=Fusion.SLICE, sums=Sums.FIRST, bounds=Bounds.SAME, keys=Keys.SHAPE),
    "exp exp2": Record(fusion=Fusion.EXPONENTIAL, work=WorkClass.FUNCTION, flops=10),
    "imag real": Record(sums=Sums.COMPONENTS),
    "max min": Record(bounds=Bounds.UNITED),
    "random_fold_in random_seed": Record(work=WorkClass.FUNCTION, keys=Keys.INTEGERS, opens=Opens.NEVER),
    "reduce_and": Record(combines=Combines.ALL, blocks=Blocks.PRODUCT),
    "reduce_or": Record(combines=Combines.ANY, blocks=Blocks.PRODUCT),
    "reduce_xor": Record(blocks=Blocks.PRODUCT),
    "reduce_max": Record(tails=Tails.MASKED, combines=Combines.MAX),
    "reduce_min": Record(tails=Tails.MASKED, combines=Combines.MIN),
    "reshape squeeze": Record(
        fusion=Fusion.RESHAPE, sums=Sums.FIRST, bounds=Bounds.SAME, positions=Positions.RESHAPED, keys=Keys.INTEGERS
    ),
    "scatter scatter-max scatter-min scatter-mul scatter_mul": Record(
        fusion=Fusion.SCATTER, tails=Tails.POSITIONED, positions=Positions.LOOKED_UP
    ),
    "scatter-add scatter-sub scatter_add": Record(
        fusion=Fusion.SCATTER, tails=Tails.ADDED, sums=Sums.UPDATES, positions=Positions.LOOKED_UP
    ),
    "abs": Record(bounds=Bounds.ABSOLUTE),
    "approx_top_k": Record(work=WorkClass.SORT, blocks=Blocks.APPROXIMATE),
    "bitcast_convert_type": Record(fusion=Fusion.BITCAST),
    "broadcast_in_dim": Record(
        fusion=Fusion.BROADCAST, sums=Sums.FIRST, bounds=Bounds.SAME, positions=Positions.BROADCAST, keys=Keys.SHAPE
    ),
    "concatenate": Record(sums=Sums.ALL, bounds=Bounds.UNITED, positions=Positions.JOINED, keys=Keys.SHAPE),
    "conv_general_dilated": Record(work=WorkClass.CONVOLUTION, sums=Sums.FACTORS, joins=Joins.CROPPED),
    "convert_element_type": Record(
        fusion=Fusion.CONVERT, sums=Sums.CONVERTED, bounds=Bounds.CONVERTED, positions=Positions.SAME
    ),
    "copy": Record(
        fusion=Fusion.CONVERT, sums=Sums.FIRST, bounds=Bounds.SAME, positions=Positions.SAME, keys=Keys.SHAPE
    ),
    "copy_p": Record(sums=Sums.FIRST, bounds=Bounds.SAME, positions=Positions.SAME, keys=Keys.SHAPE),
    "cumsum": Record(work=WorkClass.RUNNING, sums=Sums.FIRST, blocks=Blocks.RUNNING, rounds=True),
    "div": Record(fusion=Fusion.COSTLY, sums=Sums.DIVIDED, bounds=Bounds.DIVIDED),
    "dot_general": Record(fusion=Fusion.PRODUCT, tails=Tails.MASKED, sums=Sums.FACTORS),
    "dynamic_update_slice": Record(fusion=Fusion.UPDATE, sums=Sums.BOTH, keys=Keys.SHAPE),
    "expand_dims": Record(sums=Sums.FIRST, bounds=Bounds.SAME, positions=Positions.RESHAPED, keys=Keys.INTEGERS),
    "fft": Record(work=WorkClass.FOURIER, sums=Sums.COMPONENTS),
    "gather": Record(fusion=Fusion.LOOKUP, tails=Tails.LOOKED_UP, sums=Sums.LOOKED_UP, positions=Positions.LOOKED_UP),
    "iota": Record(fusion=Fusion.LAYOUT, tails=Tails.POSITIONED, bounds=Bounds.COUNTED, positions=Positions.MADE),
    "lt": Record(positions=Positions.COMPARED),
    "mul": Record(sums=Sums.FACTORS, bounds=Bounds.MULTIPLIED),
    "neg": Record(sums=Sums.FIRST, bounds=Bounds.NEGATED),
    "optimization_barrier": Record(sums=Sums.FIRST, bounds=Bounds.SAME, positions=Positions.SAME),
    "pad": Record(sums=Sums.PADDED, joins=Joins.PAD),
    "ragged_dot_general": Record(sums=Sums.FACTORS),
    "random_bits": Record(fusion=Fusion.HASH, work=WorkClass.FUNCTION, tails=Tails.POSITIONED, keys=Keys.INTEGERS),
    "random_split": Record(fusion=Fusion.HASH, work=WorkClass.FUNCTION, keys=Keys.INTEGERS, opens=Opens.NEVER),
    "reduce_prod": Record(blocks=Blocks.PRODUCT, rounds=True),
    "reduce_sum": Record(tails=Tails.MASKED, sums=Sums.FIRST, combines=Combines.SUM),
    "reduce_window_sum": Record(joins=Joins.WINDOWS),
    "rem": Record(fusion=Fusion.COSTLY),
    "rev": Record(fusion=Fusion.LAYOUT, sums=Sums.FIRST, bounds=Bounds.SAME, keys=Keys.SHAPE),
    "scan": Record(tails=Tails.NEVER, keys=Keys.INTEGERS, opens=Opens.LOOP, effects=Effects.INSIDE),
    "select_n": Record(
        fusion=Fusion.SELECT, sums=Sums.CHOSEN, bounds=Bounds.CHOSEN, positions=Positions.CHOSEN, keys=Keys.SHAPE
    ),
    "shard_map": Record(tails=Tails.NEVER, keys=Keys.INTEGERS, effects=Effects.INSIDE),
    "sort": Record(work=WorkClass.SORT),
    "split": Record(fusion=Fusion.SLICE, sums=Sums.FIRST, keys=Keys.SHAPE),
    "sqrt": Record(flops=10, bounds=Bounds.ROOT),
    "stack": Record(sums=Sums.ALL, bounds=Bounds.UNITED, keys=Keys.SHAPE),
    "stop_gradient": Record(fusion=Fusion.RESHAPE, sums=Sums.FIRST, bounds=Bounds.SAME, positions=Positions.SAME),
    "sub": Record(sums=Sums.BOTH, bounds=Bounds.SUBTRACTED),
    "tile": Record(sums=Sums.FIRST, bounds=Bounds.SAME),
    "top_k": Record(work=WorkClass.SORT, blocks=Blocks.LARGEST),
    "transpose": Record(
        fusion=Fusion.LAYOUT,
        work=WorkClass.TRANSPOSE,
        sums=Sums.FIRST,
        bounds=Bounds.SAME,
        positions=Positions.TRANSPOSED,
        keys=Keys.SHAPE,
    ),
    "unstack": Record(sums=Sums.FIRST, keys=Keys.SHAPE),
    COPY: Record(fusion=Fusion.LAYOUT),
}
RECORDS = {
    name: record for names, record in _BY_NAMES.items() for name in ([names] if names == COPY else names.split())
}
_UNKNOWN = Record(tails=Tails.NEVER)


def record_of(kind: str) -> Record:
    """The record of a primitive; of one that is not known, one that fuses by its nest, and whose body sees no tails."""
    return RECORDS.get(kind, _UNKNOWN)
