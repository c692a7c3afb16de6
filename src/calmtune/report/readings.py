"""A row's numbers on a set of items as plain arrays: what every measure is computed from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calmtune.predictions import Predictions
from calmtune.report.scaling import Vector


@dataclass(frozen=True)
class Reading:
    """One row on one column of the table.

    Args:
        probabilities: float64 [N, K], 0 for options an item does not have.
        labels: int64 [N], gold options.
        n_options: int64 [N], options each item has.
        choices: int64 [N], the chosen option, ties broken by item id.
        option_mass: float64 [N], share of the vocabulary's probability on the options; NaN where it was not stored.
        ties: items with more than one option at the highest score.
    """

    probabilities: NDArray[np.float64]
    labels: NDArray[np.int64]
    n_options: NDArray[np.int64]
    choices: NDArray[np.int64]
    option_mass: NDArray[np.float64]
    ties: int

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def confidence(self) -> NDArray[np.float64]:
        """Probability of the chosen option, float64 [N]."""
        return self.probabilities[np.arange(len(self)), self.choices]

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether the chosen option is the gold one, bool [N]."""
        return np.asarray(self.choices == self.labels)


def read(
    predictions: Predictions, *, adjusted: bool, temperature: float = 1.0, vector: Vector | None = None
) -> Reading:
    """Read stored scores as probabilities, softmax(z / T) over each item's own options.

    Args:
        predictions: the items.
        adjusted: whether z are the adjusted scores, or the raw ones.
        temperature: T.
        vector: applied to the scores first. It may change answers, and ties are those of the scores it gives.

    >>> from calmtune.predictions import Prediction
    >>> read(Predictions((Prediction("a", "d", 1, (0.0, 1.0)),)), adjusted=False).correct.tolist()
    [True]
    """
    if vector is not None:
        predictions, adjusted = vector.apply(predictions, adjusted=adjusted), False
    return Reading(
        probabilities=predictions.probabilities(adjusted=adjusted, temperature=temperature),
        labels=predictions.labels,
        n_options=np.array([len(item.scores) for item in predictions], dtype=np.int64),
        choices=predictions.choices(adjusted=adjusted),
        option_mass=np.array([item.option_mass for item in predictions], dtype=np.float64),
        ties=predictions.ties(adjusted=adjusted),
    )


def concatenate(parts: Sequence[Reading]) -> Reading:
    """Several readings as one, with room for the largest number of options."""
    width = max(part.probabilities.shape[1] for part in parts)
    padded = [np.pad(part.probabilities, ((0, 0), (0, width - part.probabilities.shape[1]))) for part in parts]
    return Reading(
        probabilities=np.concatenate(padded),
        labels=np.concatenate([part.labels for part in parts]),
        n_options=np.concatenate([part.n_options for part in parts]),
        choices=np.concatenate([part.choices for part in parts]),
        option_mass=np.concatenate([part.option_mass for part in parts]),
        ties=sum(part.ties for part in parts),
    )


def take(reading: Reading, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Reading:
    """Some items of a reading, in the order of ``rows``; ties are not known by item, so there are none told."""
    return replace(
        reading,
        probabilities=reading.probabilities[rows],
        labels=reading.labels[rows],
        n_options=reading.n_options[rows],
        choices=reading.choices[rows],
        option_mass=reading.option_mass[rows],
        ties=0,
    )
