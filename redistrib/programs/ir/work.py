"""Classes of work: operations that a device may do at another rate than large products."""

from __future__ import annotations

from redistrib.programs.ir.nest import Nest

FUNCTIONS = {
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "bessel_i0e", "bessel_i1e", "cbrt", "complex",
    "cos", "cosh", "digamma", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "igamma", "igamma_grad_a", "igammac",
    "lgamma", "log", "log1p", "logistic", "nextafter", "polygamma", "pow", "regularized_incomplete_beta", "rsqrt",
    "sin", "sinh", "sqrt", "tan", "tanh", "threefry2x32", "zeta",
}  # fmt: skip
CLASSES = {
    "convolution": {"conv_general_dilated"},
    # Processors have an instruction for square roots, which takes no longer than the bytes.
    "function": {*FUNCTIONS, "random_bits", "random_fold_in", "random_seed", "random_split"} - {"sqrt"},
    "index": {"argmax", "argmin"},
    "running": {"cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum"},
    "sort": {"sort", "top_k", "approx_top_k"},
    "fourier": {"fft"},
    "transpose": {"transpose"},
}
"""The kinds of operations in each class."""
UNITS = {
    "convolution": "FLOP",
    "function": "FLOP",
    "index": " elements",
    "running": " elements",
    "sort": " comparisons",
    "fourier": "FLOP",
    "transpose": "B",
}
"""What rates of each class count per second; bytes are those read and written."""

_CLASS_OF = {kind: name for name, kinds in CLASSES.items() for kind in kinds}


def work_of(kind: str, nest: Nest) -> str:
    """The class of an operation; empty where it has none. A transposition has one if it moves the last dimension."""
    name = _CLASS_OF.get(kind, "")
    return "" if name == "transpose" and nest.reads[0].dims[-1:] == nest.writes[0].dims[-1:] else name


def turns(nest: Nest) -> bool:
    """Whether a product of matrices transposes its first operand: it is summed, but not along its last dimension.

    >>> from redistrib.programs.ir.spec import nest
    >>> turns(nest("ij,jk->ik", (2, 3, 4))), turns(nest("ji,jk->ik", (3, 2, 4)))
    (False, True)
    """
    dims = [dim[0] for dim in nest.reads[0].dims if dim and nest.size(dim[0]) > 1]
    summed = [dim in nest.combiner for dim in dims]
    return any(summed) and not summed[-1]


def is_by_vector(nest: Nest) -> bool:
    """Whether a product of two arrays is one of a matrix and a vector, or of two vectors.

    >>> from redistrib.programs.ir.spec import nest
    >>> is_by_vector(nest("ji,j->i", (3, 2))), is_by_vector(nest("ij,jk->ik", (2, 3, 4)))
    (True, False)
    """
    first, second = ({name for name in access.names if nest.size(name) > 1} for access in nest.reads)
    batch = (first & second).difference(nest.combiner)
    return not batch and (first <= second or second <= first)
