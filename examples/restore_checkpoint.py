"""A checkpoint saved on one topology, restored onto another.

It is restored into the layout in which it was written, so that every device reads only what it once wrote, and
`reshard` does the rest between the devices.

    python examples/restore_checkpoint.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp

import redistrib as rd
from transformer import fsdp, init, mesh, tensor_parallel


def save(path: Path) -> None:
    """Training: fully sharded over 8 devices in a line."""
    params = init(jax.random.key(0))
    params = jax.device_put(params, fsdp(params, mesh(shard=8)))
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, params)


def restore(path: Path, sharded_alike: jax.sharding.Mesh) -> dict:
    """Read as it was written."""
    shapes = jax.eval_shape(init, jax.random.key(0))
    wanted = jax.tree.map(
        lambda shape, cut: jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=cut),
        shapes,
        fsdp(shapes, sharded_alike),
    )
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path, wanted)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step_1000"
        save(path)
        serving = mesh(replica=2, tensor=4)
        params = restore(path, sharded_alike=mesh(shard=8))
        cuts = tensor_parallel(params, serving)
        served = rd.reshard(params, cuts, donate=True)
    for leaf, expected, cut in zip(
        jax.tree.leaves(served), jax.tree.leaves(init(jax.random.key(0))), jax.tree.leaves(cuts), strict=True
    ):
        assert leaf.sharding == cut
        assert np.array_equal(leaf, expected)
    print(f"restored {len(jax.tree.leaves(served))} arrays, cut for {serving}")


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    main()
