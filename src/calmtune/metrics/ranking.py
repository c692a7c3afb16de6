"""How well confidence ranks right answers above wrong ones, whatever its scale.

Tied confidences carry no order: each measure takes the mean over all orders of the tied items, so the order of the
rows never matters.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata

from .checks import Floats, check_confidence_and_correct


def auroc(confidence: ArrayLike, correct: ArrayLike, undefined: Literal["raise", "nan"] = "raise") -> float:
    """Probability that a right answer has more confidence than a wrong one, ties counted half.

    AUROC = (R - n1 (n1 + 1) / 2) / (n1 n0), R the sum of the mid-ranks of the n1 correct items.

    Args:
        confidence: float [N] in [0, 1].
        correct: bool or 0/1 [N].
        undefined: what to do when all items are correct or none is: ``"raise"`` a ValueError, or return ``"nan"``.

    Returns:
        A fraction in [0, 1]; 0.5 for a confidence that says nothing.

    Raises:
        ValueError: wrong input, or an undefined value under ``"raise"``.

    Example:
        >>> auroc([0.9, 0.6, 0.6, 0.2], [1, 1, 0, 0])
        0.875

    Source: Hanley and McNeil (1982).
    """
    if undefined not in ("raise", "nan"):
        raise ValueError(f"undefined: expected 'raise' or 'nan', got {undefined!r}")
    confidence, correct = check_confidence_and_correct(confidence, correct)
    right = correct.sum()
    wrong = len(correct) - right
    if right == 0 or wrong == 0:
        if undefined == "nan":
            return float("nan")
        which = "correct" if wrong == 0 else "wrong"
        raise ValueError(
            f"auroc needs right and wrong answers; all {len(correct)} are {which} (undefined='nan' gives NaN)"
        )
    ranks = rankdata(confidence)
    return float((ranks @ correct - right * (right + 1) / 2) / (right * wrong))


def aurc(confidence: ArrayLike, correct: ArrayLike) -> float:
    """Area under the risk-coverage curve: mean over k = 1 .. N of the error rate among the k most confident items.

    Args:
        confidence: float [N] in [0, 1].
        correct: bool or 0/1 [N].

    Returns:
        A fraction in [0, 1]; smaller is better, and the error rate itself for a confidence that says nothing.

    Raises:
        ValueError: see :func:`check_confidence_and_correct`.

    Example:
        >>> round(aurc([0.9, 0.8, 0.7], [1, 1, 0]), 6)
        0.111111

    Source: Geifman and El-Yaniv (2017); Geifman, Uziel and El-Yaniv (2019).
    """
    return float(_selective_risk(confidence, correct).mean())


def risk_at_coverage(confidence: ArrayLike, correct: ArrayLike, coverage: float) -> float:
    """Error rate among the most confident items, when a share ``coverage`` of all items is answered.

    Args:
        confidence: float [N] in [0, 1].
        correct: bool or 0/1 [N].
        coverage: in (0, 1]; ceil(coverage N) items are answered.

    Returns:
        A fraction in [0, 1].

    Raises:
        ValueError: wrong input or coverage.

    Example:
        >>> risk_at_coverage([0.9, 0.8, 0.7, 0.1], [1, 0, 1, 0], 0.5)
        0.5

    Source: El-Yaniv and Wiener (2010).
    """
    if not 0.0 < coverage <= 1.0:
        raise ValueError(f"coverage: expected a share in (0, 1], got {coverage!r}")
    risk = _selective_risk(confidence, correct)
    # 0.7 * 10 is 7.000000000000001 in binary: the small step back keeps that at 7 items
    return float(risk[max(int(np.ceil(coverage * len(risk) - 1e-9)), 1) - 1])


def _selective_risk(confidence: ArrayLike, correct: ArrayLike) -> Floats:
    """Expected error rate among the k most confident items, for k = 1 .. N."""
    confidence, correct = check_confidence_and_correct(confidence, correct)
    order = np.argsort(-confidence, kind="stable")
    ranked, wrong = confidence[order], 1.0 - correct[order]
    starts = np.flatnonzero(np.concatenate(([True], ranked[1:] != ranked[:-1])))
    sizes = np.diff(np.append(starts, len(ranked)))
    expected = np.repeat(np.add.reduceat(wrong, starts) / sizes, sizes)
    return np.asarray(np.cumsum(expected) / np.arange(1, len(ranked) + 1))
