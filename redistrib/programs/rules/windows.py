"""Rules of primitives whose points read windows of an array: convolutions and poolings.

Along a dimension in space either the points of the result are cut, or, where these are fewer, the taps of the kernel,
whose products are then added. A device reads beside its tile the elements that its windows reach, see
`redistrib.programs.ir.windows`; beyond the array it has zeros, which a pooling of extremes replaces.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from redistrib.backends.jax.offsets import LARGEST_INDEX, integers_for
from redistrib.programs.ir.nest import Nest
from redistrib.programs.ir.windows import Stencil, Window
from redistrib.programs.rules.equation import At, Equation, rule
from redistrib.programs.rules.sums import added_along


class _Along(NamedTuple):
    """Windows along one dimension of an array.

    Attributes:
        extent: elements of the array.
        points: of the result.
        taps: of a window.
        stride: between windows.
        dilation: between taps.
        spacing: between elements.
        padding: before the first element.
    """

    extent: int
    points: int
    taps: int
    stride: int
    dilation: int
    spacing: int
    padding: int

    @property
    def is_plain(self) -> bool:
        """Whether each point reads one element, its own."""
        return self == _Along(self.points, self.points, 1, 1, self.dilation, 1, 0)

    @property
    def of_points(self) -> Window:
        """The elements that points of the result read."""
        last = (self.taps - 1) * self.dilation - self.padding
        return 1 if self.is_plain else Stencil(self.extent, -self.padding, last, self.stride, self.spacing)

    @property
    def of_taps(self) -> Window:
        """The elements that taps read, for all points."""
        last = (self.points - 1) * self.stride - self.padding
        return Stencil(self.extent, -self.padding, last, self.dilation, self.spacing)

    def padded(self, length: int, points: int, taps: int) -> tuple[int, int]:
        """The padding with which a part reads so many elements, from the first that it needs on."""
        low = self.padding % self.spacing
        ends = (points - 1) * self.stride + (taps - 1) * self.dilation + 1
        return low, ends - low - ((length - 1) * self.spacing + 1)


@rule("conv_general_dilated")
def _conv(equation: Equation) -> Nest | None:
    """Batch, channels, groups of both, and space may be cut."""
    params, numbers = equation.params, equation.params["dimension_numbers"]
    if equation.literals:
        return None
    groups, batches = params["feature_group_count"], params["batch_group_count"]
    image, kernel, out = equation.ins[0].shape, equation.ins[1].shape, equation.outs[0].shape
    (of_image, of_kernel, of_out) = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    sizes = {
        "n": out[of_out[0]],
        "g": groups * batches,
        "i": kernel[of_kernel[1]],
        "o": kernel[of_kernel[0]] // (groups * batches),
    }
    names: list[list[str | tuple[str, ...]]] = [[""] * len(spec) for spec in (of_image, of_kernel, of_out)]
    windows: list[Window] = [1] * len(image)
    names[0][of_image[0]] = ("g", "n") if batches > 1 else "n"
    names[0][of_image[1]] = "i" if batches > 1 else ("g", "i")
    names[1][of_kernel[0]], names[1][of_kernel[1]] = ("g", "o"), "i"
    names[2][of_out[0]], names[2][of_out[1]] = "n", ("g", "o")
    along: dict[int, tuple[str, _Along, bool]] = {}
    summed, taps = ["i"], 2
    for k, (a, b, c) in enumerate(zip(of_image[2:], of_kernel[2:], of_out[2:], strict=True)):
        window = _Along(
            image[a],
            out[c],
            kernel[b],
            params["window_strides"][k],
            params["rhs_dilation"][k],
            params["lhs_dilation"][k],
            params["padding"][k][0],
        )
        by_taps = window.taps > window.points
        taps *= window.points if by_taps else window.taps
        if not min(window.extent, window.points, window.taps):
            continue
        if by_taps:
            name, size, windows[a] = f"r{k}", window.taps, window.of_taps
            names[1][b] = name
            summed.append(name)
        else:
            name, size, windows[a] = f"h{k}", window.points, window.of_points
            names[2][c] = name
        names[0][a] = name
        sizes[name] = size
        along[k] = name, window, by_taps

    def body(at: At, *tiles: Any) -> Any:
        padding = [*params["padding"]]
        images, kernels = equation.operands(tiles)[:2]
        for k, (name, window, by_taps) in along.items():
            if len(at[name]) < sizes[name]:
                points = window.points if by_taps else len(at[name])
                padding[k] = window.padded(images.shape[of_image[2 + k]], points, kernels.shape[of_kernel[2 + k]])
        for k, (low, high) in enumerate(padding):
            # XLA for CPUs computes wrong sums where elements are cropped at the begin and zeros added at the end.
            if low < 0 < high and params["lhs_dilation"][k] == 1 and -low <= images.shape[of_image[2 + k]]:
                images = lax.slice_in_dim(images, -low, None, axis=of_image[2 + k])
                padding[k] = 0, high
        count = {"batch_group_count" if batches > 1 else "feature_group_count": len(at["g"])}
        return equation.run([images, kernels], padding=tuple(padding), **count)

    combine, whole = added_along(summed, equation.outs[0].dtype)
    return equation.nest(
        sizes,
        names[:2],
        names[2:],
        body=body,
        windows={0: windows} if along else {},
        flops=taps,
        combine=combine,
        whole=whole,
    )


@rule("reduce_window", "reduce_window_sum", "reduce_window_max", "reduce_window_min", "select_and_gather_add")
def _pooling(equation: Equation) -> Nest | None:
    params, shape = equation.params, equation.ins[0].shape
    along = _poolings(equation, shape, equation.outs[0].shape)
    sizes = {f"d{k}": window.points for k, window in along.items()}
    dims = [f"d{k}" if k in along else "" for k in range(len(shape))]
    windows = [along[k].of_points if k in along else 1 for k in range(len(shape))]
    arrays = range(2 if equation.kind == "select_and_gather_add" else len(equation.outs))
    if any(k in equation.literals for k in arrays):
        return None

    def body(at: At, *tiles: Any) -> Any:
        values, padding = equation.operands(tiles), [*params["padding"]]
        for k, window in along.items():
            if len(at[f"d{k}"]) < window.points and not window.is_plain:
                padding[k] = window.padded(values[arrays[0]].shape[k], len(at[f"d{k}"]), window.taps)
                for array in arrays:
                    fill = _beyond(equation, array, values)
                    if fill is not None:
                        values[array] = _masked(values[array], k, window.of_points, window.points, at[f"d{k}"], fill)
        return equation.run([values[k] for k in equation.reads], padding=tuple(padding))

    ins = [dims if k in arrays else [""] * len(form.shape) for k, form in enumerate(equation.ins)]
    masks = equation.kind != "reduce_window_sum"
    return equation.nest(
        sizes,
        ins,
        [dims] * len(equation.outs),
        body=body,
        windows=dict.fromkeys(arrays, windows),
        indexed={f"d{k}" for k, window in along.items() if masks and not window.is_plain},
        flops=math.prod(params["window_dimensions"]),
    )


@rule("select_and_scatter_add")
def _scattering(equation: Equation) -> Nest | None:
    """A device needs all windows that reach its elements, and all elements of these windows."""
    params, shape = equation.params, equation.ins[1].shape
    if equation.literals:
        return None
    along = _poolings(equation, equation.ins[1].shape, equation.ins[0].shape)
    dims = [f"d{k}" if k in along else "" for k in range(len(shape))]
    windows: tuple[list[Window], list[Window]] = ([1] * len(shape), [1] * len(shape))
    for k, window in along.items():
        if not window.is_plain:
            first, last = window.padding - window.taps + 1, window.padding
            windows[0][k] = Stencil(window.points, first, last, 1, window.stride)
            windows[1][k] = Stencil(
                window.extent,
                first,
                last,
                1,
                window.stride,
                window.stride,
                -window.padding,
                window.taps - 1 - window.padding,
            )

    def body(at: At, *tiles: Any) -> Any:
        source, operand = equation.operands(tiles)
        padding, ends = [*params["padding"]], [(0, 0, 0)] * len(shape)
        for k, window in along.items():
            points, stencil = at[f"d{k}"], windows[1][k]
            if len(points) < window.extent and isinstance(stencil, Stencil):
                operand = _masked(
                    operand, k, stencil, window.extent, points, _least(params["select_prim"], operand.dtype)
                )
                reach = stencil.reach(len(points))
                assert reach is not None
                padding[k], ends[k] = (0, 0), (reach.start, len(points) - reach.start - reach.length, 0)
        operands = [source, operand]
        result = equation.run([operands[k] for k in equation.reads], padding=tuple(padding))
        return lax.pad(result, jnp.zeros((), result.dtype), ends) if any(map(any, ends)) else result

    return equation.nest(
        {f"d{k}": window.extent for k, window in along.items()},
        [dims, dims],
        [dims],
        body=body,
        windows=dict(enumerate(windows)),
        indexed={f"d{k}" for k, window in along.items() if not window.is_plain},
        flops=math.prod(params["window_dimensions"]),
    )


def _poolings(equation: Equation, shape: Sequence[int], out: Sequence[int]) -> Mapping[int, _Along]:
    """The windows along each dimension that may be cut."""
    params, ones = equation.params, (1,) * len(shape)
    columns = (
        shape,
        out,
        params["window_dimensions"],
        params["window_strides"],
        params.get("window_dilation") or ones,
        params.get("base_dilation") or ones,
        (low for low, _ in params["padding"]),
    )
    along = enumerate(map(_Along, *columns))
    return {k: window for k, window in along if min(window.extent, window.points, window.taps)}


def _beyond(equation: Equation, operand: int, values: Sequence[Any]) -> Any:
    """The value of an operand beyond the array; None for zeros."""
    match equation.kind:
        case "reduce_window_sum":
            return None
        case "reduce_window":
            return values[operand + len(equation.outs)]
        case "select_and_gather_add":
            return _least(equation.params["select_prim"], values[1].dtype) if operand else None
        case kind:
            return _least(lax.ge_p if kind == "reduce_window_max" else lax.le_p, values[0].dtype)


def _least(select: Any, dtype: Any) -> Any:
    """The value that a comparison never takes rather than another."""
    is_max = select is lax.ge_p
    if dtype == jnp.bool_:
        return jnp.asarray(not is_max)
    if jnp.issubdtype(dtype, jnp.integer):
        limits = jnp.iinfo(dtype)
        return jnp.asarray(limits.min if is_max else limits.max, dtype)
    return jnp.asarray(-jnp.inf if is_max else jnp.inf, dtype)


def _masked(array: Any, dim: int, stencil: Window, points: int, here: Any, fill: Any) -> Any:
    """An array of which elements beyond the whole one have a value.

    Args:
        array: the device's tile with halos.
        dim: the dimension.
        stencil: how points read it.
        points: in all.
        here: the range of points of the device.
        fill: the value.
    """
    assert isinstance(stencil, Stencil)
    reach = stencil.reach(len(here))
    assert reach is not None
    parts = points // len(here)
    if reach.start >= 0 and reach.step * (parts - 1) + reach.start + reach.length <= stencil.extent:
        return array
    if isinstance(here.start, int) and array.shape[dim] > LARGEST_INDEX:
        begin = here.start // len(here) * reach.step + reach.start
        low, high = (min(max(edge - begin, 0), array.shape[dim]) for edge in (0, stencil.extent))
        margins = [(low, array.shape[k] - high, 0) if k == dim else (0, 0, 0) for k in range(array.ndim)]
        return lax.pad(lax.slice_in_dim(array, low, high, axis=dim), jnp.asarray(fill, array.dtype), margins)
    wide = integers_for(max(stencil.extent, points))
    number = lax.broadcasted_iota(wide, array.shape, dim)
    number = number + (jnp.asarray(here.start).astype(wide) // len(here)) * reach.step + reach.start
    return jnp.where((number >= 0) & (number < stencil.extent), array, fill)
