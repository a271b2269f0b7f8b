"""Programs spread over devices: replicas, tensor parts, pipeline stages and microbatches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from redistrib.pipelines.spreading import spread as spread

if TYPE_CHECKING:
    from redistrib.cost.model import CostModel
    from redistrib.pipelines.entry import Pipelined
    from redistrib.pipelines.layout import Layout


def pipeline(
    fn: Callable[..., Any],
    args: Sequence[Any],
    batch: Mapping[str, int],
    layout: Layout,
    *,
    devices: Any = None,
    cost_model: CostModel | str | None = None,
    rules: Mapping[str, Any] | None = None,
) -> Pipelined:
    """Run a JAX function in stages: replicas, tensor parts, groups of devices, microbatch by microbatch.

    The function, a training step differentiated inside or a forward pass, is traced as `distribute` does and spread as
    `spread` does. Each stage is one `jax.jit` over the devices of its group, called for each
    microbatch in the order that the layout names; between groups values go by `reshard`. It computes what the function
    does. See docs/simulate.md.

    Args:
        fn: a function of arrays and trees of them. What it sums over examples may be read at the end only: a loss and
            gradients, an update; nothing that mixes examples, as a norm over the batch does.
        args: its arguments, as arrays or as `jax.ShapeDtypeStruct`.
        batch: for arguments with examples, by the name of the parameter, the path of a leaf or a pattern, the
            dimension that runs over them.
        layout: how many replicas, tensor parts, groups of devices and microbatches, in which order; `tensor_dims` by
            names as in `batch`.
        devices: of JAX, as many as the layout takes, or a mesh of them; by default the first that JAX has.
        cost_model: what plans inside a group minimise; by default the preset of the devices' platform.
        rules: of primitives, as `distribute` takes them.

    Returns:
        A function of the same arguments, with `program` to print or to simulate, and `transfers`, what goes between
        groups and whether a plan or `jax.device_put` moves it.

    Raises:
        ProgramError: if examples meet before the end, numbers do not divide, devices are too few, or the order cannot
            run.

    >>> import jax.numpy as jnp
    >>> from redistrib.pipelines.layout import Layout
    >>> x, w = jnp.ones((8, 4)), jnp.ones((4, 2))
    >>> f = pipeline(lambda x, w: x @ w, (x, w), {"x": 0}, Layout(microbatches=2))
    >>> f(x, w).shape
    (8, 2)
    """
    from redistrib.pipelines import entry

    return entry.pipelined(fn, args, batch, layout, devices=devices, cost_model=cost_model, rules=rules)
