"""How sure a mean over training seeds is, when both other items and other seeds could have come.

A resample draws items, the same for every seed and method. Seeds are few, and drawing 3 of 3 with replacement gives an
interval that reaches from the lowest to the highest seed, which holds the true mean three times in four, not nineteen
in twenty. So what other seeds could bring is drawn from Student's t with S - 1 degrees of freedom instead, at the
standard error s / sqrt(S) of the S seeds: exact for seeds that differ by a normal amount, as wide as 2 seeds deserve.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from .bootstrap import Interval, PairedDifference, bca_shares, quantiles
from .checks import Floats

_TAIL = 0.025


def seed_spread(values: ArrayLike) -> float:
    """Standard deviation over seeds, divisor S - 1; NaN for a single one.

    Args:
        values: real [S], the metric of each seed.

    Example:
        >>> round(seed_spread([0.1, 0.2, 0.3]), 6)
        0.1
    """
    checked = np.asarray(values, dtype=np.float64)
    return float(checked.std(ddof=1)) if len(checked) > 1 and np.isfinite(checked).all() else float("nan")


def seed_interval(
    values: ArrayLike, resampled: ArrayLike, left_out: ArrayLike | None = None, *, seed: int = 0
) -> Interval:
    """Mean over seeds of a metric with its 95 % interval over items and seeds.

    Draw r: mean_s m_s(items of r) + t_r s / sqrt(S), t_r Student with S - 1 degrees of freedom, s the spread of the
    seeds. One seed alone says nothing of others: then the interval is over items only.

    Args:
        values: float [S], the metric of each seed on the items as they are.
        resampled: float [S, R], the same on R resamples of the items, which are the same for all seeds.
        left_out: float [S, N], the same without each item in turn; then the items' part is corrected for bias and
            skewness (BCa), as for a metric that resampling pushes up.
        seed: of the draws from t.

    Returns:
        (mean, low, high); the ends are NaN where a resample is.

    Raises:
        ValueError: shapes that do not fit.

    Example:
        >>> seed_interval([0.5], [[0.4, 0.5, 0.6]])
        Interval(estimate=0.5, low=0.4, high=0.6)
    """
    m, draws = _check(values, resampled)
    estimate = float(m.mean())
    of_items = draws.mean(axis=0)
    if left_out is not None and not np.isnan(of_items).any():
        of_items = _corrected(of_items, estimate, np.asarray(left_out, dtype=np.float64).mean(axis=0))
    total = of_items + _other_seeds(m, draws.shape[1], seed)
    low, high = quantiles(total, np.array([_TAIL, 1.0 - _TAIL]))
    return Interval(estimate, low, high)


def seed_difference(
    a: ArrayLike,
    b: ArrayLike,
    resampled_a: ArrayLike,
    resampled_b: ArrayLike,
    swapped: ArrayLike,
    *,
    seed: int = 0,
) -> PairedDifference:
    """Mean over seeds of metric(a) - metric(b), seed by seed on the same items, with interval and p-value.

    Interval: percentiles of mean_s [a_s - b_s](items of r) + t_r s / sqrt(S), s the spread of the seeds' differences.
    p-value: two-sided permutation test, p = (1 + #{|d*| >= |d|}) / (1 + R), of these trained models; it knows nothing
    of other seeds, so that where the two disagree the interval is the careful one.

    Args:
        a, b: float [S], the metric of each seed; both of the same seeds in the same order.
        resampled_a, resampled_b: float [S, R], on the same resamples of the items.
        swapped: float [R], the mean difference after exchanging a and b item by item, all seeds together.
        seed: of the draws from t.

    Raises:
        ValueError: shapes that do not fit.

    Example:
        >>> seed_difference([0.5], [0.2], [[0.5, 0.5]], [[0.2, 0.1]], [0.1, -0.3]).p_value.__round__(6)
        0.666667

    Source: Efron and Tibshirani (1993), chapters 13 and 15, for the items.
    """
    (m_a, draws_a), (m_b, draws_b) = _check(a, resampled_a), _check(b, resampled_b)
    exchanged = np.asarray(swapped, dtype=np.float64)
    if draws_a.shape != draws_b.shape or exchanged.ndim != 1:
        raise ValueError(f"expected the same seeds and resamples, got {draws_a.shape} and {draws_b.shape}")
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, and told as such
        apart = m_a - m_b
        total = (draws_a - draws_b).mean(axis=0) + _other_seeds(apart, draws_a.shape[1], seed)
    estimate = float(apart.mean())
    low, high = quantiles(total, np.array([_TAIL, 1.0 - _TAIL]))
    if np.isnan(estimate) or np.isnan(exchanged).any():
        return PairedDifference(estimate, low, high, float("nan"))
    # the slack counts exchanges that give the same difference up to summation order
    extreme = int((np.abs(exchanged) >= abs(estimate) - 1e-12).sum())
    return PairedDifference(estimate, low, high, (1 + extreme) / (1 + len(exchanged)))


def _corrected(draws: Floats, estimate: float, left_out: Floats) -> Floats:
    """Draws whose percentiles are the BCa ends of the given ones, each in the place of the draw of its rank."""
    ranks = np.argsort(np.argsort(draws, kind="stable"), kind="stable")
    shares = bca_shares((ranks + 0.5) / len(draws), draws, estimate, left_out)
    return np.asarray(np.quantile(draws, shares))


def _other_seeds(values: Floats, n_resamples: int, seed: int) -> Floats:
    """What other seeds could add to the mean, one draw a resample."""
    n, spread = len(values), seed_spread(values)
    if n < 2 or not spread > 0:
        return np.zeros(n_resamples)
    # one draw from each of R equal slices of t, in random order: its heavy tails would make few draws differ much
    ranks = np.random.default_rng([seed, n]).permutation(n_resamples)
    return np.asarray(stdtrit(n - 1, (ranks + 0.5) / n_resamples) * spread / np.sqrt(n))


def _check(values: ArrayLike, resampled: ArrayLike) -> tuple[Floats, Floats]:
    m, draws = np.asarray(values, dtype=np.float64), np.asarray(resampled, dtype=np.float64)
    if m.ndim != 1 or not len(m) or draws.ndim != 2 or len(draws) != len(m) or not draws.shape[1]:
        raise ValueError(f"expected [S] values and [S, R] resampled ones, got shapes {m.shape} and {draws.shape}")
    return m, draws
