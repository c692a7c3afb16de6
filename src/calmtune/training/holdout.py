"""A labelled held-out slice, read while training goes on: for the self-tuning barrier and for choosing a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from calmtune import metrics
from calmtune.bilevel import LogitAdjustment
from calmtune.data.encoding import collate_items, tree_length
from calmtune.data.prompts import EncodedItem
from calmtune.modeling.reading import Normalisation, adjusted_scores, eval_mode, option_scores, read_hidden
from calmtune.training.processes import ALONE, Processes
from calmtune.training.streams import micro_batches

Floats = NDArray[np.float64]
Domains = Literal["pooled", "worst"]

ACCURACY_SHORTFALL_WEIGHT = 1000.0  # nats for an accuracy of 0: a broken constraint outweighs any score


@dataclass(frozen=True)
class HeldOutScores:
    """What a model says about labelled items, raw and adjusted.

    Attributes:
        raw, adjusted: probabilities float64 [N, K], 0 for absent options; the same where there is no alpha.
        labels: int64 [N]. n_options: int64 [N]. domains: N names.
    """

    raw: Floats
    adjusted: Floats
    labels: NDArray[np.int64]
    n_options: NDArray[np.int64]
    domains: tuple[str, ...]

    def groups(self) -> dict[str, NDArray[np.int64]]:
        """Indices of the items by domain."""
        names = np.array(self.domains)
        return {name: np.flatnonzero(names == name) for name in dict.fromkeys(self.domains)}

    @property
    def accuracy(self) -> float:
        """Share of items whose most probable option is the gold one."""
        return float((self.adjusted.argmax(axis=1) == self.labels).mean())

    def gaps(self, *, by_domain: bool) -> dict[str, tuple[float, float]]:
        """Mean adjusted confidence minus accuracy, and its standard error, for all items or by domain.

        The error counts one more item that is off by one half, so that few items that happen to agree are not taken
        for certainty.
        """
        off = self.adjusted.max(axis=1) - (self.adjusted.argmax(axis=1) == self.labels)
        groups = self.groups() if by_domain else {"all": np.arange(len(off))}
        found = {}
        for name, members in groups.items():
            mine = off[members]
            variance = (((mine - mine.mean()) ** 2).sum() + 0.25) / (len(mine) + 1)
            found[name] = float(mine.mean()), float(np.sqrt(variance / len(mine)))
        return found

    def gap_to_chance(self) -> tuple[float, float]:
        """Mean adjusted confidence minus 1 / K, and its standard error: the gap where no option is the right one."""
        off = self.adjusted.max(axis=1) - 1.0 / self.n_options
        return float(off.mean()), float(off.std() / np.sqrt(len(off)))

    def score(self, metric: str, domains: Domains = "pooled") -> float:
        """A selection metric of the adjusted distribution, lower is better: over all items, or of the worst domain."""
        groups = self.groups().values() if domains == "worst" else [np.arange(len(self.labels))]
        return max(self._metric(metric, members) for members in groups)

    def _metric(self, metric: str, members: NDArray[np.int64]) -> float:
        p, y = self.adjusted[members], self.labels[members]
        if metric == "nll":
            return metrics.negative_log_likelihood(p, y)
        if metric == "brier":
            return metrics.brier_score(p, y)
        return metrics.expected_calibration_error(p.max(axis=1), p.argmax(axis=1) == y)

    def summary(self) -> dict[str, float]:
        """The figures that are logged at an evaluation."""
        p, y = self.adjusted, self.labels
        return {
            "nll": metrics.negative_log_likelihood(p, y),
            "nll_raw": metrics.negative_log_likelihood(self.raw, y),
            "brier": metrics.brier_score(p, y),
            "conf_ece": self.score("conf_ece"),
            "accuracy": self.accuracy,
            "gap": self.gaps(by_domain=False)["all"][0],
        }


def selection_loss(scores: HeldOutScores, metric: str, domains: Domains, floor: float) -> float:
    """What the best checkpoint has least of: the metric, with a penalty that outweighs it where accuracy < floor."""
    return scores.score(metric, domains) + ACCURACY_SHORTFALL_WEIGHT * max(0.0, floor - scores.accuracy)


@dataclass(frozen=True)
class HeldOut:
    """Labelled items and how they are read.

    Args:
        items: encoded, with labels and domains; none may be trained on. batch_size: items in one forward pass.
        prepare: moves a batch to the device. autocast: the trainer's.
        processes: those that share the reading; every one gets all scores.
    """

    items: Sequence[EncodedItem]
    level: Literal["options", "vocabulary"]
    normalisation: Normalisation
    batch_size: int
    pad_id: int
    prepare: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    autocast: Callable[[], AbstractContextManager[Any]]
    processes: Processes = ALONE

    def score(
        self, model: nn.Module, adjustment: LogitAdjustment | None, indices: Sequence[int] | None = None
    ) -> HeldOutScores:
        """Read the items (of these indices; by default all) with the model in eval mode."""
        chosen = list(range(len(self.items)) if indices is None else indices)
        # like with like, for less padding; the order of the result is that of the indices
        order = sorted(range(len(chosen)), key=lambda place: tree_length(self.items[chosen[place]]))
        width = max(len(item.option_ids) for item in self.items)
        raw, adjusted = np.zeros((len(chosen), width)), np.zeros((len(chosen), width))
        everything = torch.from_numpy(raw), torch.from_numpy(adjusted)
        with self.processes.reading(*everything), eval_mode(model), torch.no_grad(), self.autocast():
            for places in self.processes.dealt(micro_batches(order, self.batch_size)):
                first, second = self._read(model, adjustment, [self.items[chosen[place]] for place in places])
                raw[places, : first.shape[1]] = first
                adjusted[places, : second.shape[1]] = second
        items = [self.items[index] for index in chosen]
        return HeldOutScores(
            raw,
            adjusted,
            np.array([item.label for item in items], dtype=np.int64),
            np.array([len(item.option_ids) for item in items], dtype=np.int64),
            tuple(item.domain for item in items),
        )

    def _read(
        self, model: nn.Module, adjustment: LogitAdjustment | None, items: list[EncodedItem]
    ) -> tuple[Floats, Floats]:
        batch = self.prepare(collate_items(items, self.pad_id))
        hidden = read_hidden(model, batch)
        found = option_scores(model, batch, normalisation=self.normalisation, hidden=hidden)
        under = adjusted_scores(
            model, batch, found, adjustment, self.level, normalisation=self.normalisation, hidden=hidden
        )
        return _probabilities(found.scores), _probabilities(found.scores if under is None else under)


def _probabilities(scores: Tensor) -> Floats:
    return torch.softmax(scores.double(), dim=-1).cpu().numpy()
