"""BOME's joint direction: the only place where lambda is computed.

The upper loss f is lowered as far as the lower problem allows. Progress on the lower problem is measured by the
residual q(alpha, theta) = g(alpha, theta) - g(alpha, theta~), theta~ after T gradient steps and constant from
there, and

    direction = df + lambda dq,      lambda = max((phi - <df, dq>) / ||dq||^2, 0)

is the vector nearest to df with <direction, dq> >= phi: q is made to fall at least at the rate phi.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Barrier = Literal["gradient", "residual"]
Tensors = Sequence[Tensor]


@dataclass(frozen=True)
class BomeDirection:
    """The joint direction and what it was made of.

    Attributes:
        direction: one tensor per input tensor, to be handed to an optimizer as ``.grad``.
        multiplier: lambda >= 0. barrier: phi. residual: q, nats.
        upper_norm, lower_norm: ||df||, ||dq||. cosine: of df and dq, NaN if either is zero.
    """

    direction: tuple[Tensor, ...]
    multiplier: float
    barrier: float
    residual: float
    upper_norm: float
    lower_norm: float
    cosine: float

    def logs(self) -> dict[str, float]:
        """The scalars under their log names."""
        names = ("multiplier", "residual", "upper_norm", "lower_norm", "cosine")
        return {name: getattr(self, name) for name in names}


def inner_product(a: Tensors, b: Tensors) -> float:
    """<a, b> over the concatenation of two lists of tensors, accumulated in float64."""
    return float(
        sum(float(torch.dot(x.reshape(-1).double(), y.reshape(-1).double())) for x, y in zip(a, b, strict=True))
    )


def bome_direction(
    upper_gradient: Tensors,
    residual_gradient: Tensors,
    residual: float = 0.0,
    *,
    eta: float = 0.5,
    barrier: Barrier = "gradient",
) -> BomeDirection:
    """df + lambda dq with lambda = max((phi - <df, dq>) / ||dq||^2, 0).

    Invariant: <direction, dq> >= phi up to rounding, with equality when lambda > 0.

    Args:
        upper_gradient: df, the gradient of the upper loss with respect to (alpha, theta), any list of tensors.
        residual_gradient: dq, tensors of the same shapes.
        residual: q in nats; used by ``barrier="residual"`` and reported.
        eta: >= 0, how much the lower problem must progress. barrier: phi = eta ||dq||^2, or eta q.

    Returns:
        The direction and its ingredients. ||dq|| = 0 gives lambda = 0 and direction = df.

    Raises:
        ValueError: eta below 0 or an unknown barrier. FloatingPointError: a norm or the residual is not finite.

    Example:
        >>> import torch
        >>> step = bome_direction([torch.tensor([1.0, 0.0])], [torch.tensor([-1.0, 1.0])], eta=0.5)
        >>> step.multiplier, step.direction[0].tolist()
        (1.0, [0.0, 1.0])

    Source: Ye et al. 2022 (BOME), equations 5 to 7.
    """
    if not (math.isfinite(eta) and eta >= 0):
        raise ValueError(f"eta must be a finite number >= 0, got {eta}")
    if barrier not in ("gradient", "residual"):
        raise ValueError(f"barrier must be 'gradient' or 'residual', got {barrier!r}")
    lower_squared = inner_product(residual_gradient, residual_gradient)
    upper_squared = inner_product(upper_gradient, upper_gradient)
    overlap = inner_product(upper_gradient, residual_gradient)
    if not all(map(math.isfinite, (lower_squared, upper_squared, overlap, residual))):
        raise FloatingPointError(
            f"not finite: ||df||^2 = {upper_squared}, ||dq||^2 = {lower_squared}, <df, dq> = {overlap}, q = {residual}"
        )
    phi = eta * lower_squared if barrier == "gradient" else eta * residual
    multiplier = 0.0 if lower_squared == 0 else max((phi - overlap) / lower_squared, 0.0)
    if not math.isfinite(multiplier):
        raise FloatingPointError(f"lambda is not finite: phi = {phi}, <df, dq> = {overlap}, ||dq||^2 = {lower_squared}")
    norms = math.sqrt(upper_squared), math.sqrt(lower_squared)
    return BomeDirection(
        direction=tuple(f + multiplier * q for f, q in zip(upper_gradient, residual_gradient, strict=True)),
        multiplier=multiplier,
        barrier=phi,
        residual=residual,
        upper_norm=norms[0],
        lower_norm=norms[1],
        cosine=overlap / (norms[0] * norms[1]) if norms[0] and norms[1] else math.nan,
    )


def bome_step(
    lower: Callable[[Tensors, Tensors], Tensor],
    upper: Callable[[Tensors, Tensors], Tensor],
    alpha: Tensors,
    theta: Tensors,
    *,
    inner_steps: int = 1,
    inner_learning_rate: float = 0.1,
    eta: float = 0.5,
    barrier: Barrier = "gradient",
) -> BomeDirection:
    """One direction for any differentiable bilevel problem, by plain autograd: for small problems and as the reference.

    Args:
        lower, upper: g(alpha, theta) and f(alpha, theta), scalars.
        alpha, theta: leaf tensors that require gradients; they are read, not changed.
        inner_steps: T >= 1. inner_learning_rate: a > 0.

    Returns:
        The direction over (*alpha, *theta), in that order.

    Example:
        >>> import torch
        >>> alpha, theta = [torch.zeros(1, requires_grad=True)], [torch.ones(1, requires_grad=True)]
        >>> step = bome_step(lambda a, t: (t[0] - a[0]).square().sum(), lambda a, t: t[0].square().sum(), alpha, theta)
        >>> round(step.residual, 2)
        0.36
    """
    surrogate = [t.detach().clone().requires_grad_() for t in theta]
    for _ in range(inner_steps):
        gradients = torch.autograd.grad(lower(alpha, surrogate), surrogate)
        surrogate = [
            (t - inner_learning_rate * g).detach().requires_grad_() for t, g in zip(surrogate, gradients, strict=True)
        ]
    constant = [t.detach() for t in surrogate]
    residual = lower(alpha, theta) - lower(alpha, constant)
    variables = [*alpha, *theta]
    d_residual = _gradients(residual, variables)
    d_upper = _gradients(upper(alpha, theta), variables)
    return bome_direction(d_upper, d_residual, residual.item(), eta=eta, barrier=barrier)


def _gradients(value: Tensor, variables: Tensors) -> tuple[Tensor, ...]:
    """Gradients with zeros where a variable does not take part."""
    found = torch.autograd.grad(value, variables, allow_unused=True)
    return tuple(torch.zeros_like(v) if g is None else g for v, g in zip(variables, found, strict=True))
