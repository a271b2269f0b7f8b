"""One training step of a transformer, distributed over eight devices in seven ways, without a change to the function.

Forward, loss, backward and AdamW are one traced program; a schedule cuts a few arguments, and all else follows.
Printed for each way: what all devices receive in a step, as predicted and as counted in the compiled program, the most
bytes that one device holds at a time, how far the results are from the undistributed step's, and the collectives.
Run me:

    python examples/train_seven_ways.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import jax
import numpy as np
import optax

import redistrib as rd
from redistrib.explain.profiling.inspect import inspect
from transformer import VOCABULARY, WAYS, init, training


def main(ways: Sequence[str] = tuple(WAYS)) -> None:
    optimizer = optax.adamw(1e-3, eps=1e-3)
    step = training(optimizer)
    params = init(jax.random.key(0))
    words = jax.random.randint(jax.random.key(1), (8, 17), 0, VOCABULARY)
    args = (params, optimizer.init(params), words[:, :-1], words[:, 1:])
    wanted = jax.jit(step)(*args)
    print(f"{'':28}{'received':>12}{'compiled':>12}{'peak':>11}  largest difference, collectives")
    for name in ways:
        axes, schedule = WAYS[name]
        f = rd.distribute(step, args, axes, schedule=schedule)
        found = jax.tree.leaves(f(*args))
        off = max(float(np.max(np.abs(a - b))) for a, b in zip(found, jax.tree.leaves(wanted), strict=True))
        kinds = Counter(step.kind for move in f.program.moves if move.plan for step in move.plan.steps)
        steps = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        compiled = inspect(f.lower().compile()).received_bytes
        print(f"{name:28}{f.compiled_received_bytes:12,}{compiled:12,}{f.memory:11,}  {off:.0e}, {steps}")
        assert off < 1e-5


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    main()
