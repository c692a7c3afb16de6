"""What a method may ask of a model: a pass over a batch, and the gradients that come of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class PassResult:
    """One pass over one whole effective batch.

    Attributes:
        value: mean loss over the counted positions or items, nats.
        theta: gradient by trainable parameter, or () when it was not asked for.
        alpha: gradient by adjustment parameter, () without an adjustment.
    """

    value: float
    theta: tuple[Tensor, ...]
    alpha: tuple[Tensor, ...]


class Pass(Protocol):
    """Runs the model at the current theta and alpha over a fixed batch."""

    def __call__(self, *, theta_gradient: bool) -> PassResult: ...


@dataclass(frozen=True)
class Direction:
    """What a method hands to the optimizers.

    Attributes:
        theta: gradient by trainable parameter.
        alpha: gradient by adjustment parameter; () where the method has no alpha.
        lower: the lower loss, nats.
        logs: more scalars by log name.
    """

    theta: tuple[Tensor, ...]
    alpha: tuple[Tensor, ...]
    lower: float
    logs: Mapping[str, float] = field(default_factory=dict)


Parameters = Sequence[Tensor]
