"""What a fine-tuning is made of: the recipe, the seeds, the data, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from calmtune.bilevel import LogitAdjustment
from toy_language.language import Domain
from toy_language.model import ToyModel

TRAIN, UPPER, CALIBRATION = 6400, 800, 400  # labelled; inputs only; labelled

Method = Literal["sft", "label_smoothing", "regularization", "iterate", "calm"]


@dataclass(frozen=True)
class Seeds:
    """Where chance enters, one number each, so that they can be varied one at a time."""

    split: int = 0  # which prompts and answers the data sets hold
    order: int = 0  # of the batches, lower and upper
    adapter: int = 0  # where the adapters start


@dataclass(frozen=True)
class Recipe:
    """One way to fine-tune; every method takes ``steps`` task steps on the same lower batches."""

    method: Method = "sft"
    steps: int = 500  # 5 epochs
    batch: int = 64
    upper_batch: int = 32
    learning_rate: float = 1e-3
    alpha_learning_rate: float = 0.3
    adjustment: Literal["vector", "scalar", "none"] = "vector"
    eta: float | Literal["auto"] = 1.0
    eta_start: float = 1.0
    inner_steps: int = 1
    inner_learning_rate: float = 0.01
    normalise: bool | None = None  # None: with eta auto alone
    smoothing: float = 0.1
    weight: float = 0.1
    signed: float = (
        0.0  # k > 0: the upper loss is multiplied by clip(k gap, -1, 1), an experiment of benchmarks/toy_eta.py
    )
    warm: bool = (
        False  # tau starts at the temperature that fits the calibration split, an experiment of the same script
    )
    average: int = 0  # theta and alpha are means over the last so many steps; 0: the last step's


@dataclass(frozen=True)
class Data:
    """S_T, S_V and the calibration split of the trained domain; no prompt is in two of them or held out."""

    train: tuple[Tensor, Tensor]
    upper: Tensor
    calibration: tuple[Tensor, Tensor]


@dataclass
class Tuned:
    """A fine-tuned model, its adjustment (None where the method has none), and what was logged on the way."""

    model: ToyModel
    adjustment: LogitAdjustment | None
    history: list[dict[str, float]] = field(default_factory=list)

    @torch.no_grad()
    def logits(self, prompts: Tensor, *, adjusted: bool) -> Tensor:
        """[n, WORDS], raw or adjusted."""
        z = self.model(prompts)
        return self.adjustment(z) if adjusted and self.adjustment is not None else z


def draw_data(training: Domain, seed: int, calibration_count: int = CALIBRATION) -> Data:
    """Part the prompts 4 : 1 : 1 and draw each data set from its part."""
    generator = torch.Generator().manual_seed(seed)
    parts = torch.randperm(len(training.weight), generator=generator) % 6
    train, upper, calibration = (
        training.part(rows).sample(count, generator)
        for rows, count in ((parts < 4, TRAIN), (parts == 4, UPPER), (parts == 5, calibration_count))
    )
    return Data(train, upper[0], calibration)
