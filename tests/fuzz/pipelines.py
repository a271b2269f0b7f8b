"""Random training steps in stages through `rd.pipeline`, beside `jax.jit`: the same numbers, or a refusal.

A step has a stack of layers of several kinds, by scan or written out; what the scan carries besides; a loss; and an
optimizer, which updates after the backward pass or, layer by layer, within it. It is spread over stages, microbatches,
replicas, tensor parts, orders of the tasks and levels of ZeRO. Most steps are of 64-bit numbers, so that another order
of a sum shows as little as 1e-12, and what depends on comparisons does not change.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import redistrib as rd
from tests.fuzz.guard import Failure, attempt
from tests.fuzz.layers import KINDS, TOKENS, WIDTH, Place, weights

EXAMPLES, CLASSES = 8, 4
BATCH = {"x": 0, "y": 0}
STACKS = ("scan", "scan", "scan", "scan", "from the end", "by twos", "nested", "recomputed", "products kept", "written")
CARRIES = ("", "", "", "loss of layers", "loss of weights", "count", "stacked", "shared")
LOSSES = ("squares", "squares", "classes", "weighted", "masked")
OPTIMIZERS = ("descent", "descent", "momentum", "adam", "clipped", "skipped", "by scan", "by layer", "by layer", "none")
LAYOUTS = (
    (1, 1, 2, 2), (1, 1, 2, 4), (2, 1, 2, 2), (1, 2, 2, 2), (2, 2, 2, 2), (1, 1, 4, 2), (1, 1, 3, 4), (2, 2, 1, 2),
    (1, 2, 1, 4), (4, 1, 2, 1), (2, 1, 4, 2), (1, 4, 2, 2), (1, 1, 2, 8), (4, 2, 1, 1),
)  # fmt: skip
TOLERANCE = {"float64": 1e-9, "float32": 1e-3}
ROUNDED = {"float64": 2e-4, "float32": 5e-2}  # with layers in the next smaller type


@dataclass(frozen=True)
class Step:
    """A training step.

    Attributes:
        kinds: of layers, all of which make one entry of the stack.
        layers: entries of the stack.
        stack, carry, loss, optimizer: how it is written, see the tuples of this module.
        dtype: of all floats.
        tokens: whether examples are numbers of tokens, which are looked up.
        seed: of weights and examples.
    """

    kinds: tuple[str, ...]
    layers: int
    stack: str
    carry: str
    loss: str
    optimizer: str
    dtype: str
    tokens: bool
    seed: int

    @property
    def tolerance(self) -> float:
        """Most that a result may differ, relative to the largest element."""
        return (ROUNDED if "half" in self.kinds else TOLERANCE)[self.dtype]

    def arguments(self) -> tuple[Any, ...]:
        """Parameters, the optimizer's state, examples, targets and a key."""
        rng = np.random.default_rng(self.seed)

        def normal(*shape: int) -> Any:
            return (rng.normal(size=shape) / 2).astype(self.dtype)

        params = {
            "embed": normal(16 if self.tokens else 4, WIDTH),
            "stack": weights(self.kinds, self.layers, rng, self.dtype),
            "shared": normal(WIDTH, WIDTH),
            "head": normal(WIDTH, CLASSES),
        }
        zeros = jax.tree.map(np.zeros_like, params)
        state = {
            "momentum": zeros, "adam": (np.int32(2), zeros, jax.tree.map(np.ones_like, params)),
            "by layer": zeros["stack"], "by scan": (np.zeros((), self.dtype),),
        }.get(self.optimizer, ())  # fmt: skip
        x = rng.integers(0, 16, (EXAMPLES, TOKENS)) if self.tokens else normal(EXAMPLES, TOKENS, 4)
        y = normal(EXAMPLES, TOKENS, CLASSES)
        if self.loss == "classes":
            y = rng.integers(0, CLASSES, (EXAMPLES, TOKENS))
        return params, state, x, y, jax.random.key(self.seed % 5)

    # ------------------------------------------------------------------------------------------ forward

    def entry(self, h: Any, p: Any, place: Place) -> Any:
        """One entry of the stack: a layer of each kind."""
        for kind, own in zip(self.kinds, p, strict=True):
            h = KINDS[kind].run(h, own, place)
        return h

    def _carried(self, shared: Any, carry: Any, entry: Any) -> Any:
        (h, extra, count), (p, key, number) = carry, entry
        h = self.entry(h, p, Place(key, number))
        if self.carry == "shared":
            h = h + jnp.tanh(h @ shared) * 0.3
        elif self.carry == "loss of layers":
            extra = extra + (h * h).mean()
        elif self.carry == "loss of weights":
            extra = extra + sum((w * w).sum() for w in jax.tree.leaves(p))
        elif self.carry == "count":
            count = count + 1
            h = h / count
        return (h, extra, count), (h[:, 0] if self.carry == "stacked" else None)

    def stacked(self, params: Any, h: Any, key: Any) -> Any:
        """The whole stack: the activations, what else was carried, and what was stacked."""
        one = partial(self._carried, params["shared"])
        entries = params["stack"], jax.random.split(key, self.layers), jnp.arange(self.layers)
        begin = h, jnp.asarray(1.5, self.dtype), jnp.int32(0)
        match self.stack:
            case "from the end":
                return jax.lax.scan(one, begin, entries, reverse=True)
            case "by twos":
                return jax.lax.scan(one, begin, entries, unroll=2)
            case "nested" if self.layers % 2 == 0:
                twos = jax.tree.map(lambda a: a.reshape(self.layers // 2, 2, *a.shape[1:]), entries)
                end, left = jax.lax.scan(lambda carry, two: jax.lax.scan(one, carry, two), begin, twos)
                return end, jax.tree.map(lambda a: a.reshape(self.layers, *a.shape[2:]), left)
            case "recomputed":
                return jax.lax.scan(jax.checkpoint(one), begin, entries)
            case "products kept":
                policy = jax.checkpoint_policies.dots_saveable
                return jax.lax.scan(jax.checkpoint(one, policy=policy), begin, entries)
            case "written":
                carry, left = begin, []
                for k in range(self.layers):
                    carry, out = one(carry, jax.tree.map(lambda a, k=k: a[k], entries))
                    left.append(out)
                return carry, None if left[0] is None else jnp.stack(left)
        return jax.lax.scan(one, begin, entries)

    def embedded(self, params: Any, x: Any) -> Any:
        return params["embed"][x] if self.tokens else x @ params["embed"]

    def lost(self, params: Any, h: Any, y: Any) -> Any:
        out = h @ params["head"]
        if self.loss == "classes":
            return -jnp.take_along_axis(jax.nn.log_softmax(out, -1), y[..., None], -1).mean()
        if self.loss == "weighted":
            return (((out - y) ** 2).mean(-1) * jax.nn.sigmoid(y[..., 0])).sum() / y.size
        if self.loss == "masked":
            mask = (y[..., 0] > 0).astype(out.dtype)
            return (((out - y) ** 2).mean(-1) * mask).sum() / jnp.maximum(mask.sum(), 1)
        return ((out - y) ** 2).mean()

    # ------------------------------------------------------------------------------------------ the step

    def __call__(self, params: Any, state: Any, x: Any, y: Any, key: Any) -> Any:
        if self.optimizer == "by layer":
            return self._by_layer(params, state, x, y, key)

        def loss(params: Any) -> Any:
            (h, extra, count), left = self.stacked(params, self.embedded(params, x), key)
            total = self.lost(params, h, y) + 1e-3 * extra
            return total if left is None else total + 1e-2 * (left**2).sum(), (extra, count, left)

        if self.optimizer == "none":
            (h, extra, count), left = self.stacked(params, self.embedded(params, x), key)
            return h @ params["head"], extra, count, left
        (value, aside), grads = jax.value_and_grad(loss, has_aux=True)(params)
        return *self._updated(params, state, grads), value, aside

    def _updated(self, params: Any, state: Any, grads: Any) -> tuple[Any, Any]:
        new = partial(jax.tree.map, lambda p, g: p - 0.05 * g, params)
        if self.optimizer == "momentum":
            state = jax.tree.map(lambda m, g: 0.9 * m + g, state, grads)
            return new(state), state
        if self.optimizer == "adam":
            count, first, second = state[0] + 1, *state[1:]
            first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
            second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, grads)
            scale = jnp.sqrt(1 - 0.99**count) / (1 - 0.9**count)
            steps = jax.tree.map(lambda m, v: (m * scale / (jnp.sqrt(v) + 1e-6)).astype(m.dtype), first, second)
            return new(steps), (count, first, second)
        leaves = jax.tree.leaves(grads)
        if self.optimizer == "clipped":
            norm = jnp.sqrt(sum((g * g).sum() for g in leaves))
            return new(jax.tree.map(lambda g: g / jnp.maximum(norm, 1), grads)), state
        if self.optimizer == "skipped":
            is_finite = jnp.stack([jnp.isfinite(g).all() for g in leaves]).all()
            return jax.tree.map(lambda old, p: jnp.where(is_finite, p, old), params, new(grads)), state
        if self.optimizer == "by scan":
            end, stack = jax.lax.scan(self._clipped, jnp.asarray(0.5, self.dtype), (params["stack"], grads["stack"]))
            return {**new(grads), "stack": stack}, (end,)
        return new(grads), state

    def _clipped(self, total: Any, of_layer: Any) -> Any:
        """A layer updated by its gradient, which is clipped by its norm; the norms are added up."""
        p, grads = of_layer
        square = sum(((g * g).sum() for g in jax.tree.leaves(grads)), jnp.zeros((), self.dtype))
        norm = jnp.sqrt(square + 1e-6)
        return total + norm, jax.tree.map(lambda p, g: p - 0.05 * g / jnp.maximum(norm, 0.1), p, grads)

    def _by_layer(self, params: Any, state: Any, x: Any, y: Any, key: Any) -> Any:
        """The backward pass by hand: each layer is updated as soon as its gradient is there, scaled by its norm."""
        entries = params["stack"], jax.random.split(key, self.layers), jnp.arange(self.layers)

        def forward(h: Any, entry: Any) -> Any:
            p, key, number = entry
            return self.entry(h, p, Place(key, number)), h

        out, inputs = jax.lax.scan(forward, self.embedded(params, x), entries)
        value, slope = jax.value_and_grad(lambda h: self.lost(params, h, y))(out)

        def back(carry: Any, entry: Any) -> Any:
            (slope, total, count), (p, moment, key, number, h) = carry, entry
            slope, grads = jax.vjp(lambda h, p: self.entry(h, p, Place(key, number)), h, p)[1](slope)
            square = sum(((g * g).sum() for g in jax.tree.leaves(grads)), jnp.zeros((), self.dtype))
            moment = jax.tree.map(lambda m, g: 0.9 * m + g / (jnp.sqrt(square) + count + 1), moment, grads)
            p = jax.tree.map(lambda p, m: p - 0.05 * m, p, moment)
            return (slope, total + square, count + 1), (p, moment)

        begin = slope, jnp.asarray(0.5, self.dtype), jnp.int32(0)
        stacked = params["stack"], state, *entries[1:], inputs
        (_, total, count), (stack, state) = jax.lax.scan(back, begin, stacked, reverse=True)
        return {**params, "stack": stack}, state, value, (total, count)


def drawn(seed: int, index: int) -> Step:
    """The step of a number."""
    rng = random.Random(f"pipelines/{seed}/{index}")
    usual = [kind for kind in KINDS if kind != "over the batch"]
    kinds = [rng.choice(usual) for _ in range(rng.choice((1, 1, 2, 2, 3)))]
    if rng.random() < 0.03:
        kinds.append("over the batch")
    if not any(KINDS[kind].shapes for kind in kinds):
        kinds.append("dense")
    return Step(
        tuple(kinds),
        rng.choice((2, 3, 4, 4, 5, 6, 8)),
        rng.choice(STACKS),
        rng.choice(CARRIES),
        rng.choice(LOSSES),
        rng.choice(OPTIMIZERS),
        rng.choice(("float64", "float64", "float64", "float32")),
        rng.random() < 0.2,
        rng.randrange(1000),
    )


def layout_of(seed: int, index: int) -> rd.Layout:
    """The layout of a number."""
    rng = random.Random(f"layout/{seed}/{index}")
    data, tensor, pipeline, microbatches = rng.choice(LAYOUTS)
    zero = rng.choice((0, 1, 2, 3)) if data > 1 else 0
    if pipeline > 1 and microbatches % pipeline == 0 and rng.random() < 0.25:
        return rd.Layout(data, tensor, pipeline, microbatches, chunks=2, order="interleaved", zero=zero)
    return rd.Layout(data, tensor, pipeline, microbatches, order=rng.choice(("1f1b", "gpipe")), zero=zero)


def check(seed: int, index: int) -> str:
    """Run the step of this number in stages: "agrees", or "refused" by an error of the library.

    A step that makes parameters and a state takes them again: the second step is compared too.

    Raises:
        Failure: if it computes something else, or anything but a `RedistribError` comes out.
    """
    step, layout = drawn(seed, index), layout_of(seed, index)
    case = f"{step}; as {layout}, zero={layout.zero}"
    with jax.enable_x64(step.dtype == "float64"):
        args = step.arguments()
        function = jax.jit(step.__call__)
        wanted = [function(*args)]
        if step.optimizer != "none":
            wanted.append(function(*wanted[0][:2], *args[2:]))

        def piped() -> list[Any]:
            f = rd.pipeline(step.__call__, args, BATCH, layout)
            found = [f(*args)]
            if len(wanted) > 1:
                found.append(f(*found[0][:2], *args[2:]))
            return found

        found = attempt(piped, case)
        if found is None:
            return "refused"
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            difference = _difference(one, other, step.tolerance * (1 + 9 * number))
            if difference:
                raise Failure("wrong", f"step {number}: {difference}", case=case)
    return "agrees"


def _difference(found: Any, wanted: Any, tolerance: float) -> str:
    """How the first result that differs does so; empty if none does."""
    if jax.tree.structure(found) != jax.tree.structure(wanted):
        return "another tree of results"
    for (path, one), other in zip(jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(wanted), strict=True):
        a, b = np.asarray(one), np.asarray(other)
        name = jax.tree_util.keystr(path)
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"result {name} is {a.dtype}{a.shape}, and not {b.dtype}{b.shape}"
        if not np.issubdtype(b.dtype, np.inexact):
            if not np.array_equal(a, b):
                return f"result {name} has other integers"
        elif a.size and not np.allclose(a, b, rtol=0, atol=tolerance * (1e-3 + float(np.abs(b).max())), equal_nan=True):
            return f"result {name} differs by {np.abs(a - b).max()} of {np.abs(b).max()}"
    return ""
