"""The paper's ablation "Regularization": the entropy as a penalty of fixed weight, in one level.

    direction = d g + w d f,   f = minus the mean entropy on S_V

Nothing asks whether the task still makes progress, which is what CALM's lambda is for.
"""

from __future__ import annotations

import math

from calmtune.methods.passes import Direction, Pass


def regularization_step(lower: Pass, upper: Pass, *, weight: float) -> Direction:
    """The gradient of g + w f over (alpha, theta).

    Args:
        lower, upper: g on B_T and f on B_V, at the same alpha and theta.
        weight: w >= 0, how much one nat of entropy is worth in nats of the task loss.

    Raises:
        ValueError: a weight that is negative or not finite.

    Source: CALM, section 5 (ablations): g - w H with a fixed w.
    """
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"entropy_weight must be a finite number >= 0, got {weight}")
    task = lower(theta_gradient=True)
    entropy = upper(theta_gradient=True)
    return Direction(
        theta=tuple(g + weight * f for g, f in zip(task.theta, entropy.theta, strict=True)),
        alpha=tuple(g + weight * f for g, f in zip(task.alpha, entropy.alpha, strict=True)),
        lower=task.value,
        logs={"upper_loss": entropy.value},
    )
