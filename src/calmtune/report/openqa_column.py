"""The measures of open questions as sums over questions, so that a column is resampled once for all of them."""

from __future__ import annotations

import numpy as np

from calmtune import metrics
from calmtune.metrics.resampled import Sums, confidence_sums, mean_sums
from calmtune.report.openqa_readings import OpenReading
from calmtune.report.suite_column import Measured


def open_sums(measure: str, reading: OpenReading, n_bins: int) -> Sums:
    """A measure on a reading, as sums over questions."""
    right = reading.correct.astype(np.float64)
    if measure in ("sem1_ece", "sem2_ece"):
        return confidence_sums(reading.sem1 if measure == "sem1_ece" else reading.sem2, right, n_bins)
    if measure == "ece_answered":
        # bins are those of the confidence, so leaving questions out is leaving their rows empty
        table = confidence_sums(reading.sem1, right, n_bins)
        answered = reading.answered.astype(np.float64)[:, None]
        return Sums(table.features * answered, answered, absolute=True)
    if measure == "accuracy_answered":
        answered = reading.answered.astype(np.float64)[:, None]
        return Sums(right[:, None] * answered, answered, absolute=False)
    means = {
        "accuracy": right,
        "entropy": reading.entropy,
        "sem1_confidence": reading.sem1,
        "sem2_confidence": reading.sem2,
        "gap": reading.sem2 - right,
        "brier": (reading.sem1 - right) ** 2,
        "coverage": reading.answered.astype(np.float64),
        "refusals": reading.refusals,
        # where a question has none, the mean has none either: told as NaN by whoever lays it out
        "likelihood_entropy": np.nan_to_num(reading.likelihood_entropy),
    }
    return mean_sums(means[measure])


RESAMPLED = (
    "sem1_ece", "sem2_ece", "accuracy", "entropy", "sem1_confidence", "sem2_confidence", "gap", "brier",
    "likelihood_entropy", "coverage", "refusals", "accuracy_answered", "ece_answered",
)  # fmt: skip
_POSITIVE = ("entropy", "likelihood_entropy")
OPEN = Measured(
    RESAMPLED,
    open_sums,
    {m: (-1.0 if m == "gap" else 0.0, np.inf if m in _POSITIVE else 1.0) for m in RESAMPLED},
    frozenset({"sem1_ece", "sem2_ece", "ece_answered"}),
    {
        "auroc": lambda reading, bins: metrics.auroc(reading.sem1, reading.correct, undefined="nan"),
        "aurc": lambda reading, bins: metrics.aurc(reading.sem1, reading.correct),
    },
)
"""Open questions."""
