"""The measures of a report: for each its name, which way is better, and how its interval is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calmtune import metrics
from calmtune.report.numbers import Difference, Estimate
from calmtune.report.readings import Reading

SLOW_SHARE = 5
"""A slow measure is resampled this many times less often; stated in the report's definitions."""


@dataclass(frozen=True)
class Measure:
    """One measure.

    Args:
        title: as in the head of a table.
        better: ``"lower"``, ``"higher"``, or None where neither end is good in itself.
        arrays: what the function takes: ``"outcome"`` for confidence and correct, ``"options"`` for probabilities,
            labels and option counts.
        function: takes those arrays and the number of bins.
        interval: ``"bca"`` corrects for resampling pushing conf-ECE and MCE upward. cw-ECE, spread over so many more
            bins, is pushed so far that BCa would close up on the smallest resample, a precision nobody has; it keeps
            ``"percentile"``.
        slow: whether fewer resamples are drawn.
        unit: for reading, e.g. ``"nats"``.
    """

    title: str
    better: Literal["lower", "higher"] | None
    arrays: Literal["outcome", "options"]
    function: Callable[..., float]
    interval: Literal["bca", "percentile"] = "percentile"
    slow: bool = False
    unit: str = ""

    @property
    def arrow(self) -> str:
        """An arrow to the better side, or nothing."""
        return {"lower": " ↓", "higher": " ↑", None: ""}[self.better]


def _part(name: str) -> Callable[..., float]:
    return lambda p, y, k, bins: float(getattr(metrics.classwise_brier_decomposition(p, y, bins), name))


MEASURES: dict[str, Measure] = {
    "conf_ece": Measure(
        "conf-ECE", "lower", "outcome", lambda c, o, bins: metrics.expected_calibration_error(c, o, bins), "bca"
    ),
    "cw_ece": Measure("cw-ECE", "lower", "options", lambda p, y, k, bins: metrics.classwise_ece(p, y, bins, k)),
    "accuracy": Measure("accuracy", "higher", "outcome", lambda c, o, bins: metrics.accuracy(o)),
    "nll": Measure("NLL", "lower", "options", lambda p, y, k, bins: metrics.negative_log_likelihood(p, y), unit="nats"),
    "confidence": Measure("mean confidence", None, "outcome", lambda c, o, bins: float(c.mean())),
    "gap": Measure("overconfidence gap", None, "outcome", lambda c, o, bins: metrics.overconfidence_gap(c, o)),
    "smooth_ece": Measure("smooth ECE", "lower", "outcome", lambda c, o, bins: metrics.smooth_ece(c, o), slow=True),
    "mce": Measure("MCE", "lower", "outcome", lambda c, o, bins: metrics.maximum_calibration_error(c, o, bins), "bca"),
    "brier": Measure("Brier", "lower", "options", lambda p, y, k, bins: metrics.brier_score(p, y)),
    "brier_reliability": Measure("Brier: reliability", "lower", "options", _part("reliability"), slow=True),
    "brier_resolution": Measure("Brier: resolution", "higher", "options", _part("resolution"), slow=True),
    "brier_uncertainty": Measure("Brier: uncertainty", None, "options", _part("uncertainty"), slow=True),
    "auroc": Measure("AUROC", "higher", "outcome", lambda c, o, bins: metrics.auroc(c, o, undefined="nan")),
}

HEADLINE = ("conf_ece", "cw_ece", "accuracy", "nll")
COMPARED = ("conf_ece", "accuracy", "nll")
"""Measures with a paired difference from the first row."""
RANKED = ("conf_ece", "cw_ece", "accuracy", "nll", "brier")
"""Measures in which a best row can be marked."""


def arrays_of(measure: Measure, reading: Reading) -> tuple[NDArray[Any], ...]:
    """The arrays that the measure takes."""
    if measure.arrays == "outcome":
        return reading.confidence, reading.correct
    return reading.probabilities, reading.labels, reading.n_options


def estimate(measure: Measure, reading: Reading, *, n_bins: int, seed: int, n_resamples: int) -> Estimate:
    """The measure on a reading, with its 95 % interval.

    Example:
        >>> labels, p = np.array([0, 1]), np.array([[0.9, 0.1], [0.4, 0.6]])
        >>> two = Reading(p, labels, np.array([2, 2]), labels, np.ones(2), 0)
        >>> estimate(MEASURES["accuracy"], two, n_bins=10, seed=0, n_resamples=10)
        Estimate(value=1.0, low=1.0, high=1.0, n=2)
    """
    found = metrics.bootstrap_interval(
        lambda *arrays: measure.function(*arrays, n_bins),
        *arrays_of(measure, reading),
        seed=seed,
        n_resamples=max(1, n_resamples // SLOW_SHARE) if measure.slow else n_resamples,
        # leaving one item out needs two
        method=measure.interval if len(reading) > 1 else "percentile",
    )
    return Estimate(found.estimate, found.low, found.high, len(reading))


def difference(measure: Measure, a: Reading, b: Reading, *, n_bins: int, seed: int, n_resamples: int) -> Difference:
    """The measure of ``a`` minus that of ``b`` on the same items, with interval and permutation p-value."""
    found = metrics.paired_difference(
        lambda *arrays: measure.function(*arrays, n_bins),
        arrays_of(measure, a),
        arrays_of(measure, b),
        seed=seed,
        n_resamples=n_resamples,
    )
    return Difference(found.estimate, found.low, found.high, found.p_value, len(a))


def best_row(
    measure: Measure,
    readings: dict[str, Reading],
    values: dict[str, float],
    *,
    n_bins: int,
    seed: int,
    n_resamples: int,
) -> str | None:
    """The row that is better than every other one by a paired interval that excludes zero, or None.

    Only the row with the best value can be it. The others are tried nearest first, so that most searches end at once.
    """
    sign = -1.0 if measure.better == "higher" else 1.0
    order = sorted((row for row in values if np.isfinite(values[row])), key=lambda row: sign * values[row])
    if len(order) < 2 or len(order) < len(values):
        return None
    for other in order[1:]:
        found = difference(
            measure, readings[order[0]], readings[other], n_bins=n_bins, seed=seed, n_resamples=n_resamples
        )
        if not (found.high < 0 if sign > 0 else found.low > 0):
            return None
    return order[0]
