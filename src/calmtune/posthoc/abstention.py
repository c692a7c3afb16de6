"""When to answer and when to abstain: a threshold on the confidence with a finite-sample guarantee.

Two error rates can be held, and they need different tools.

* The error rate among the answered questions, R(t) = P(wrong | confidence >= t). It need not fall as t rises, so the
  expectation bound of conformal risk control does not apply to it. It is held with high probability over the draw of
  the items: thresholds that were fixed beforehand are tested in a fixed order, each with the exact binomial p-value,
  until the first one that fails.
* The share of all questions that are answered and wrong, J(t) = P(confidence >= t, wrong). It does fall as t rises, so
  conformal risk control holds its expectation.

Both need items that are exchangeable with those to come, and a confidence that was fixed without looking at them: no
temperature, no choice of a distribution and no threshold may have been made with the same items.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom

from calmtune.metrics.checks import Floats, Ints, check_confidence, check_confidence_and_correct, check_count

Control = Literal["answered", "joint"]
METHODS: dict[Control, str] = {
    "answered": "fixed-sequence testing with exact binomial p-values",
    "joint": "conformal risk control",
}
NOTHING = float("inf")
"""The threshold under which nothing is answered."""


@dataclass(frozen=True)
class AbstentionRule:
    """Answer where the confidence is at least the threshold.

    Args:
        threshold: in [0, 1], or infinity: answer nothing.
        control: ``"answered"`` holds the error rate among answered questions with probability ``confidence``;
            ``"joint"`` holds the expected share of questions that are answered and wrong.
        target: the error rate that is held, in (0, 1).
        confidence: the stated probability, in (0, 1); None for ``"joint"``.
        n: items that the threshold was found on.
        n_answered: those of them at or above it.
        n_wrong: those of the answered ones that are wrong.
    """

    threshold: float
    control: Control
    target: float
    confidence: float | None
    n: int
    n_answered: int
    n_wrong: int

    @property
    def answers_nothing(self) -> bool:
        """Whether no threshold could be shown to hold the target."""
        return not np.isfinite(self.threshold)

    def answer_or_abstain(self, confidences: ArrayLike) -> NDArray[np.bool_]:
        """Which questions to answer; see :func:`answer_or_abstain`."""
        return answer_or_abstain(confidences, self.threshold)


@dataclass(frozen=True)
class RiskCoverage:
    """What each threshold does, one entry a threshold, with exact intervals.

    Args:
        threshold: float64 [M].
        n: items in all.
        n_answered, n_wrong: int64 [M].
        coverage, coverage_low, coverage_high: float64 [M], share of the items that are answered.
        risk, risk_low, risk_high: float64 [M], error rate among the answered; NaN where nothing is answered.
    """

    threshold: Floats
    n: int
    n_answered: Ints
    n_wrong: Ints
    coverage: Floats
    coverage_low: Floats
    coverage_high: Floats
    risk: Floats
    risk_low: Floats
    risk_high: Floats

    def __len__(self) -> int:
        return len(self.threshold)


def answer_or_abstain(confidences: ArrayLike, threshold: float) -> NDArray[np.bool_]:
    """True where a question is answered, False where the model abstains.

    Args:
        confidences: float [N] in [0, 1], read in the way that the threshold was found for.
        threshold: see :class:`AbstentionRule`.

    Raises:
        ValueError: a confidence outside [0, 1], or a threshold below 0 or NaN.

    Example:
        >>> answer_or_abstain([0.9, 0.5, 0.7], 0.7).tolist()
        [True, False, True]
    """
    if not threshold >= 0.0:
        raise ValueError(f"threshold: expected a number >= 0, or infinity to answer nothing, got {threshold!r}")
    return np.asarray(check_confidence(confidences) >= threshold)


def halves(ids: Sequence[str], seed: int = 0) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Indices of two disjoint halves, by a hash of (seed, id): the first to fit on, the second to find a threshold on.

    The order of the items does not matter; the second half has the extra one of an odd number.

    Raises:
        ValueError: fewer than two ids, or an id that occurs twice.

    Example:
        >>> first, second = halves([f"item {n}" for n in range(7)])
        >>> len(first), len(second), sorted([*first.tolist(), *second.tolist()]) == list(range(7))
        (3, 4, True)
    """
    if len(ids) < 2:
        raise ValueError(f"ids: expected at least two items to make halves of, got {len(ids)}")
    if len(set(ids)) < len(ids):
        raise ValueError("ids: an id occurs twice; the halves must not share an item")
    order = sorted(
        range(len(ids)), key=lambda place: hashlib.sha256(f"abstain {seed}\x00{ids[place]}".encode()).digest()
    )
    middle = len(ids) // 2
    return np.array(sorted(order[:middle]), dtype=np.intp), np.array(sorted(order[middle:]), dtype=np.intp)


def plan_thresholds(
    confidence: ArrayLike, correct: ArrayLike, target: float, *, n_items: int, level: float = 0.95, count: int = 100
) -> Floats:
    """Thresholds in the order in which they will be tested, from items that are not tested on.

    The grid is quantiles of these confidences, and 0. The first to be tested is the one for which ``n_items`` further
    items would give the strongest evidence, judged by these; then every lower one, each answering more.

    Args:
        confidence: float [N] in [0, 1]. correct: bool or 0/1 [N].
        target: the error rate among answered to be held, in (0, 1).
        n_items: on how many items the thresholds will be tested.
        level: the probability with which it is to hold.
        count: most thresholds of the grid.

    Returns:
        float64 [M], falling.

    Raises:
        ValueError: wrong arrays or settings.

    Example:
        >>> plan_thresholds([0.9, 0.8, 0.6, 0.5], [1, 1, 1, 0], 0.3, n_items=100, count=4).tolist()
        [0.6, 0.5, 0.0]

    Source: Angelopoulos et al. (2025), Learn then Test, section 2: the order may be learned from other data.
    """
    confidence, correct = check_confidence_and_correct(confidence, correct)
    _check_shares(target, level)
    check_count(n_items, "n_items")
    shares = np.linspace(0.0, 1.0, check_count(count, "count"))
    grid = np.unique(np.append(np.quantile(confidence, shares, method="lower"), 0.0))[::-1]
    answered = np.array([(confidence >= one).sum() for one in grid], dtype=np.float64)
    wrong = np.array([(correct[confidence >= one] == 0).sum() for one in grid], dtype=np.float64)
    # half an error more, so that no error among few items is not taken for none at all
    risk = (wrong + 0.5) / (answered + 1.0)
    expected = np.round(answered / len(confidence) * n_items)
    evidence = binom.logcdf(np.round(risk * expected), expected, target)
    evidence[expected == 0] = 0.0
    return np.asarray(grid[int(np.argmin(evidence)) :])


def select_threshold(
    confidence: ArrayLike, correct: ArrayLike, thresholds: ArrayLike, target: float, level: float = 0.95
) -> AbstentionRule:
    """The last threshold in a fixed order before the first whose error rate is not shown to be at most the target.

    P(R(threshold) <= target) >= level over the draw of the items, for every n and every distribution: of n_t answered
    items k are wrong, k ~ Binomial(n_t, R(t)) given n_t, so p_t = P(Binomial(n_t, target) <= k) is a valid p-value of
    "R(t) > target"; in a fixed order each is tested at 1 - level, and an error must be made at the first true one.

    Args:
        confidence: float [N] in [0, 1]. correct: bool or 0/1 [N]. Neither may have been looked at before.
        thresholds: float [M], in order, fixed without these items; see :func:`plan_thresholds`.
        target: error rate among answered to be held, in (0, 1).
        level: the probability with which it is to hold, in (0, 1).

    Returns:
        The rule; it answers nothing where the first threshold fails.

    Raises:
        ValueError: wrong arrays or settings.

    Example:
        >>> found = select_threshold([0.9] * 60 + [0.4] * 40, [1] * 60 + [0] * 40, [0.9, 0.4], 0.1)
        >>> found.threshold, found.n_answered, found.n_wrong
        (0.9, 60, 0)

    Source: Angelopoulos et al. (2025), Learn then Test, fixed-sequence testing; Geifman and El-Yaniv (2017) for the
        binomial bound on the selective risk.
    """
    confidence, correct = check_confidence_and_correct(confidence, correct)
    _check_shares(target, level)
    order = np.asarray(thresholds, dtype=np.float64)
    if order.ndim != 1 or not order.size or not (order >= 0.0).all():
        raise ValueError("thresholds: expected at least one number >= 0, in the order in which they are tested")
    found = _rule(NOTHING, "answered", target, level, confidence, correct)
    for threshold in order.tolist():
        tried = _rule(threshold, "answered", target, level, confidence, correct)
        if risk_p_value(tried.n_wrong, tried.n_answered, target) > 1.0 - level:
            break
        found = tried
    return found


def conformal_threshold(confidence: ArrayLike, correct: ArrayLike, target: float) -> AbstentionRule:
    """The lowest threshold for which (number answered and wrong + 1) / (n + 1) <= target.

    E[answered and wrong] <= target for the next item, the mean being over the items and it; for confidences without
    ties it is also above target - 2 / (n + 1), unless everything may be answered.

    Args:
        confidence: float [N] in [0, 1]. correct: bool or 0/1 [N]. Neither may have been looked at before.
        target: the share of all questions that may be answered and wrong, in (0, 1).

    Returns:
        The rule; it answers nothing where n + 1 < 1 / target.

    Raises:
        ValueError: wrong arrays or target.

    Example:
        >>> found = conformal_threshold([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 0], 0.4)
        >>> 0.6 < found.threshold < 0.6001, found.n_answered, found.n_wrong
        (True, 3, 1)

    Source: Angelopoulos et al. (2024), Conformal Risk Control, theorem 1.
    """
    confidence, correct = check_confidence_and_correct(confidence, correct)
    _check_shares(target, 0.5)
    # the small step up keeps 0.1 * 10 - 1 at 0 in binary
    allowed = int(np.floor(target * (len(confidence) + 1) - 1.0 + 1e-9))
    wrong = np.sort(confidence[correct == 0])[::-1]
    if allowed < 0:
        threshold = NOTHING
    elif len(wrong) <= allowed:
        threshold = 0.0
    else:
        # the first wrong item too many, and all that are tied with it, must lie below
        threshold = float(np.nextafter(wrong[allowed], np.inf))
    return _rule(threshold, "joint", target, None, confidence, correct)


def risk_p_value(n_wrong: int, n_answered: int, target: float) -> float:
    """P(Binomial(n_answered, target) <= n_wrong): how surprising so few errors are if the error rate exceeds target.

    Example:
        >>> round(risk_p_value(0, 29, 0.1), 4), risk_p_value(0, 0, 0.1)
        (0.0471, 1.0)
    """
    return float(binom.cdf(n_wrong, n_answered, target)) if n_answered else 1.0


def exact_interval(k: ArrayLike, n: ArrayLike, level: float = 0.95) -> tuple[Floats, Floats]:
    """Two-sided Clopper-Pearson interval of a share, k of n; [0, 1] where n is 0.

    Example:
        >>> [round(float(end), 4) for end in exact_interval(0, 10)]
        [0.0, 0.3085]

    Source: Clopper and Pearson (1934).
    """
    k, n = np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
    tail = (1.0 - level) / 2.0
    with np.errstate(invalid="ignore"):
        low = np.where(k > 0, beta.ppf(tail, k, n - k + 1.0), 0.0)
        high = np.where(k < n, beta.ppf(1.0 - tail, k + 1.0, n - k), 1.0)
    return np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)


def risk_coverage(
    confidence: ArrayLike, correct: ArrayLike, thresholds: ArrayLike, level: float = 0.95
) -> RiskCoverage:
    """Coverage and error rate among answered at each threshold, with exact intervals at ``level``.

    The intervals are each for itself: a threshold that was picked from the table because its interval looks good has
    no guarantee. :func:`select_threshold` gives one.

    Args:
        confidence: float [N] in [0, 1]. correct: bool or 0/1 [N].
        thresholds: float [M] >= 0; infinity answers nothing.

    Raises:
        ValueError: wrong arrays.

    Example:
        >>> table = risk_coverage([0.9, 0.8, 0.2, 0.1], [1, 0, 1, 0], [0.8, 0.0])
        >>> table.coverage.tolist(), table.risk.tolist()
        ([0.5, 1.0], [0.5, 0.5])

    Source: El-Yaniv and Wiener (2010).
    """
    confidence, correct = check_confidence_and_correct(confidence, correct)
    order = np.asarray(thresholds, dtype=np.float64).reshape(-1)
    answered = np.array([(confidence >= one).sum() for one in order], dtype=np.int64)
    wrong = np.array([(correct[confidence >= one] == 0).sum() for one in order], dtype=np.int64)
    n = len(confidence)
    coverage_low, coverage_high = exact_interval(answered, np.full(len(order), n), level)
    risk_low, risk_high = exact_interval(wrong, answered, level)
    risk = np.where(answered > 0, wrong / np.maximum(answered, 1), np.nan)
    return RiskCoverage(order, n, answered, wrong, answered / n, coverage_low, coverage_high, risk, risk_low, risk_high)


def _rule(
    threshold: float, control: Control, target: float, level: float | None, confidence: Floats, correct: Floats
) -> AbstentionRule:
    answered = confidence >= threshold
    wrong = int((correct[answered] == 0).sum())
    return AbstentionRule(threshold, control, target, level, len(confidence), int(answered.sum()), wrong)


def _check_shares(target: float, level: float) -> None:
    for name, value in (("target", target), ("level", level)):
        if not 0.0 < value < 1.0:
            raise ValueError(f"{name}: expected a share in (0, 1), got {value!r}")
