"""The paper's ablation "Iterate": a task step, then an entropy step, with nothing that couples the two.

theta <- theta - step(d g / d theta),   then   direction = d f over (alpha, theta) at the moved theta
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from calmtune.methods.passes import Direction, Pass


def iterate_step(lower: Pass, upper: Pass, *, task_update: Callable[[tuple[Tensor, ...]], None]) -> Direction:
    """Take the task step at once, and give the direction of the entropy step that follows it.

    Args:
        lower, upper: g on B_T and f on B_V, at whatever theta holds when they are called.
        task_update: gets the gradient of g by theta and moves theta by it, through theta's optimizer.

    Returns:
        The direction of the entropy step alone; ``lower`` is g before the task step.

    Raises:
        FloatingPointError: a pass is not finite. After the second one theta keeps the task step, and the message says
            so.

    Source: CALM, section 5 (ablations): alternating task and entropy updates. There is no lambda.
    """
    task = lower(theta_gradient=True)
    task_update(task.theta)
    try:
        entropy = upper(theta_gradient=True)
    except FloatingPointError as error:
        raise FloatingPointError(
            f"{error}; the task step was taken, the entropy step that follows it was not"
        ) from error
    return Direction(entropy.theta, entropy.alpha, task.value, {"upper_loss": entropy.value})
