"""Whether new confidences look like those that a threshold or a calibration was made on: two-sample tests.

A test of confidences alone sees no labels. It can show that the questions are others; it cannot show that they are the
same: answers can become worse while confidences stay as they were.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .checks import Floats, check_confidence, check_count

Statistic = Literal["ks", "energy"]
_CHUNK = 2_000_000  # numbers held at once


class ShiftTest(NamedTuple):
    """A two-sample statistic with the p-value of the hypothesis that both samples come from one distribution."""

    statistic: float
    p_value: float
    n_reference: int
    n_new: int


def two_sample_test(
    reference: ArrayLike,
    new: ArrayLike,
    statistic: Statistic = "ks",
    *,
    n_permutations: int = 1999,
    seed: int = 0,
) -> ShiftTest:
    """Test by permutation whether two sets of confidences come from one distribution.

    ``ks``: the largest |F(x) - G(x)| of the two empirical distribution functions. ``energy``: the integral of
    (F(x) - G(x))^2, half of the squared energy distance. p = (1 + #{permuted >= observed}) / (1 + n_permutations),
    exact at any n and with ties.

    Args:
        reference: float [N] in [0, 1]. new: float [M] in [0, 1].
        statistic: ``"ks"`` or ``"energy"``.
        n_permutations: number of relabellings.
        seed: of the relabellings.

    Raises:
        ValueError: wrong confidences or settings.

    Example:
        >>> found = two_sample_test([0.1, 0.2, 0.3, 0.4] * 5, [0.8, 0.9] * 10)
        >>> round(found.statistic, 6), found.p_value
        (1.0, 0.0005)

    Source: Smirnov (1939); Szekely and Rizzo (2004); Phipson and Smyth (2010) for the one in the p-value.
    """
    a, b = check_confidence(reference, "reference"), check_confidence(new, "new")
    check_count(n_permutations, "n_permutations")
    if statistic not in ("ks", "energy"):
        raise ValueError(f"statistic: expected 'ks' or 'energy', got {statistic!r}")
    pooled = np.concatenate([a, b])
    order = np.argsort(pooled, kind="stable")
    values = pooled[order]
    # the last place of each distinct value: there, and nowhere else, both functions have taken their step
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], True))
    widths = np.append(np.diff(values[ends]), 0.0)
    steps = np.where(order < len(a), 1.0 / len(a), -1.0 / len(b))
    observed = _statistics(steps[None], ends, widths, statistic)[0]
    rng = np.random.default_rng(seed)
    extreme, left = 0, n_permutations
    while left:
        size = min(left, max(1, _CHUNK // len(values)))
        drawn = rng.permuted(np.broadcast_to(steps, (size, len(steps))), axis=1)
        # the slack counts relabellings that give the same up to summation order
        extreme += int((_statistics(drawn, ends, widths, statistic) >= observed - 1e-12).sum())
        left -= size
    return ShiftTest(float(observed), (1 + extreme) / (1 + n_permutations), len(a), len(b))


def _statistics(steps: Floats, ends: NDArray[np.intp], widths: Floats, statistic: Statistic) -> Floats:
    """The statistic of each row of steps [R, N + M], +1/N for the reference's items and -1/M for the new ones."""
    apart = np.cumsum(steps, axis=1)[:, ends]
    found = np.abs(apart).max(axis=1) if statistic == "ks" else (apart**2) @ widths
    return np.asarray(found)
