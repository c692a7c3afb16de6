"""Calibration errors by bins: mean confidence against accuracy, bin by bin.

Invariant: the counts of a table sum to N, and its weighted gaps to the reported ECE.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .bins import Binning, Bins, assign_bins, edge_tolerance
from .blocks import ClasswiseError, ConfidenceError
from .checks import Floats, Ints, check_confidence_and_correct

# Two-sided 95 % point of the standard normal.
_WILSON_Z = 1.959963984540054


@dataclass(frozen=True)
class ReliabilityTable:
    """What a reliability diagram shows, one entry a bin; empty bins hold NaN, never an invented point.

    Args:
        lower: float64 [M], lower edge of the bin (equal-mass: its smallest confidence).
        upper: float64 [M], upper edge of the bin (equal-mass: its largest confidence).
        count: int64 [M], items in the bin.
        mean_confidence: float64 [M], mean confidence of the bin's items.
        accuracy: float64 [M], share of the bin's items that are correct.
        accuracy_low: float64 [M], lower end of the 95 % Wilson interval of the accuracy.
        accuracy_high: float64 [M], upper end of it.
    """

    lower: Floats
    upper: Floats
    count: Ints
    mean_confidence: Floats
    accuracy: Floats
    accuracy_low: Floats
    accuracy_high: Floats

    def __len__(self) -> int:
        return len(self.count)

    @property
    def gap(self) -> Floats:
        """Mean confidence minus accuracy, float64 [M]; positive where the model is overconfident."""
        return self.mean_confidence - self.accuracy


def reliability_table(
    confidence: ArrayLike, correct: ArrayLike, n_bins: int = 10, binning: Binning = "width"
) -> ReliabilityTable:
    """Count, mean confidence and accuracy of each bin, with a 95 % Wilson interval of the accuracy.

    Args:
        confidence: float [N] in [0, 1].
        correct: bool or 0/1 [N].
        n_bins: M; equal-width bins always give M rows, equal-mass bins at most M and none empty.
        binning: ``"width"`` or ``"mass"``.

    Returns:
        The table; empty bins have count 0 and NaN elsewhere.

    Raises:
        ValueError: see :func:`check_confidence_and_correct`.

    Example:
        >>> table = reliability_table([0.05, 0.95], [0, 1])
        >>> table.count.tolist()
        [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]

    Source: Wilson (1927), score interval for a proportion.
    """
    tolerance = edge_tolerance(np.asarray(confidence).dtype)
    confidence, correct = check_confidence_and_correct(confidence, correct)
    bins = assign_bins(confidence, tolerance, n_bins, binning)
    rows = len(bins.lower)
    count = np.bincount(bins.item, minlength=rows)
    n = np.where(count > 0, count, np.nan)
    accuracy = np.bincount(bins.item, weights=correct, minlength=rows) / n
    z2 = _WILSON_Z**2
    centre = (accuracy + z2 / (2 * n)) / (1 + z2 / n)
    half = _WILSON_Z * np.sqrt(accuracy * (1 - accuracy) / n + z2 / (4 * n**2)) / (1 + z2 / n)
    return ReliabilityTable(
        lower=bins.lower,
        upper=bins.upper,
        count=count.astype(np.int64),
        mean_confidence=np.bincount(bins.item, weights=confidence, minlength=rows) / n,
        accuracy=accuracy,
        accuracy_low=np.maximum(centre - half, 0.0),
        accuracy_high=np.minimum(centre + half, 1.0),
    )


def expected_calibration_error(
    confidence: ArrayLike, correct: ArrayLike, n_bins: int = 10, binning: Binning = "width"
) -> float:
    """Confidence ECE: sum_b n_b/N |accuracy_b - mean confidence_b|.

    Args:
        confidence: float [N] in [0, 1], the probability of the given answer.
        correct: bool or 0/1 [N].
        n_bins: number of bins.
        binning: ``"width"`` or ``"mass"``, see :func:`assign_bins`.

    Returns:
        A fraction in [0, 1].

    Raises:
        ValueError: see :func:`check_confidence_and_correct`.

    Example:
        >>> round(expected_calibration_error([0.92, 1.0, 1.0], [1, 1, 0]), 6)
        0.306667

    Source: Naeini, Cooper and Hauskrecht (2015); Guo et al. (2017), eq. 3.
    """
    if binning == "width":
        return ConfidenceError(confidence, correct, n_bins).value()
    tolerance = edge_tolerance(np.asarray(confidence).dtype)
    confidence, correct = check_confidence_and_correct(confidence, correct)
    return _weighted_gap(confidence, correct, assign_bins(confidence, tolerance, n_bins, binning))


def maximum_calibration_error(
    confidence: ArrayLike, correct: ArrayLike, n_bins: int = 10, binning: Binning = "width"
) -> float:
    """MCE: the largest |accuracy_b - mean confidence_b| over the bins that hold an item.

    Args:
        confidence: float [N] in [0, 1].
        correct: bool or 0/1 [N].
        n_bins: number of bins.
        binning: ``"width"`` or ``"mass"``.

    Returns:
        A fraction in [0, 1]. One item alone in a bin can decide it, so read it with the counts.

    Raises:
        ValueError: see :func:`check_confidence_and_correct`.

    Example:
        >>> round(maximum_calibration_error([0.15, 0.95], [0, 1]), 6)
        0.15

    Source: Naeini, Cooper and Hauskrecht (2015).
    """
    return float(np.nanmax(np.abs(reliability_table(confidence, correct, n_bins, binning).gap)))


def classwise_ece(
    probabilities: ArrayLike, labels: ArrayLike, n_bins: int = 10, n_options: ArrayLike | None = None
) -> float:
    """Class-wise ECE: mean over the K classes of sum_b n_cb/N_c |frequency_cb - mean probability_cb|, equal-width bins.

    A class that never occurs as a label counts like any other.

    Args:
        probabilities: float [N, K], rows summing to 1.
        labels: int [N], class ids.
        n_bins: number of bins.
        n_options: int [N], for items with different numbers of options: item i has the option indices below
            ``n_options[i]`` and probability 0 beyond. Class k is then judged on the items that have it, and K is the
            largest number of options. Without it every item has all K classes.

    Returns:
        A fraction in [0, 1].

    Raises:
        ValueError: wrong probabilities or labels, a label beyond the item's options, or probability on an absent
            option.

    Example:
        >>> round(classwise_ece([[0.75, 0.14, 0.11], [0.15, 0.68, 0.17]], [0, 1]), 6)
        0.19

    Source: Kull et al. (2019); Nixon et al. (2019).
    """
    return ClasswiseError(probabilities, labels, n_bins, n_options).value()


def debiased_ece(
    confidence: ArrayLike,
    correct: ArrayLike,
    n_bins: int = 10,
    binning: Binning = "width",
    squared: bool = False,
) -> float:
    """Debiased l2 calibration error: the squared gap of each bin less the part that sampling alone puts there.

    E2 = sum_b n_b/N [ (mean conf_b - acc_b)^2 - acc_b (1 - acc_b)/(n_b - 1) ]; the value is sqrt(max(E2, 0)).
    Given the confidences, E2 has no bias for the squared error of the binned model; it is an l2 error, so it is
    compared with other l2 errors and not with ECE. A bin of one item has no variance estimate: such bins are left out
    and N counts the rest.

    Args:
        confidence: float [N] in [0, 1].
        correct: bool or 0/1 [N].
        n_bins: number of bins.
        binning: ``"width"`` or ``"mass"``.
        squared: return E2 itself, which is unbiased and may be negative.

    Returns:
        A fraction in [0, 1] (with ``squared``: its square, at least -1/4 and at most 1).

    Raises:
        ValueError: wrong input, or no bin with two items.

    Example:
        >>> round(debiased_ece([0.8] * 4, [1, 0, 0, 0]), 6)
        0.489898

    Source: Kumar, Liang and Ma (2019), Verified Uncertainty Calibration, section 5, the debiased estimator.
    """
    table = reliability_table(confidence, correct, n_bins, binning)
    use = table.count >= 2
    if not use.any():
        raise ValueError("debiased_ece: every bin holds a single item; use fewer bins or more items")
    n, accuracy = table.count[use], table.accuracy[use]
    excess = table.gap[use] ** 2 - accuracy * (1 - accuracy) / (n - 1)
    value = float(n @ excess / n.sum())
    return value if squared else max(value, 0.0) ** 0.5


def accuracy(correct: ArrayLike) -> float:
    """Share of items answered correctly.

    Args:
        correct: bool or 0/1 [N].

    Returns:
        A fraction in [0, 1].

    Raises:
        ValueError: empty, or values other than 0 and 1.

    Example:
        >>> accuracy([True, False, True, True])
        0.75
    """
    return float(check_confidence_and_correct(np.zeros(np.shape(correct)), correct)[1].mean())


def overconfidence_gap(confidence: ArrayLike, correct: ArrayLike) -> float:
    """Mean confidence minus accuracy; positive for an overconfident model.

    Args:
        confidence: float [N] in [0, 1].
        correct: bool or 0/1 [N].

    Returns:
        A signed fraction in [-1, 1]. ECE is at least its absolute value.

    Raises:
        ValueError: see :func:`check_confidence_and_correct`.

    Example:
        >>> round(overconfidence_gap([0.9, 0.7], [1, 0]), 6)
        0.3
    """
    confidence, correct = check_confidence_and_correct(confidence, correct)
    return float(confidence.mean() - correct.mean())


def _weighted_gap(confidence: Floats, target: Floats, bins: Bins) -> float:
    # n_b |acc_b - conf_b| is the bin's |sum of target - confidence|: no division, so an empty bin adds 0, never NaN
    return float(np.abs(np.bincount(bins.item, weights=target - confidence)).sum() / len(confidence))
