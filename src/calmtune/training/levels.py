"""Where the confidence is read: the two levels at which losses and entropies live.

``options``: the distribution over an item's own options. ``vocabulary``: the distribution over tokens at answer
positions. Both turn a batch into sums over what they count (items or positions), so that means over a whole effective
batch are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from calmtune.bilevel import LogitAdjustment, adjusted_cross_entropy, negative_entropy, read_logits
from calmtune.modeling.reading import Normalisation, adjust_options, eval_mode, head_of, option_scores, read_hidden
from calmtune.training.before_seen import gaps_of
from calmtune.training.processes import ALONE, Processes

Batch = Mapping[str, Any]
Sums = dict[str, tuple[float, int]]  # log name -> (sum, count)


class LowerLevel(Protocol):
    """A lower loss: what it counts, and its sum over that."""

    def lower_count(self, batch: Batch) -> int: ...

    def lower(self, model: nn.Module, batch: Batch, adjustment: LogitAdjustment | None, *, theta: bool) -> Tensor: ...


class Level(LowerLevel, Protocol):
    """A level: its two losses, as sums over what each counts."""

    name: str

    def upper_count(self, batch: Batch) -> int: ...

    def upper(
        self, model: nn.Module, batch: Batch, adjustment: LogitAdjustment | None, *, theta: bool, logs: Sums | None
    ) -> Tensor: ...


@dataclass(frozen=True)
class OptionsLevel:
    """Softmax over each item's own options; counts items.

    Args:
        width: K, the largest option count of all data sets (the size of a vector adjustment).
        normalisation: of text scores. entropy_target: nats above which an item is pushed no further.
        label_smoothing: eps of the lower loss.
        seen: takes each batch's gaps when the lower loss is first read, by the batch's identity; None: not wanted.
    """

    width: int
    normalisation: Normalisation = "sum"
    entropy_target: float | None = None
    chunk_size: int | None = None
    label_smoothing: float = 0.0
    name: str = "options"
    seen: dict[int, Tensor] | None = field(default=None, compare=False)

    def lower_count(self, batch: Batch) -> int:
        """Items in the batch."""
        return len(batch["labels"])

    def upper_count(self, batch: Batch) -> int:
        """Items in the batch."""
        return len(batch["labels"])

    def lower(self, model: nn.Module, batch: Batch, adjustment: LogitAdjustment | None, *, theta: bool) -> Tensor:
        """Sum over items of the cross-entropy of the gold option, nats."""
        scores, _, _ = self._scores(model, batch, theta=theta, entropy=False)
        if self.seen is not None and theta and id(batch) not in self.seen:
            shown = scores if adjustment is None else adjust_options(scores, adjustment)
            self.seen[id(batch)] = gaps_of(shown, batch["labels"])
        return adjusted_cross_entropy(
            scores, batch["labels"], adjustment, label_smoothing=self.label_smoothing, reduction="sum"
        )

    def upper(
        self, model: nn.Module, batch: Batch, adjustment: LogitAdjustment | None, *, theta: bool, logs: Sums | None
    ) -> Tensor:
        """Sum over items of minus the entropy over the options, nats; fills ``logs`` when given."""
        scores, mass, token_entropy = self._scores(model, batch, theta=theta, entropy=logs is not None)
        if logs is not None and token_entropy is not None:
            with torch.no_grad():
                count = len(scores)
                _add(logs, "upper_entropy", -negative_entropy(scores, adjustment, reduction="sum"), count)
                _add(logs, "upper_entropy_raw", -negative_entropy(scores, reduction="sum"), count)
                _add(logs, "token_entropy", token_entropy.sum(), count)
                _add(logs, "option_mass", mass.sum(), count)
        return negative_entropy(scores, adjustment, target=self.entropy_target, reduction="sum")

    def _scores(
        self, model: nn.Module, batch: Batch, *, theta: bool, entropy: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        with torch.set_grad_enabled(theta and torch.is_grad_enabled()):
            read = option_scores(
                model, batch, normalisation=self.normalisation, entropy=entropy, chunk_size=self.chunk_size
            )
            missing = self.width - read.scores.shape[1]
            if missing < 0:
                raise ValueError(
                    f"an item has {read.scores.shape[1]} options, but this run was set up for at most {self.width}; "
                    "give such rows to the trainer when it is made (train_dataset, upper_dataset or eval_dataset)"
                )
            scores = nn.functional.pad(read.scores, (0, missing), value=-torch.inf) if missing else read.scores
        return scores, read.option_mass, read.token_entropy


@dataclass(frozen=True)
class VocabularyLevel:
    """Softmax over the vocabulary at answer positions; counts positions.

    Args:
        positions: where the entropy is read: ``"first"`` after the prompt, all of the ``"response"``, or all of an
            answer of the model itself (``"sample"``), which whoever makes the batches has put in the response's place.
        entropy_target: nats above which a position is pushed no further. label_smoothing: eps of the lower loss.
    """

    positions: Literal["first", "response", "sample"] = "response"
    entropy_target: float | None = None
    chunk_size: int | None = None
    label_smoothing: float = 0.0
    name: str = "vocabulary"

    def lower_count(self, batch: Batch) -> int:
        """Answer tokens in the batch."""
        return len(batch["token_target"])

    def upper_count(self, batch: Batch) -> int:
        """Positions at which the entropy is read."""
        return int(batch["first_read"].sum()) if self.positions == "first" else len(batch["token_target"])

    def lower(self, model: nn.Module, batch: Batch, adjustment: LogitAdjustment | None, *, theta: bool) -> Tensor:
        """Sum over answer tokens of their cross-entropy, nats."""
        with torch.set_grad_enabled(theta and torch.is_grad_enabled()):
            hidden = read_hidden(model, batch)
        return adjusted_cross_entropy(
            hidden,
            batch["token_target"],
            adjustment,
            label_smoothing=self.label_smoothing,
            head=head_of(model),
            reduction="sum",
            chunk_size=self.chunk_size,
        )

    def upper(
        self, model: nn.Module, batch: Batch, adjustment: LogitAdjustment | None, *, theta: bool, logs: Sums | None
    ) -> Tensor:
        """Sum over positions of minus the entropy over the vocabulary, nats; fills ``logs`` when given."""
        with torch.set_grad_enabled(theta and torch.is_grad_enabled()):
            hidden = read_hidden(model, batch)
            hidden = hidden[batch["first_read"]] if self.positions == "first" else hidden
        head = head_of(model)
        if logs is not None:
            with torch.no_grad():
                count, common = len(hidden), {"head": head, "reduction": "sum", "chunk_size": self.chunk_size}
                _add(logs, "upper_entropy", -negative_entropy(hidden, adjustment, **common), count)
                _add(logs, "upper_entropy_raw", -negative_entropy(hidden, **common), count)
                if "letter_ids" in batch:
                    self._log_letters(
                        hidden if self.positions == "first" else hidden[batch["first_read"]], head, batch, logs
                    )
        return negative_entropy(
            hidden, adjustment, head=head, target=self.entropy_target, reduction="sum", chunk_size=self.chunk_size
        )

    def _log_letters(self, hidden: Tensor, head: nn.Module, batch: Batch, logs: Sums) -> None:
        """Entropy over the letters and their mass: mass can leave the letters while their own confidence stays."""
        letters: Tensor = batch["letter_ids"]
        row, column = torch.nonzero(letters >= 0, as_tuple=True)
        chosen, normaliser, _ = read_logits(hidden, row, letters[row, column], head, chunk_size=self.chunk_size)
        scores = torch.full(letters.shape, -torch.inf, device=chosen.device, dtype=chosen.dtype)
        scores[row, column] = chosen
        _add(logs, "option_entropy_raw", -negative_entropy(scores, reduction="sum"), len(scores))
        _add(logs, "option_mass", torch.exp(torch.logsumexp(scores, -1) - normaliser).sum(), len(scores))


def mean_losses(
    model: nn.Module,
    level: Level,
    adjustment: LogitAdjustment | None,
    batches: Iterable[Batch],
    autocast: Callable[[], AbstractContextManager[Any]],
    processes: Processes = ALONE,
) -> dict[str, float]:
    """Mean cross-entropy over everything that counts in the batches, in eval mode: adjusted (``loss``) and raw, nats.

    Without label smoothing, so that runs with and without it can be compared.

    Args:
        processes: those that share the batches; ``batches`` are this one's part.
    """
    sums, count = torch.zeros(2, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    plain = replace(level, label_smoothing=0.0)  # type: ignore[type-var]
    with processes.reading(sums, count), eval_mode(model):
        for batch in batches:
            count += plain.lower_count(batch)
            for place, alpha in enumerate((adjustment, None)):
                with autocast():
                    sums[place] += plain.lower(model, batch, alpha, theta=False).item()
    return dict(zip(("loss", "loss_raw"), (sums / count).tolist(), strict=True))


def letter_summary(adjustment: LogitAdjustment, level: Level, examples: Sequence[Any]) -> dict[str, float]:
    """min, mean and max of tau and l over the letters' ids; empty unless alpha has one entry per token."""
    ids = sorted({token for example in examples for token in getattr(example, "letter_ids", ())})
    if adjustment.kind != "vector" or isinstance(level, OptionsLevel) or not ids:
        return {}
    chosen = torch.tensor(ids, device=adjustment.logit_shift.device)
    return {f"option_{name}": value for name, value in adjustment.summary(chosen).items()}


def _add(logs: Sums, name: str, value: Tensor, count: int) -> None:
    total, seen = logs.get(name, (0.0, 0))
    logs[name] = (total + value.item(), seen + count)
