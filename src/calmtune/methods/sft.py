"""Plain fine-tuning: the gradient of the lower loss, nothing else."""

from __future__ import annotations

from calmtune.methods.passes import Direction, Pass


def plain_step(lower: Pass) -> Direction:
    """The gradient of the lower loss by theta. alpha is not touched, so the loss should be read without one."""
    result = lower(theta_gradient=True)
    return Direction(result.theta, (), result.value)
