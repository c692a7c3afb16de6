"""The lower losses of CFT and RCFT, which read the answer's tokens under the whole vocabulary and count questions."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from calmtune.bilevel import LogitAdjustment, read_logits
from calmtune.methods.cft import answer_cross_entropy
from calmtune.methods.rcft import BinTable, item_accuracy, item_weights, regulariser
from calmtune.modeling.reading import Normalisation, head_of, option_scores, read_hidden
from calmtune.training.levels import Batch


@dataclass(frozen=True)
class AnswerLevel:
    """CFT: cross-entropy of the gold answer's tokens, a mean over its tokens for each question; counts questions."""

    chunk_size: int | None = None
    name: str = "vocabulary"

    def lower_count(self, batch: Batch) -> int:
        """Questions in the batch."""
        return len(batch["input_ids"])

    def lower(self, model: nn.Module, batch: Batch, adjustment: LogitAdjustment | None, *, theta: bool) -> Tensor:
        """Sum over questions, nats."""
        with torch.set_grad_enabled(theta and torch.is_grad_enabled()):
            hidden = read_hidden(model, batch)
            places = torch.arange(len(hidden), device=hidden.device)
            chosen, normaliser, _ = read_logits(
                hidden, places, batch["token_target"], head_of(model), chunk_size=self.chunk_size
            )
            count, length = batch["input_ids"].shape
            row = torch.div(batch["read_index"], length, rounding_mode="floor")
            total = torch.zeros(count, dtype=chosen.dtype, device=chosen.device).index_add(0, row, chosen - normaliser)
            return answer_cross_entropy(total, torch.bincount(row, minlength=count))


@dataclass
class RegularisedAnswerLevel:
    """RCFT: the same plus the ECE penalty over each question's options; counts questions.

    Args:
        normalisation: of the option scores that the penalty reads. weight: of the penalty.

    Attributes:
        table: the bins of the last E-step; None until there was one.
        parts: sums of the two parts since they were last taken, for the log.
    """

    normalisation: Normalisation = "sum"
    weight: float = 1.0
    chunk_size: int | None = None
    name: str = "options"
    table: BinTable | None = None
    parts: dict[str, float] = field(default_factory=dict)

    def lower_count(self, batch: Batch) -> int:
        """Questions in the batch."""
        return len(batch["labels"])

    def lower(self, model: nn.Module, batch: Batch, adjustment: LogitAdjustment | None, *, theta: bool) -> Tensor:
        """Sum over questions, nats and (for the penalty) squared probability."""
        assert self.table is not None, "the E-step comes first"
        with torch.set_grad_enabled(theta and torch.is_grad_enabled()):
            read = option_scores(model, batch, normalisation=self.normalisation, chunk_size=self.chunk_size)
            gold: Tensor = batch["labels"][:, None]
            tokens = batch["option_tokens"].gather(1, gold).squeeze(1)
            answer = answer_cross_entropy(read.log_probability.gather(1, gold).squeeze(1), tokens)
            ids, device = batch["ids"], read.scores.device
            penalties = regulariser(read.scores, item_accuracy(self.table, ids, device))
            penalty = (item_weights(self.table, ids, device) * penalties).sum()
        for name, part in (("answer_loss", answer), ("penalty", penalty)):
            self.parts[name] = self.parts.get(name, 0.0) + part.item()
        return answer + self.weight * penalty

    def take_logs(self, count: int) -> dict[str, float]:
        """Means of the two parts over ``count`` questions since the last call."""
        parts, self.parts = self.parts, {}
        return {name: total / count for name, total in parts.items()}
