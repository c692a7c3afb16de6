"""How semantic calibration depends on choices: the number of samples, and the rule that groups them.

Invariant: questions are the unit of every interval; samples are never resampled in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from .binned import expected_calibration_error
from .bootstrap import Interval, PairedDifference, bootstrap_interval, paired_difference
from .checks import Floats, Ints, check_count
from .semantic import Estimator, modal_grades, modal_places, pool_confidence, pool_entropy
from .semantic_figures import SemanticSummary, demand_grades, mean, summarise_pools
from .semantic_pool import ClassId, ClassIds, Grades, Pools, WithinClass, pool_samples, sub_sample

PAPER_BUDGETS = (5, 10, 20, 30, 50)
"""Numbers of samples a question that the paper studies."""


@dataclass(frozen=True)
class BudgetPoint:
    """What ``n_samples`` answers a question would have shown, a mean over sub-samples, with intervals over questions.

    Args:
        n_samples: answers a question.
        ece: semantic ECE.
        accuracy: of the sub-sample's modal class.
        confidence: mean confidence.
        tie_share: share of questions whose modal class was drawn among several.
    """

    n_samples: int
    ece: Interval
    accuracy: Interval
    confidence: Interval
    tie_share: float


@dataclass(frozen=True)
class ClassRuleSensitivity:
    """How much the figures depend on the rule that says which answers mean the same.

    Args:
        rules: each rule's own figures.
        differences: for each pair of rules, first minus second: ``ece``, ``accuracy``, ``confidence``, ``entropy``.
    """

    rules: dict[str, SemanticSummary]
    differences: dict[tuple[str, str], dict[str, PairedDifference]]


def semantic_curve(
    class_ids: ClassIds,
    correct: Grades,
    budgets: Sequence[int] | None = None,
    estimator: Estimator = "sem1",
    n_bins: int = 10,
    seed: int = 0,
    *,
    repeats: int = 10,
    refused: Grades | None = None,
    ids: Sequence[ClassId] | None = None,
    n_splits: int = 10,
    within_class: WithinClass = "same",
    n_resamples: int = 1000,
) -> list[BudgetPoint]:
    """Semantic ECE as a function of the number of samples, from sub-samples of the stored ones.

    Each question's samples are drawn without replacement, ``repeats`` times; confidence, modal class and its grade are
    those of the sub-sample, as a run with that budget would have had them. The ECE is averaged over the repeats, never
    the confidences. Smaller budgets are parts of larger ones.

    Args:
        class_ids, estimator, refused, ids, n_splits, within_class: see :func:`semantic_confidence`.
        correct: [N][n], for each sample, since a sub-sample may have another modal class.
        budgets: numbers of samples; those of 5, 10, 20, 30 and 50 that every question has, by default.
        n_bins: number of equal-width bins.
        seed: of sub-samples, ties, half splits and resampling.
        repeats: sub-samples of each size.
        n_resamples: of the bootstrap.

    Returns:
        One point a budget, in the order given.

    Raises:
        ValueError: wrong shapes or values, named by index; a question with fewer samples than a budget.

    Example:
        >>> [point] = semantic_curve([[0, 0, 1]] * 3, [[0, 0, 0]] * 3, [1])
        >>> point.ece.estimate, point.n_samples
        (1.0, 1)
    """
    repeats = check_count(repeats, "repeats")
    pools = pool_samples(class_ids, correct, refused=refused, within_class=within_class, ids=ids)
    if not pools.graded:
        raise ValueError("correct: the curve needs a grade for each sample, [N][n]")
    smallest = int(pools.size.min())
    if budgets is None:
        budgets = [n for n in PAPER_BUDGETS if n <= smallest]
    if len(budgets) == 0:
        raise ValueError(f"budgets: expected at least one, got none; every question has {smallest} samples")
    interval = partial(bootstrap_interval, seed=seed, n_resamples=n_resamples)
    points = []
    for n in budgets:
        confidence, right, tied = _repeated(pools, n, estimator, seed, n_splits, repeats)
        points.append(
            BudgetPoint(
                n_samples=int(n),
                ece=interval(partial(_mean_ece, n_bins=n_bins), confidence, right),
                accuracy=interval(mean, right),
                confidence=interval(mean, confidence),
                tie_share=float((tied > 1).mean()),
            )
        )
    return points


def class_rule_sensitivity(
    tables: Mapping[str, ClassIds],
    correct: Grades | Mapping[str, Grades],
    estimator: Estimator = "sem1",
    n_bins: int = 10,
    seed: int = 0,
    *,
    refused: Grades | None = None,
    ids: Sequence[ClassId] | None = None,
    n_splits: int = 10,
    within_class: WithinClass = "same",
    n_resamples: int = 1000,
) -> ClassRuleSensitivity:
    """The same samples under several class rules: each rule's figures, and their paired differences over questions.

    Args:
        tables: by rule, [N][n] classes of the same samples; two rules or more.
        correct: grades for all rules, or by rule. Grades of samples (exact match, say) seldom agree within the classes
            of a wider rule: choose ``within_class``.
        estimator: whose ECE and confidence are compared.
        n_bins: number of equal-width bins.
        seed: of ties, half splits and resampling.
        refused, ids, n_splits, within_class: see :func:`semantic_confidence`.
        n_resamples: of the bootstrap, and of the permutation test.

    Raises:
        ValueError: fewer than two rules, tables of different samples, or wrong values, named by index.

    Example:
        >>> tables = {"exact": [["NYC", "New York"]] * 2, "meaning": [[0, 0]] * 2}
        >>> found = class_rule_sensitivity(tables, [[1, 1]] * 2)
        >>> found.differences["exact", "meaning"]["confidence"].estimate
        -0.5
    """
    names = list(tables)
    if len(names) < 2:
        raise ValueError(f"tables: expected the classes of at least two rules, got {names}")
    pools = {}
    for name in names:
        grades = _grades_of(name, names, correct)
        pools[name] = pool_samples(tables[name], grades, refused=refused, within_class=within_class, ids=ids)
        _check_same_samples(names[0], pools[names[0]], name, pools[name])
    sides = {name: _arrays(pools[name], estimator, seed, n_splits) for name in names}
    ece = partial(expected_calibration_error, n_bins=n_bins)
    compare = partial(paired_difference, seed=seed, n_resamples=n_resamples)
    differences = {}
    for a, b in combinations(names, 2):
        (conf_a, right_a, entropy_a), (conf_b, right_b, entropy_b) = sides[a], sides[b]
        differences[a, b] = {
            "ece": compare(ece, (conf_a, right_a), (conf_b, right_b)),
            "accuracy": compare(mean, (right_a,), (right_b,)),
            "confidence": compare(mean, (conf_a,), (conf_b,)),
            "entropy": compare(mean, (entropy_a,), (entropy_b,)),
        }
    summaries = {name: summarise_pools(pools[name], n_bins, seed, n_splits, n_resamples) for name in names}
    return ClassRuleSensitivity(summaries, differences)


def _repeated(
    pools: Pools, n: int, estimator: Estimator, seed: int, n_splits: int, repeats: int
) -> tuple[Floats, NDArray[np.bool_], Ints]:
    """Confidence, grade and number of tied classes of every sub-sample, each [N, repeats]."""
    columns = []
    for repeat in range(repeats):
        part = sub_sample(pools, n, seed, repeat)
        pick, tied = modal_places(part, seed, repeat)
        right = demand_grades(modal_grades(part, pick))
        columns.append((pool_confidence(part, estimator, seed, n_splits, repeat), right, tied))
    confidence, grades, ties = zip(*columns, strict=True)
    return np.stack(confidence, axis=1), np.stack(grades, axis=1), np.stack(ties, axis=1)


def _mean_ece(confidence: Floats, right: NDArray[np.bool_], n_bins: int) -> float:
    """ECE of each column, averaged."""
    columns = zip(confidence.T, right.T, strict=True)
    return float(np.mean([expected_calibration_error(c, y, n_bins) for c, y in columns]))


def _arrays(pools: Pools, estimator: Estimator, seed: int, n_splits: int) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """Confidence, grade and entropy of each question."""
    right = demand_grades(modal_grades(pools, modal_places(pools, seed)[0]))
    return pool_confidence(pools, estimator, seed, n_splits), right, pool_entropy(pools)


def _check_same_samples(first: str, a: Pools, name: str, b: Pools) -> None:
    if len(a) != len(b):
        raise ValueError(f"tables: rule {name!r} has {len(b)} questions and {first!r} has {len(a)}; expected the same")
    if (a.size != b.size).any():
        i = int(np.argmax(a.size != b.size))
        raise ValueError(
            f"tables: question {i} has {b.size[i]} samples under {name!r} and {a.size[i]} under {first!r}; "
            "expected the same samples"
        )


def _grades_of(name: str, names: list[str], correct: Grades | Mapping[str, Grades]) -> Grades:
    if not isinstance(correct, Mapping):
        if isinstance(correct, (Sequence, np.ndarray)) and len(correct) and np.ndim(correct[0]) == 0:
            raise ValueError(
                "correct: rules differ in their modal classes; expected grades for samples, [N][n], or a mapping from "
                "rule to grades"
            )
        return correct
    if set(correct) != set(names):
        raise ValueError(f"correct: expected grades for the rules {names}, got {list(correct)}")
    return correct[name]
