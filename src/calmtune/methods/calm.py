"""CALM's step: first-order bilevel optimisation with nothing done twice.

The gradient of g at theta serves as the first inner step and as the theta-part of dq; the surrogate needs a forward
pass without a graph, because its alpha-gradient has a closed form. With T = 1 a step costs a forward-backward on B_T, a
forward on B_T and a forward-backward on B_V. The surrogate lives in place of theta and is undone by copying, so theta
is bit-exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from calmtune.bilevel.bome import Barrier, BomeDirection, bome_direction
from calmtune.methods.passes import Parameters, Pass


@dataclass(frozen=True)
class CalmStep:
    """The joint direction, split into its two blocks, with the values it was made of.

    Attributes:
        theta, alpha: directions, to be handed to the optimizers as gradients.
        lower, upper: g and f in nats. bome: multiplier, norms, residual, cosine.
        logs: the scalars under their log names.
    """

    theta: tuple[Tensor, ...]
    alpha: tuple[Tensor, ...]
    lower: float
    upper: float
    bome: BomeDirection

    @property
    def logs(self) -> dict[str, float]:
        """Upper loss, multiplier, residual, norms and cosine."""
        return {"upper_loss": self.upper, **self.bome.logs()}


def calm_step(
    theta: Parameters,
    lower: Pass,
    upper: Pass,
    *,
    eta: float,
    barrier: Barrier = "gradient",
    inner_steps: int = 1,
    inner_learning_rate: float = 0.01,
    upper_gradient: Literal["joint", "alpha"] = "joint",
    normalise: bool = False,
) -> CalmStep:
    """One direction over (alpha, theta).

    Args:
        theta: the trainable parameters, which ``lower`` and ``upper`` read. Changed during the call, bit-exact after
            it.
        lower, upper: g on B_T and f on B_V, at whatever theta holds when they are called.
        inner_steps, inner_learning_rate: T and a of the surrogate.
        upper_gradient: ``"alpha"`` leaves the theta-block out of df: theta then follows lambda dq only.
        normalise: divide the direction by 1 + lambda. It points where it did, but a large eta then slows the pull of
            the entropy where it would otherwise speed up the task's; ``eta: auto`` holds alpha back with it.

    Source: CALM, algorithm 1; BOME (Ye et al. 2022), algorithm 1.
    """
    here = lower(theta_gradient=True)
    with _moved(theta):
        _descend(theta, here.theta, inner_learning_rate)
        for _ in range(inner_steps - 1):
            _descend(theta, lower(theta_gradient=True).theta, inner_learning_rate)
        surrogate = lower(theta_gradient=False)
    above = upper(theta_gradient=upper_gradient == "joint")
    d_theta = above.theta if upper_gradient == "joint" else tuple(torch.zeros_like(t) for t in here.theta)
    d_residual = (*(a - b for a, b in zip(here.alpha, surrogate.alpha, strict=True)), *here.theta)
    bome = bome_direction((*above.alpha, *d_theta), d_residual, here.value - surrogate.value, eta=eta, barrier=barrier)
    scale = 1.0 / (1.0 + bome.multiplier) if normalise else 1.0
    direction = tuple(part * scale for part in bome.direction) if normalise else bome.direction
    split = len(here.alpha)
    return CalmStep(direction[split:], direction[:split], here.value, above.value, bome)


@torch.no_grad()
def _descend(theta: Parameters, gradients: Sequence[Tensor], rate: float) -> None:
    for parameter, gradient in zip(theta, gradients, strict=True):
        parameter.sub_(gradient, alpha=rate)


@contextmanager
def _moved(theta: Parameters) -> Iterator[None]:
    """theta may move inside; afterwards it holds the very bits it held before, also after an exception."""
    kept = [t.detach().clone() for t in theta]
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, old in zip(theta, kept, strict=True):
                parameter.copy_(old)
