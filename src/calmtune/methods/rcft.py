"""Regularised calibration-aware fine-tuning: CFT plus an ECE penalty, by expectation and maximisation.

E-step, once an epoch: put the training items into bins of confidence and take each bin's accuracy acc_b. M-step: pull
each item's probabilities towards targets t that give acc_b to the answer the model prefers,

    CFT + w sum_b 1/n_b sum_{i in b} [ (p_i,max - acc_b)^2 + sum_{j != max} (p_ij - t_ij)^2 ]

p is the softmax over the item's own options. The table is made on the whole training set; a mini-batch estimates the
sum over bins without bias as its mean of N / n_b times the item's penalty.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Device = torch.device | str | None


@dataclass(frozen=True)
class BinTable:
    """What the E-step found.

    Attributes:
        bins: item id -> bin.
        accuracy: by bin, the part of its items that the model answers correctly; None for an empty bin.
        count: by bin, n_b.

    Raises:
        ValueError: the three do not fit together.
    """

    bins: Mapping[str, int]
    accuracy: tuple[float | None, ...]
    count: tuple[int, ...]

    def __post_init__(self) -> None:
        found = Counter(self.bins.values())
        counts = {b: n for b, n in enumerate(self.count) if n}
        if found != counts or [a is not None for a in self.accuracy] != [n > 0 for n in self.count]:
            raise ValueError(
                f"bins hold {dict(sorted(found.items()))} items, count says {counts}, accuracy has "
                f"{len(self.accuracy)} entries; make the table anew with expectation()"
            )

    def bin_of(self, identity: str) -> int:
        """The bin of one item.

        Raises:
            ValueError: the item was not in the E-step.
        """
        if identity not in self.bins:
            raise ValueError(
                f"item {identity!r} is not among the {len(self.bins)} items of the E-step; "
                "run expectation() over the whole training set"
            )
        return self.bins[identity]

    def state(self) -> dict[str, Any]:
        """The table as JSON can hold it, for a checkpoint."""
        return {"bins": dict(self.bins), "accuracy": list(self.accuracy), "count": list(self.count)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> BinTable:
        """The table that gave this :meth:`state`.

        Example:
            >>> table = expectation(["a", "b"], torch.tensor([0.25, 1.0]), torch.tensor([True, False]), n_bins=2)
            >>> BinTable.from_state(table.state()) == table
            True
        """
        return cls(dict(state["bins"]), tuple(state["accuracy"]), tuple(state["count"]))


def expectation(ids: Sequence[str], confidence: Tensor, correct: Tensor, n_bins: int = 10) -> BinTable:
    """The E-step: bins [0, 1/M), [1/M, 2/M), ..., [(M-1)/M, 1] of the confidence and the accuracy in each.

    Args:
        ids: N different item ids.
        confidence: [N], p_max over the item's options, in [0, 1].
        correct: bool [N], whether that option is the gold one.
        n_bins: M >= 1; may exceed N, empty bins are fine.

    Raises:
        ValueError: no items, lengths that differ, an id given twice, a confidence outside [0, 1], or M below 1.

    Example:
        >>> table = expectation(["a", "b", "c"], torch.tensor([0.5, 0.55, 1.0]), torch.tensor([True, False, True]))
        >>> table.accuracy[5], table.accuracy[9], table.count[5]
        (0.5, 1.0, 2)

    Source: Xiao et al. 2025 (arXiv 2505.01997), the E-step of RCFT.
    """
    _check_items(ids, confidence, correct, n_bins)
    values = confidence.detach().cpu()
    # edges in the confidences' own precision: what equals k/M there opens bin k
    edges = (torch.arange(1, n_bins, dtype=torch.float64) / n_bins).to(values.dtype)
    item = torch.bucketize(values, edges, right=True)
    count = torch.bincount(item, minlength=n_bins).tolist()
    hits = torch.bincount(item[correct.detach().cpu()], minlength=n_bins).tolist()
    return BinTable(
        bins=dict(zip(ids, item.tolist(), strict=True)),
        accuracy=tuple(h / n if n else None for h, n in zip(hits, count, strict=True)),
        count=tuple(count),
    )


def item_accuracy(table: BinTable, ids: Sequence[str], device: Device = None) -> Tensor:
    """acc_b of each item's bin, float32 [B]."""
    return torch.tensor([table.accuracy[table.bin_of(i)] for i in ids], dtype=torch.float32, device=device)


def item_weights(table: BinTable, ids: Sequence[str], device: Device = None) -> Tensor:
    """N / n_b of each item's bin, float32 [B].

    The mean of weight times penalty over a uniformly drawn mini-batch then estimates sum_b 1/n_b sum_{i in b} without
    bias.
    """
    total = len(table.bins)
    return torch.tensor([total / table.count[table.bin_of(i)] for i in ids], dtype=torch.float32, device=device)


@torch.no_grad()
def targets(p: Tensor, accuracy: Tensor, present: Tensor | None = None) -> Tensor:
    """The probabilities an item should have: acc_b for its preferred option, 1 - acc_b shared out among the others.

        t_ij    = kappa_i (tanh(gamma_i p_ij) + 1)
        kappa_i = (1 - acc_b) / (n_options - 1 + sum_{j != max} tanh(gamma_i p_ij))
        gamma_i = ln 3 / (p_i,2nd (1 - acc_b))

    The others keep their rank and sum to 1 - acc_b; all 0 when acc_b = 1. Where p_2nd = 0 they share equally.

    Args:
        p: [B, K], probabilities over the options. accuracy: [B], acc_b of each item's bin, in [0, 1].
        present: bool [B, K], the options an item has; None means all K. An absent option's target is 0.

    Returns:
        t, [B, K], without gradient.

    Example:
        >>> targets(torch.tensor([[0.6, 0.4]]), torch.tensor([0.75])).tolist()
        [[0.75, 0.25]]

    Source: Xiao et al. 2025 (arXiv 2505.01997), the M-step of RCFT.
    """
    accuracy = accuracy.to(p.dtype)[:, None]
    rest = 1.0 - accuracy
    top = p.argmax(-1, keepdim=True)
    others = torch.ones_like(p, dtype=torch.bool) if present is None else present.clone()
    others.scatter_(-1, top, False)
    second = p.masked_fill(~others, 0.0).amax(-1, keepdim=True)
    # gamma p = ln 3 / (1 - acc) * p / p_2nd: neither quotient can overflow into 0 * inf
    ratio = p / second.masked_fill(second == 0, 1.0)
    raised = torch.where(others, 1.0 + torch.tanh(ratio * (math.log(3.0) / rest.masked_fill(rest == 0, 1.0))), 0.0)
    total = raised.sum(-1, keepdim=True)
    return (rest * raised / total.masked_fill(total == 0, 1.0)).scatter(-1, top, accuracy)


def regulariser(scores: Tensor, accuracy: Tensor) -> Tensor:
    """The penalty of each item: (p_max - acc_b)^2 + sum_{j != max} (p_ij - t_ij)^2.

    Args:
        scores: [B, K], raw option scores (-inf marks an absent option), any float dtype.
        accuracy: [B], acc_b of each item's bin.

    Returns:
        [B] in float32 (float64 for float64 scores), differentiable by ``scores``; the targets are constants.

    Raises:
        ValueError: shapes that do not fit.

    Example:
        >>> round(regulariser(torch.zeros(1, 2), torch.tensor([0.75])).item(), 4)
        0.125
    """
    if scores.dim() != 2 or accuracy.shape != scores.shape[:1]:
        raise ValueError(
            f"expected scores [B, K] and accuracy [B], got {tuple(scores.shape)} and {tuple(accuracy.shape)}"
        )
    p = torch.softmax(scores if scores.dtype == torch.float64 else scores.float(), dim=-1)
    return (p - targets(p, accuracy, ~torch.isneginf(scores.detach()))).square().sum(-1)


def _check_items(ids: Sequence[str], confidence: Tensor, correct: Tensor, n_bins: int) -> None:
    if n_bins < 1:
        raise ValueError(f"n_bins must be >= 1, got {n_bins}")
    if not ids:
        raise ValueError("the E-step needs at least one item, got none")
    if confidence.shape != (len(ids),) or correct.shape != (len(ids),) or correct.dtype != torch.bool:
        raise ValueError(
            f"expected confidence [{len(ids)}] and bool correct [{len(ids)}] for {len(ids)} ids, got "
            f"{tuple(confidence.shape)} and {correct.dtype} {tuple(correct.shape)}"
        )
    twice = [identity for identity, times in Counter(ids).items() if times > 1]
    if twice:
        raise ValueError(f"item id {twice[0]!r} was given more than once; give each item an id of its own")
    bad = ~((confidence >= 0) & (confidence <= 1 + 1e-6))  # a float32 softmax may round to just above 1; NaN is bad
    if bool(bad.any()):
        at = int(bad.nonzero()[0])
        raise ValueError(f"the confidence of item {ids[at]!r} is {float(confidence[at])}, expected a number in [0, 1]")
