"""How sure a number is: bootstrap intervals, paired comparisons, and what a perfectly calibrated model would score.

Items are the unit: whole rows are drawn, swapped or relabelled, one resample at a time, so memory stays at one copy of
the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from .binned import expected_calibration_error
from .checks import Floats, check_confidence, check_count

Metric = Callable[..., float]
Array = NDArray[Any]

_JACKKNIFE_GROUPS = 1000


class Interval(NamedTuple):
    """A value with the ends of its interval, in the metric's own unit."""

    estimate: float
    low: float
    high: float


class PairedDifference(NamedTuple):
    """metric(a) - metric(b) with its interval and the two-sided permutation p-value."""

    estimate: float
    low: float
    high: float
    p_value: float


def bootstrap_interval(
    metric: Metric,
    *arrays: ArrayLike,
    seed: int = 0,
    level: float = 0.95,
    n_resamples: int = 1000,
    method: Literal["percentile", "bca"] = "percentile",
) -> Interval:
    """Bootstrap interval of ``metric(*arrays)`` over items.

    Resampling adds noise to noise, so the ECE of a nearly calibrated model is larger on resamples than on the data, and
    then neither kind of interval need contain the estimate; :func:`null_band` says what such a model would score.

    Args:
        metric: takes the arrays, returns a float.
        arrays: each [N, ...]; row i of all of them is item i.
        seed: of the resampling; the same seed gives the same interval.
        level: coverage asked for, in (0, 1).
        n_resamples: number of resamples.
        method: ``"percentile"``, or ``"bca"`` (bias-corrected and accelerated; the acceleration comes from leaving out
            items one by one, or in 1000 random groups when there are more).

    Returns:
        (estimate, low, high). The ends are NaN when the metric is NaN on some resample, since the interval is then
        unknown.

    Raises:
        ValueError: no arrays, lengths that differ, or wrong settings; what the metric raises on a resample passes
            through.

    Example:
        >>> interval = bootstrap_interval(np.mean, np.arange(100.0), seed=1)
        >>> interval.estimate, interval.low < 49.5 < interval.high
        (49.5, True)

    Source: Efron and Tibshirani (1993), chapters 13 and 14.
    """
    data = _check_arrays(arrays)
    check_settings(level, n_resamples)
    if method not in ("percentile", "bca"):
        raise ValueError(f"method: expected 'percentile' or 'bca', got {method!r}")
    n = len(data[0])
    rng = np.random.default_rng(seed)
    estimate = float(metric(*data))
    values = np.empty(n_resamples)
    for i in range(n_resamples):
        rows = rng.integers(0, n, n)
        values[i] = metric(*(array[rows] for array in data))
    tail = (1.0 - level) / 2.0
    shares = np.array([tail, 1.0 - tail])
    if method == "bca" and not np.isnan(values).any():
        shares = bca_shares(shares, values, estimate, _jackknife(metric, data, rng))
    low, high = quantiles(values, shares)
    return Interval(estimate, low, high)


def paired_difference(
    metric: Metric,
    arrays_a: Sequence[ArrayLike],
    arrays_b: Sequence[ArrayLike],
    seed: int = 0,
    level: float = 0.95,
    n_resamples: int = 1000,
) -> PairedDifference:
    """metric(a) - metric(b) of two methods on the same items, with interval and p-value.

    Interval: percentile bootstrap, the same rows drawn from both. p-value: the rows of a and b are exchanged item by
    item with probability 1/2, p = (1 + #{|d*| >= |d|}) / (1 + n_resamples).

    Args:
        metric: takes one side's arrays, returns a float.
        arrays_a: each [N, ...], e.g. ``(confidence_a, correct_a)``.
        arrays_b: the same of the other method, row i being the same item.
        seed: of resampling and exchange.
        level: coverage of the interval, in (0, 1).
        n_resamples: resamples of each kind.

    Returns:
        (estimate, low, high, p_value), in the metric's unit; the p-value is at least 1 / (1 + n_resamples).

    Raises:
        ValueError: the sides differ in number of arrays or in shape, or wrong settings.

    Example:
        >>> a = (np.array([0.9, 0.8, 0.7]), np.array([1, 0, 1]))
        >>> paired_difference(expected_calibration_error, a, a)
        PairedDifference(estimate=0.0, low=0.0, high=0.0, p_value=1.0)

    Source: Efron and Tibshirani (1993), chapters 13 and 15.
    """
    a, b = _check_arrays(arrays_a), _check_arrays(arrays_b)
    check_settings(level, n_resamples)
    if [array.shape for array in a] != [array.shape for array in b]:
        raise ValueError(
            f"paired arrays: expected the same shapes, got {[x.shape for x in a]} and {[x.shape for x in b]}; "
            "align both sides by item id"
        )
    n = len(a[0])
    rng = np.random.default_rng(seed)
    estimate = float(metric(*a) - metric(*b))
    drawn, swapped = np.empty(n_resamples), np.empty(n_resamples)
    for i in range(n_resamples):
        rows = rng.integers(0, n, n)
        drawn[i] = metric(*(x[rows] for x in a)) - metric(*(x[rows] for x in b))
        swap = rng.random(n) < 0.5
        left = [_choose(swap, y, x) for x, y in zip(a, b, strict=True)]
        right = [_choose(swap, x, y) for x, y in zip(a, b, strict=True)]
        swapped[i] = metric(*left) - metric(*right)
    tail = (1.0 - level) / 2.0
    low, high = quantiles(drawn, np.array([tail, 1.0 - tail]))
    if np.isnan(estimate) or np.isnan(swapped).any():
        return PairedDifference(estimate, low, high, float("nan"))
    # the slack counts exchanges that give the same difference up to summation order
    extreme = int((np.abs(swapped) >= abs(estimate) - 1e-12).sum())
    return PairedDifference(estimate, low, high, (1 + extreme) / (1 + n_resamples))


def null_band(
    confidence: ArrayLike,
    n_resamples: int = 1000,
    metric: Metric = expected_calibration_error,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """What ``metric(confidence, correct)`` gives for a perfectly calibrated model: correct_i drawn with probability
    confidence_i.

    Binned errors are above 0 at finite N even then; a value inside the band is no evidence of miscalibration.

    Args:
        confidence: float [N] in [0, 1].
        n_resamples: number of draws.
        metric: takes (confidence, correct bool [N]), returns a float.
        seed: of the draws.
        level: share of the draws inside the band, in (0, 1).

    Returns:
        (mean of the draws, low, high), in the metric's unit.

    Raises:
        ValueError: wrong confidences or settings.

    Example:
        >>> band = null_band([0.5] * 100)
        >>> 0.0 <= band.low < band.estimate < band.high < 0.2
        True

    Source: Broecker and Smith (2007), consistency resampling, with the confidences held fixed.
    """
    values_in = np.asarray(confidence)
    checked = check_confidence(values_in)
    check_settings(level, n_resamples)
    rng = np.random.default_rng(seed)
    values = np.empty(n_resamples)
    for i in range(n_resamples):
        # the metric sees the array as given: its dtype decides which confidences share a bin
        values[i] = metric(values_in, rng.random(len(checked)) < checked)
    tail = (1.0 - level) / 2.0
    low, high = quantiles(values, np.array([tail, 1.0 - tail]))
    return Interval(float(values.mean()), low, high)


def _check_arrays(arrays: Sequence[ArrayLike]) -> list[Array]:
    data = [np.asarray(array) for array in arrays]
    if not data:
        raise ValueError("expected at least one array of items")
    for position, array in enumerate(data):
        if array.ndim == 0 or len(array) == 0:
            raise ValueError(
                f"array {position}: expected at least one item along the first axis, got shape {array.shape}"
            )
        if len(array) != len(data[0]):
            raise ValueError(
                f"array {position} has {len(array)} items and array 0 has {len(data[0])}; expected the same"
            )
    return data


def check_settings(level: float, n_resamples: int) -> None:
    """Refuse a level outside (0, 1) and fewer than one resample."""
    check_count(n_resamples, "n_resamples")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level: expected a share in (0, 1), got {level!r}")


def _choose(swap: NDArray[np.bool_], if_swapped: Array, otherwise: Array) -> Array:
    return np.where(swap.reshape((-1,) + (1,) * (otherwise.ndim - 1)), if_swapped, otherwise)


def quantiles(values: Floats, shares: Floats) -> tuple[float, float]:
    """The drawn values at two shares of their distribution, rounded outwards; NaN if any value is."""
    if np.isnan(values).any():
        return float("nan"), float("nan")
    # 'lower' and 'higher' return drawn values, so inf among them never becomes inf - inf
    return float(np.quantile(values, shares[0], method="lower")), float(np.quantile(values, shares[1], method="higher"))


def _jackknife(metric: Metric, data: list[Array], rng: np.random.Generator) -> Floats:
    n = len(data[0])
    groups = np.array_split(rng.permutation(n), min(n, _JACKKNIFE_GROUPS))
    if len(groups) < 2:
        raise ValueError("method 'bca' needs at least two items")
    return np.array([metric(*(np.delete(array, group, axis=0) for array in data)) for group in groups])


def bca_shares(shares: Floats, values: Floats, estimate: float, left_out: Floats) -> Floats:
    """Shares of the bootstrap distribution that the ends of a BCa interval lie at.

    Args:
        shares: [2] in (0, 1), of the interval without correction. values: [R], the resampled statistic.
        estimate: the statistic on all items. left_out: [G], without each of G groups of items.

    Source: Efron and Tibshirani (1993), section 14.3.
    """
    below = (values < estimate).sum() + 0.5 * (values == estimate).sum()
    # +0.5 and +1 keep the share off 0 and 1, where the correction would be infinite
    bias = ndtri((below + 0.5) / (len(values) + 1.0))
    influence = left_out.mean() - left_out
    scale = float(np.square(influence).sum()) ** 1.5
    acceleration = float((influence**3).sum()) / (6.0 * scale) if scale > 0 else 0.0
    z = bias + ndtri(shares)
    return np.asarray(ndtr(bias + z / (1.0 - acceleration * z)))
