"""Gaps of the training rows, each read just before the step that trains on it: no held-out label is needed.

In the first epoch that is honest: an item has not been trained on when it is read. From the second on accuracy looks
better than it is on new questions, and the gap smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from calmtune.training.processes import ALONE, Processes


def gaps_of(adjusted: Tensor, labels: Tensor) -> Tensor:
    """Confidence minus correctness of each item.

    Args:
        adjusted: logits [B, K], -inf where an option is absent. labels: gold indices [B].
    """
    confidence, answer = torch.softmax(adjusted.detach().double(), -1).max(-1)
    return confidence - (answer == labels).double()


@dataclass
class BeforeSeen:
    """Sums over the items since they were last taken."""

    processes: Processes = ALONE
    total: float = 0.0
    square: float = 0.0
    count: int = 0

    def add(self, gaps: Sequence[Tensor]) -> None:
        """Take in one step's items, those of all processes."""
        mine = torch.cat([part.cpu() for part in gaps]) if gaps else torch.zeros(0, dtype=torch.float64)
        sums = (mine.sum().item(), mine.square().sum().item(), float(len(mine)))
        total, square, count = self.processes.merged({"gaps": sums})["gaps"]
        self.total, self.square, self.count = self.total + total, self.square + square, self.count + int(count)

    def take(self) -> tuple[float, float] | None:
        """Mean gap and standard error, as of :meth:`HeldOutScores.gaps`; None where there was no item."""
        total, square, count = self.total, self.square, self.count
        self.total, self.square, self.count = 0.0, 0.0, 0
        if not count:
            return None
        mean = total / count
        spread = max(square - count * mean**2, 0.0) + 0.25
        return mean, (spread / (count + 1) / count) ** 0.5

    def state(self) -> list[float]:
        """JSON values that :meth:`load` takes back."""
        return [self.total, self.square, self.count]

    def load(self, state: Sequence[float]) -> None:
        """Go on from what :meth:`state` gave."""
        self.total, self.square, self.count = float(state[0]), float(state[1]), int(state[2])
