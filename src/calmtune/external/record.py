"""What is known of another program's predictions on one domain."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Outcomes:
    """Confidences and outcomes of the items of one domain, with whole distributions where they are known.

    Args:
        domain: its name.
        ids: unique within the domain.
        confidence: float64 [N] in [0, 1], the probability given to the answer that was chosen.
        correct: bool [N], whether that answer is right; None where nobody said.
        probabilities: float64 [N, K], 0 for options that an item does not have, or None.
        labels: int64 [N], the right options' indices; None together with ``probabilities``.
        n_options: int64 [N], options each item has; None together with ``probabilities``.
        ties: items with several options at the highest probability; 0 where only the confidence is known.
        notes: what a reader must know: what was left out, and why.
    """

    domain: str
    ids: tuple[str, ...]
    confidence: Floats
    correct: NDArray[np.bool_] | None
    probabilities: Floats | None = None
    labels: Ints | None = None
    n_options: Ints | None = None
    ties: int = 0
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def has_distributions(self) -> bool:
        """Whether measures of the whole distribution can be computed."""
        return self.probabilities is not None


def of_distributions(
    domain: str,
    ids: Sequence[str],
    rows: Sequence[Sequence[float]],
    labels: Sequence[int],
    notes: tuple[str, ...] = (),
) -> Outcomes:
    """Outcomes from a distribution and a label an item; a tie is broken by a hash of (item id, option index).

    Example:
        >>> made = of_distributions("d", ["a"], [[0.2, 0.8]], [0])
        >>> made.confidence.tolist(), made.correct.tolist()
        ([0.8], [False])
    """
    table = padded(rows)
    chosen, ties = choices(ids, table)
    gold = np.array(labels, dtype=np.int64)
    return Outcomes(
        domain,
        tuple(ids),
        table[np.arange(len(ids)), chosen],
        chosen == gold,
        table,
        gold,
        np.array([len(row) for row in rows], dtype=np.int64),
        ties,
        notes,
    )


def padded(rows: Sequence[Sequence[float]]) -> Floats:
    """Rows of different lengths as one array, 0 where an option is absent."""
    table = np.zeros((len(rows), max(map(len, rows))))
    for place, row in enumerate(rows):
        table[place, : len(row)] = row
    return table


def choices(ids: Sequence[str], probabilities: Floats) -> tuple[Ints, int]:
    """The most probable option of each item, by the rule of ``Predictions.choices``; and how many items are tied."""
    picked = probabilities.argmax(axis=1)
    tied = np.flatnonzero((probabilities == probabilities.max(axis=1, keepdims=True)).sum(axis=1) > 1)
    for row in tied.tolist():
        best = np.flatnonzero(probabilities[row] == probabilities[row].max()).tolist()
        ranks = {hashlib.sha256(f"{ids[row]}\x00{k}".encode()).digest(): k for k in best}
        picked[row] = ranks[min(ranks)]
    return picked.astype(np.int64), len(tied)
