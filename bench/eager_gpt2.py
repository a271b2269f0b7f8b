"""A layer of GPT-2 as PyTorch runs it one operation after the other, with shapes as tensors: the inference of DistIR.

DistIR reads the model from an ONNX file, which computes shapes by operations too, and runs each operation by a call
from Python. Reshapes, slices and look-ups wait until the GPU has computed their shapes. This module writes the layer
of the public model in such operations, for one of `parts` devices that share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

TOKENS, CONTEXT, HEAD = 8, 1024, 128
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Step(NamedTuple):
    """One operation: its name, its operands and its results by name, and its attributes."""

    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    attributes: dict[str, Any]


def _reshape(x: Any, shape: Any) -> Any:
    return torch.reshape(x, tuple(int(extent.item()) for extent in shape))


def _slice(x: Any, begin: Any, end: Any, dim: int) -> Any:
    window = [slice(None)] * x.ndim
    window[dim] = slice(int(begin.item()), int(end.item()))
    return x[tuple(window)]


OPERATIONS: dict[str, Callable[..., Any]] = {
    "constant": lambda value: torch.tensor(value).to(DEVICE),
    "shape": lambda x: torch.tensor(x.shape).to(DEVICE),
    "gather": lambda x, index: x[index],
    "unsqueeze": lambda x: torch.unsqueeze(x, 0),
    "concat": lambda *xs: torch.cat(xs, 0),
    "reshape": _reshape,
    "slice": _slice,
    "split": lambda x, size: torch.split(x, size, -1),
    "transpose": lambda x, order: x.permute(order),
    "mean": lambda x: torch.mean(x, -1, keepdim=True),
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "quotient": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "pow": torch.pow,
    "sqrt": torch.sqrt,
    "tanh": torch.tanh,
    "softmax": lambda x: torch.softmax(x, -1),
    "matmul": torch.matmul,
    # ONNX scales the product and the bias; the scales are 1, and the call multiplies with them all the same.
    "gemm": lambda x, w, b: torch.matmul(1.0 * x, 1.0 * w) + b,
}


class Layer:
    """The steps of a layer `width` wide, for a device with `1 / parts` of its heads and features.

    What devices exchange is left out: two sums over the parts.
    """

    def __init__(self, width: int, parts: int) -> None:
        self.steps: list[Step] = []
        self.share = width // parts
        attended = self("add", "x", self.linear(self.attention(self.norm("x", "1")), "o"))
        hidden = self.gelu(self.linear(self.norm(attended, "2"), "f"))
        self.result = self("add", attended, self.linear(hidden, "g"))
        self.last_uses = {name: k for k, step in enumerate(self.steps) for name in step.operands}

    def __call__(self, name: str, *operands: str, results: int = 1, **attributes: Any) -> Any:
        names = tuple(f"{len(self.steps)}.{k}" for k in range(results))
        self.steps.append(Step(name, operands, names, attributes))
        return names[0] if results == 1 else names

    def constant(self, value: float | list[int]) -> str:
        name: str = self("constant", value=value)
        return name

    def extents(self, x: str, *dims: int) -> list[str]:
        """Extents of dimensions, each asked for by itself."""
        return [self("gather", self("shape", x), self.constant(dim)) for dim in dims]

    def view(self, x: str, extents: list[str | int]) -> str:
        """A reshape to computed and to constant extents."""
        shape = [self.constant([e]) if isinstance(e, int) else self("unsqueeze", e) for e in extents]
        name: str = self("reshape", x, self("concat", *shape))
        return name

    def norm(self, x: str, which: str) -> str:
        centred = self("sub", x, self("mean", x))
        square = self("mean", self("pow", centred, self.constant(2.0)))
        scale = self("sqrt", self("add", square, self.constant(1e-5)))
        name: str = self("add", self("mul", self("div", centred, scale), f"gain{which}"), f"shift{which}")
        return name

    def linear(self, x: str, which: str) -> str:
        """Rows of the last dimension times a matrix, with views before and after it."""
        size = self.extents(x, 0, 1)
        rows = self.view(x, [-1, *self.extents(x, 2)])
        return self.view(self("gemm", rows, f"w{which}", f"b{which}"), [*size, -1])

    def heads(self, x: str, order: list[int]) -> str:
        """Features as heads, before tokens."""
        batch, tokens, features = self.extents(x, 0, 1, 2)
        heads = self.constant(self.share // HEAD)
        split = self.view(x, [batch, tokens, self.share // HEAD, self("quotient", features, heads)])
        name: str = self("transpose", split, order=order)
        return name

    def attention(self, x: str) -> str:
        q, k, v = self("split", self.linear(x, "a"), results=3, size=self.share)
        q, k, v = self.heads(q, [0, 2, 1, 3]), self.heads(k, [0, 2, 3, 1]), self.heads(v, [0, 2, 1, 3])
        scores = self("div", self("matmul", q, k), self.constant(HEAD**0.5))
        queries, keys = self.extents(scores, 2, 3)
        begin = self("unsqueeze", self("sub", keys, queries))
        rows = self("slice", "mask", begin, self("unsqueeze", keys), dim=2)
        window = self("slice", rows, self.constant([0]), self("unsqueeze", keys), dim=3)
        hidden = self("mul", self("sub", self.constant(1.0), window), self.constant(-10000.0))
        weights = self("softmax", self("add", self("mul", scores, window), hidden))
        merged = self("transpose", self("matmul", weights, v), order=[0, 2, 1, 3])
        batch, tokens, heads, features = self.extents(merged, 0, 1, 2, 3)
        return self.view(merged, [batch, tokens, self("mul", heads, features)])

    def gelu(self, x: str) -> str:
        cube = self("mul", self("pow", x, self.constant(3.0)), self.constant(0.044715))
        curve = self("tanh", self("mul", self("add", x, cube), self.constant(0.7978845608)))
        name: str = self("mul", self("mul", x, self.constant(0.5)), self("add", curve, self.constant(1.0)))
        return name


def weights(width: int, parts: int) -> dict[str, Any]:
    """Random parameters of a layer on the device, in float16, and the causal mask."""
    share = width // parts
    shapes = {"a": (width, 3 * share), "o": (share, width), "f": (width, 4 * share), "g": (4 * share, width)}
    parameters = {
        f"w{key}": torch.randn(shape, dtype=torch.float16, device=DEVICE) / 64 for key, shape in shapes.items()
    }
    parameters |= {
        f"b{key}": torch.zeros(shape[1], dtype=torch.float16, device=DEVICE) for key, shape in shapes.items()
    }
    for which in "12":
        parameters[f"gain{which}"] = torch.ones(width, dtype=torch.float16, device=DEVICE)
        parameters[f"shift{which}"] = torch.zeros(width, dtype=torch.float16, device=DEVICE)
    parameters["mask"] = torch.tril(torch.ones(1, 1, CONTEXT, CONTEXT, dtype=torch.float16, device=DEVICE))
    return parameters


def interpreted(layer: Layer, parameters: Mapping[str, Any], x: Any) -> Any:
    """The result of a layer, an operation at a time; values are dropped after their last use."""
    values = {**parameters, "x": x}
    for k, step in enumerate(layer.steps):
        results = OPERATIONS[step.name](*[values[name] for name in step.operands], **step.attributes)
        values.update(zip(step.results, results if len(step.results) > 1 else (results,), strict=True))
        for name in step.operands:
            if layer.last_uses[name] == k:
                values.pop(name, None)
    return values[layer.result]


def direct(parameters: Mapping[str, Any], x: Any) -> Any:
    """The same layer with shapes known to Python, and without the factors of 1: the work that a simulation counts."""
    batch, tokens, width = x.shape
    share = parameters["wo"].shape[0]

    def norm(x: Any, which: str) -> Any:
        return torch.nn.functional.layer_norm(x, (width,), parameters[f"gain{which}"], parameters[f"shift{which}"])

    def linear(x: Any, which: str) -> Any:
        return torch.matmul(x, parameters[f"w{which}"]) + parameters[f"b{which}"]

    q, k, v = torch.split(linear(norm(x, "1"), "a"), share, -1)
    q, k, v = (part.reshape(batch, tokens, -1, HEAD).permute(0, 2, 1, 3) for part in (q, k, v))
    window = parameters["mask"][:, :, :tokens, :tokens]
    scores = torch.matmul(q, k.transpose(2, 3)) / HEAD**0.5
    probabilities = torch.softmax(scores * window - 10000.0 * (1 - window), -1)
    merged = torch.matmul(probabilities, v).permute(0, 2, 1, 3).reshape(batch, tokens, share)
    x = x + linear(merged, "o")
    return x + linear(torch.nn.functional.gelu(linear(norm(x, "2"), "f"), approximate="tanh"), "g")
