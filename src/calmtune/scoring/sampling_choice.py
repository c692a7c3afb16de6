"""Drawing the next token of many rows: exact samples, each row with random numbers of its own.

A token is drawn as argmin_v E_v / p_v with E_v independent and exponential, which gives token v with probability p_v.
The winner changes only where two tokens come within rounding of each other, so a row's tokens are the same in whatever
batch it is computed; drawing by the cumulative sum would let every rounding error move all the tokens behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from calmtune.bilevel.adjustment import LogitAdjustment
from calmtune.modeling.logits_processor import AdjustmentProcessor
from calmtune.scoring.sampling_settings import SamplingSettings


class Noise:
    """Exponential random numbers for each row of a batch, one stream a row, on the device of the logits.

    Args:
        seeds: one for every row, in [0, 2^63).
        device: where the numbers are needed. A CUDA device draws its own; for all others numpy does.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self.device = device
        self.own = device.type == "cuda"
        self.streams = [
            torch.Generator(device).manual_seed(seed) if self.own else np.random.Generator(np.random.SFC64(seed))
            for seed in seeds
        ]

    @staticmethod
    def source(device: torch.device) -> str:
        """The name of the generator, for the record: another one gives other samples."""
        return "torch CUDA" if device.type == "cuda" else "numpy SFC64"

    def draw(self, rows: Sequence[int], count: int) -> Tensor:
        """The next ``count`` numbers of some rows, float32 [len(rows), count], all > 0."""
        # drawn in double precision: in single precision the least number above 0 is so large, and 0 itself so likely,
        # that tokens of tiny probability would come up far too often
        if self.own:
            wide = torch.empty(len(rows), count, dtype=torch.float64, device=self.device)
            for place, row in enumerate(rows):
                wide[place].exponential_(generator=self.streams[row])
            numbers = wide.float()
        else:
            table = np.empty((len(rows), count), dtype=np.float32)
            for place, row in enumerate(rows):
                table[place] = self.streams[row].standard_exponential(count)
            numbers = torch.from_numpy(table).to(self.device)
        return numbers.clamp_(min=torch.finfo(torch.float32).tiny)


@dataclass(frozen=True)
class Chosen:
    """The next token of each row, int64 [R], and its log-probabilities in nats, float32 [R], at T = 1 with all tokens
    kept: ``raw`` is log softmax(z), ``adjusted`` log softmax(z~), or None without alpha.
    """

    token: Tensor
    raw: Tensor
    adjusted: Tensor | None


class Chooser:
    """Draws tokens from logits: alpha, then temperature, top-k and top-p, in the order of ``generate``.

    Args:
        settings: temperature, top_k and top_p.
        adjustment: a vocabulary-level alpha, or None.
    """

    def __init__(self, settings: SamplingSettings, adjustment: LogitAdjustment | None) -> None:
        self.adjust = AdjustmentProcessor(adjustment) if adjustment is not None else None
        self.warp = LogitsProcessorList()
        if settings.temperature != 1:
            self.warp.append(TemperatureLogitsWarper(float(settings.temperature)))
        if settings.top_k:
            self.warp.append(TopKLogitsWarper(settings.top_k))
        if settings.top_p < 1:
            self.warp.append(TopPLogitsWarper(settings.top_p))

    def __call__(self, logits: Tensor, exponential: Tensor) -> Chosen:
        """Draw one token a row.

        Args:
            logits: [R, V], as the model gives them.
            exponential: [R, V] from :class:`Noise`; overwritten.
        """
        no_history = torch.empty(len(logits), 0, dtype=torch.long, device=logits.device)
        z = logits.float()
        adjusted_z = z if self.adjust is None else self.adjust(no_history, z)
        raw = torch.log_softmax(z, -1)
        adjusted = raw if self.adjust is None else torch.log_softmax(adjusted_z, -1)
        p = torch.softmax(self.warp(no_history, adjusted_z), -1) if self.warp else adjusted.exp()
        token = exponential.div_(p).argmin(-1, keepdim=True)
        return Chosen(
            token[:, 0],
            raw.gather(-1, token)[:, 0],
            None if self.adjust is None else adjusted.gather(-1, token)[:, 0],
        )
