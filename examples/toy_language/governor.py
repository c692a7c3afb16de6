"""What follows the overconfidence gap during training: eta, or the pull of the entropy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from calmtune.bilevel.self_tuning import EtaController, GapFilter
from toy_language.recipe import Recipe, Tuned

EVERY = 5  # steps between two looks at the gap


class GapSource(Protocol):
    """Where the controller of eta learns how overconfident the model is."""

    def before(self, tuned: Tuned, lower: tuple[Tensor, Tensor], upper: Tensor) -> None:
        """Sees the batches of each step before the step is taken."""

    def __call__(self, tuned: Tuned) -> tuple[float, float]:
        """Mean confidence minus accuracy, and its standard error."""


@dataclass(frozen=True)
class CalibrationGap:
    """The package's choice: a labelled split that nothing is trained on."""

    items: tuple[Tensor, Tensor]

    def before(self, tuned: Tuned, lower: tuple[Tensor, Tensor], upper: Tensor) -> None:
        """Nothing to do."""

    def __call__(self, tuned: Tuned) -> tuple[float, float]:
        """The gap of the adjusted distribution on the split."""
        return mean_and_error(gaps_of(tuned, *self.items))


def gaps_of(tuned: Tuned, prompts: Tensor, answers: Tensor) -> Tensor:
    """Adjusted confidence minus 1{right} of labelled items, [n]."""
    confidence, answer = torch.softmax(tuned.logits(prompts, adjusted=True), -1).max(-1)
    return confidence - (answer == answers).float()


def mean_and_error(values: Tensor) -> tuple[float, float]:
    """Mean and its standard error."""
    return values.mean().item(), values.std().item() / math.sqrt(len(values))


@dataclass
class Governor:
    """Turns looks at the gap into eta (``eta="auto"``) or into the pull of the entropy (``signed``).

    Args:
        recipe: what is to be followed, if anything. gap: where to look. controller: of eta; needed with ``eta="auto"``.

    Attributes:
        pull: factor of the upper loss, in [-1, 1].
    """

    recipe: Recipe
    gap: GapSource
    controller: EtaController
    pull: float = 1.0
    follower: GapFilter = field(default_factory=GapFilter)

    @property
    def automatic(self) -> bool:
        """Whether eta is the controller's."""
        return self.recipe.method == "calm" and self.recipe.eta == "auto"

    @property
    def eta(self) -> float:
        """eta of the next step."""
        return self.controller.eta if self.recipe.eta == "auto" else self.recipe.eta

    def before(self, tuned: Tuned, lower: tuple[Tensor, Tensor], upper: Tensor) -> None:
        """Let the source of the gap see the batches of a step that is not taken yet."""
        self.gap.before(tuned, lower, upper)

    def after(self, step: int, tuned: Tuned) -> dict[str, float]:
        """Look at the gap when it is time; what was seen and done, for the log."""
        if not (self.automatic or self.recipe.signed) or (step + 1) % EVERY:
            return {}
        value, error = self.gap(tuned)
        seen = {"gap": value, "gap_error": error}
        if self.automatic:
            seen["eta"] = self.controller.update({"trained": (value, error)})
        if self.recipe.signed:
            seen["pull"] = self.pull = min(max(self.recipe.signed * self.follower.update(value, error), -1.0), 1.0)
        return seen
