"""Plain fine-tuning: the gradient of the raw cross-entropy, nothing else."""

from __future__ import annotations

from torch import Tensor

from calmtune.methods.passes import Pass


def sft_gradient(lower: Pass) -> tuple[float, tuple[Tensor, ...]]:
    """The loss in nats and its gradient with respect to theta."""
    result = lower(theta_gradient=True)
    return result.value, result.theta
