"""The paper's ablation "Iterate": a task step, then an entropy step, with nothing that couples the two.

theta <- theta - step(d g / d theta),   then   direction = d f over (alpha, theta) at the moved theta
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from calmtune.methods.passes import Direction, Pass


def iterate_step(lower: Pass, upper: Pass, *, task_update: Callable[[tuple[Tensor, ...]], None]) -> Direction:
    """Take the task step at once, and give the direction of the entropy step that follows it.

    Should the second pass fail, the task step has been taken all the same.

    Args:
        lower, upper: g on B_T and f on B_V, at whatever theta holds when they are called.
        task_update: gets the gradient of g by theta and moves theta by it, through theta's optimizer.

    Returns:
        The direction of the entropy step alone; ``lower`` is g before the task step.

    Source: CALM, section 5 (ablations): alternating task and entropy updates. There is no lambda.
    """
    task = lower(theta_gradient=True)
    task_update(task.theta)
    entropy = upper(theta_gradient=True)
    return Direction(entropy.theta, entropy.alpha, task.value, {"upper_loss": entropy.value})
