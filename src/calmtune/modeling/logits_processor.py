"""alpha and a temperature in ``generate``: the adjusted distribution, sampled wherever transformers generates text."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import torch
from transformers import LogitsProcessor

from calmtune.bilevel.adjustment import LogitAdjustment
from calmtune.modeling.calibration_files import load_calibration


class AdjustmentProcessor(LogitsProcessor):
    """Turns next-token logits z into (z / tau + l) / T.

    transformers runs it before the temperature, top-k and top-p of its own generation settings, which act on what it
    gives.

    Args:
        adjustment: alpha = (l, tau) with one class a vocabulary entry, or one for all; None for the temperature alone.
        temperature: T > 0, one number for all tokens.
        level: what alpha was trained for; only ``"vocabulary"`` has a meaning for tokens.

    Raises:
        ValueError: alpha acts on options, or T is not above 0.

    Example:
        >>> alpha = LogitAdjustment(3, kind="scalar")
        >>> alpha.start_at_(2.0)
        >>> AdjustmentProcessor(alpha, temperature=0.5)(torch.tensor([[0]]), torch.tensor([[3.0, 1.0, -1.0]]))
        tensor([[ 3.,  1., -1.]])

    Source: CALM section 3 (l, tau).
    """

    def __init__(
        self,
        adjustment: LogitAdjustment | None,
        temperature: float = 1.0,
        level: Literal["options", "vocabulary"] = "vocabulary",
    ) -> None:
        if level not in ("options", "vocabulary"):
            raise ValueError(f"level must be 'options' or 'vocabulary', got {level!r}")
        applies = adjustment is not None and not adjustment.is_identity
        if applies and level != "vocabulary":
            raise ValueError(
                "this alpha has one class for an option's place (level: options), not for a token, so it says nothing "
                "about which token comes next; score options with it (calmtune evaluate), train with level: "
                "vocabulary, or generate without it"
            )
        if not (math.isfinite(temperature) and temperature > 0):
            raise ValueError(
                f"temperature must be > 0, got {temperature}; for the most probable token use top_k = 1, or generate "
                "with do_sample=False"
            )
        self.adjustment = adjustment if applies else None
        self.temperature = float(temperature)

    @classmethod
    def from_pretrained(cls, directory: str | Path, *, temperature: float = 1.0) -> AdjustmentProcessor:
        """The processor of a run's folder, for the model of that run.

        Args:
            directory: holds ``calibration.json`` and, where the run has an alpha, ``adjustment.safetensors``.
            temperature: T on top; one that was fitted on option scores says nothing about tokens, so none is taken from
                the record.

        Raises:
            FileNotFoundError: a file is missing. ValueError: it is damaged, or alpha acts on options.
        """
        adjustment, record = load_calibration(directory)
        return cls(adjustment, temperature, record["level"])

    @torch.no_grad()
    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Adjusted logits, float32 or better.

        Args:
            input_ids: [B, L], not read. scores: [B, V] next-token logits.

        Raises:
            ValueError: alpha has another number of classes than ``scores`` has tokens.
        """
        z: torch.Tensor = scores
        if self.adjustment is not None:
            if self.adjustment.logit_shift.device != scores.device:
                self.adjustment.to(scores.device)
            z = self.adjustment(scores)
        return z if self.temperature == 1 else z / self.temperature  # type: ignore[return-value]
