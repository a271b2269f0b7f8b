"""A training step of a GPT of six layers, FSDP x tensor parallel, pinned by the shardings of arguments and results."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from bench.language_models import normed
from bench.programs.case import Case, P, f32, i32, sgd
from bench.programs.transformer import block

LAYERS = 6
MESHES = {"data 4 x model 2": {"data": 4, "model": 2}, "data 2 x model 4": {"data": 2, "model": 4}}
LAYER = {
    **dict.fromkeys(("wq", "wk", "wv", "up"), P("data", "model")),
    "wo": P("model", None, "data"),
    "down": P("model", "data"),
    **dict.fromkeys(("norm1", "norm2"), P()),
}
SPECS = {"tokens": P("model", "data"), "places": P(None, "data"), "norm": P(), "layers": [LAYER] * LAYERS}
# Width, heads, tokens of a sequence, sequences, vocabulary; the last are those of GPT-2, but for the length.
SHAPES = {"small": (64, 8, 16, 4, 256), "full": (768, 12, 64, 8, 50_304)}


def loss(params: Any, tokens: Any, targets: Any) -> Any:
    """Mean cross-entropy of the next token, by the embedding of the tokens."""
    x = params["tokens"][tokens] + params["places"]
    for layer in params["layers"]:
        x = block(layer, x)
    logits = jax.nn.log_softmax(normed(x, params["norm"]) @ params["tokens"].T)
    return -jnp.mean(jnp.take_along_axis(logits, targets[..., None], -1))


def gpt(name: str, size: str) -> Case:
    """The step on one of `MESHES` at one of the sizes of `SHAPES`: forward, backward and update."""
    width, heads, time, batch, vocabulary = SHAPES[size]
    layer = {
        **dict.fromkeys(("wq", "wk", "wv"), f32(width, heads, width // heads)),
        "wo": f32(heads, width // heads, width),
        "up": f32(width, 4 * width),
        "down": f32(4 * width, width),
        **dict.fromkeys(("norm1", "norm2"), f32(width)),
    }
    ends = {"tokens": f32(vocabulary, width), "places": f32(time, width), "norm": f32(width)}
    tokens = i32(batch, time)
    args = {**ends, "layers": [layer] * LAYERS}, tokens, tokens
    return Case(name, sgd(loss), args, MESHES[name], (SPECS, P("data"), P("data")), (SPECS, P()), (), below=vocabulary)
