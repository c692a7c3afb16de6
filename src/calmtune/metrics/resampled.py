"""Metrics of many resamples at once: each is written as sums over items, so that a resample is a vector of counts.

Invariant: with every count 1 the value is that of :func:`expected_calibration_error`, :func:`classwise_ece` or the
mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .bins import assign_bins, edge_tolerance
from .blocks import check_options
from .checks import Floats, check_confidence_and_correct, check_count, check_labels, check_probabilities

# stands for inf in sums, where 0 * inf would be NaN
_HUGE = 1e300


@dataclass(frozen=True)
class Sums:
    """A metric as a function of sums over items.

    With weights w the value is the mean over classes c that an item of weight has of
    sum_b |sum_i w_i f_icb| / sum_i w_i h_ic, without the bars where ``absolute`` is False.

    Args:
        features: f as float64 [N, C * B], B bins of each of C classes.
        presence: h as float64 [N, C], 1 where the item has the class.
        absolute: whether the sum of each bin is taken without its sign.
    """

    features: Floats
    presence: Floats
    absolute: bool

    def __len__(self) -> int:
        return len(self.features)

    def value(self) -> float:
        """The metric on the items as they are."""
        return float(self.of_counts(np.ones((1, len(self))))[0])

    def of_counts(self, counts: Floats) -> Floats:
        """The metric on every resample.

        Args:
            counts: float64 [R, N], how often each resample holds each item.

        Returns:
            float64 [R].
        """
        return self.of_sums(counts @ self.features, counts @ self.presence)

    def of_sums(self, sums: Floats, presence: Floats) -> Floats:
        """The metric from weighted sums of ``features`` [..., C * B] and ``presence`` [..., C]; shape [...]."""
        if self.features.shape[1] == 1:
            total, known = (np.abs(sums) if self.absolute else sums), presence
        else:
            parts = np.abs(sums) if self.absolute else sums
            total, known = parts.reshape(*parts.shape[:-1], self.presence.shape[1], -1).sum(axis=-1), presence
        share = np.divide(total, known, out=np.zeros(np.broadcast(total, known).shape), where=known > 0)
        found = np.asarray(share.sum(axis=-1) / (known > 0).sum(axis=-1))
        return np.where(found > 1e-10 * _HUGE, np.inf, found)

    def left_out(self) -> Floats:
        """The metric without each of the items in turn, float64 [N]."""
        sums, presence = self.features.sum(axis=0), self.presence.sum(axis=0)
        return self.of_sums(sums - self.features, presence - self.presence)


def confidence_sums(confidence: ArrayLike, correct: ArrayLike, n_bins: int = 10) -> Sums:
    """:func:`expected_calibration_error` with equal-width bins as sums.

    Args:
        confidence: float [N] in [0, 1].
        correct: bool or 0/1 [N].
        n_bins: number of bins.

    Raises:
        ValueError: see :func:`check_confidence_and_correct`.

    Example:
        >>> sums = confidence_sums([0.92, 1.0, 1.0], [1, 1, 0])
        >>> sums.of_counts(np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 3.0]])).round(6).tolist()
        [0.306667, 1.0]
    """
    tolerance = edge_tolerance(np.asarray(confidence).dtype)
    confidence, correct = check_confidence_and_correct(confidence, correct)
    bins = assign_bins(confidence, tolerance, n_bins, "width")
    features = np.zeros((len(confidence), len(bins.lower)))
    features[np.arange(len(confidence)), bins.item] = correct - confidence
    return Sums(features, np.ones((len(confidence), 1)), absolute=True)


def class_sums(
    probabilities: ArrayLike, labels: ArrayLike, n_bins: int = 10, n_options: ArrayLike | None = None
) -> Sums:
    """:func:`classwise_ece` as sums.

    Args:
        probabilities: float [N, K], rows summing to 1, 0 on options that an item does not have.
        labels: int [N], class ids.
        n_bins: number of bins.
        n_options: int [N]; without it every item has all K classes.

    Raises:
        ValueError: see :func:`classwise_ece`.

    Example:
        >>> round(class_sums([[0.75, 0.14, 0.11], [0.15, 0.68, 0.17]], [0, 1]).value(), 6)
        0.19
    """
    tolerance = edge_tolerance(np.asarray(probabilities).dtype)
    p = check_probabilities(probabilities)
    n, k = p.shape
    labels = check_labels(labels, n, k)
    options = check_options(n_options, p, labels)
    presence = (np.arange(k) < options[:, None]).astype(np.float64)
    n_bins = check_count(n_bins, "n_bins")
    features = np.zeros((n, k, n_bins))
    for c in range(k):
        bins = assign_bins(p[:, c], tolerance, n_bins, "width")
        features[np.arange(n), c, bins.item] = (labels == c) - p[:, c]  # 0 where absent
    return Sums(features.reshape(n, k * n_bins), presence, absolute=True)


def mean_sums(values: ArrayLike) -> Sums:
    """The mean of a value an item, such as correctness or -ln p(label), as sums; inf among the values makes it inf.

    Args:
        values: real [N], without NaN.

    Raises:
        ValueError: not one value an item, or NaN.

    Example:
        >>> mean_sums([1.0, 2.0, np.inf]).of_counts(np.array([[1.0, 1.0, 1.0], [2.0, 1.0, 0.0]])).round(6).tolist()
        [inf, 1.333333]
    """
    checked = np.asarray(values, dtype=np.float64)
    if checked.ndim != 1 or not len(checked) or np.isnan(checked).any():
        raise ValueError(f"values: expected numbers of shape [N] without NaN, got shape {checked.shape}")
    return Sums(np.minimum(checked, _HUGE)[:, None], np.ones((len(checked), 1)), absolute=False)


def draw_counts(n: int, n_resamples: int, rng: np.random.Generator) -> Floats:
    """How often each of ``n`` items is drawn when n are drawn with replacement, float64 [R, N]; rows sum to n."""
    counts = np.empty((n_resamples, n))
    for row in counts:
        row[:] = np.bincount(rng.integers(0, n, n), minlength=n)
    return counts


def draw_swaps(n: int, n_resamples: int, rng: np.random.Generator) -> Floats:
    """Which of ``n`` items are exchanged, each with probability 1/2, float64 [R, N] of 0 and 1."""
    return (rng.random((n_resamples, n)) < 0.5).astype(np.float64)
