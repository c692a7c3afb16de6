"""Semantic calibration with intervals, and with refusals counted apart.

Invariant: questions are the unit of every interval; samples are never resampled in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .binned import expected_calibration_error
from .bootstrap import Interval, bootstrap_interval
from .semantic import Estimator, modal_grades, modal_places, pool_confidence, pool_entropy, semantic_confidence
from .semantic_pool import ClassId, ClassIds, Grades, Pools, WithinClass, pool_samples


@dataclass(frozen=True)
class SemanticSummary:
    """The figures of one table of classes, each with its 95 % bootstrap interval over questions.

    Args:
        n: questions.
        n_ties: questions whose modal class was drawn among several.
        accuracy: of the modal class.
        sem1_confidence, sem2_confidence: mean over questions.
        sem1_ece, sem2_ece: fractions.
        entropy: mean semantic entropy by frequency, nats.
    """

    n: int
    n_ties: int
    accuracy: Interval
    sem1_confidence: Interval
    sem2_confidence: Interval
    sem1_ece: Interval
    sem2_ece: Interval
    entropy: Interval


@dataclass(frozen=True)
class Abstention:
    """Refusals counted apart, and the calibration error of both views, each with its 95 % interval over questions.

    Args:
        n: questions.
        n_answered: questions whose modal class is an answer.
        coverage: share of questions answered.
        refusal_share: share of samples that are refusals, mean over questions.
        accuracy_answered: among answered questions; NaN where a resample has none.
        accuracy: among all questions, a refusal being wrong.
        ece_refusal_wrong: the paper's view, all questions, so that a confident refusal is confidently wrong.
        ece_answered: the abstention-aware view, answered questions only.
    """

    n: int
    n_answered: int
    coverage: Interval
    refusal_share: Interval
    accuracy_answered: Interval
    accuracy: Interval
    ece_refusal_wrong: Interval
    ece_answered: Interval


def semantic_summary(
    class_ids: ClassIds,
    correct: Grades,
    n_bins: int = 10,
    seed: int = 0,
    *,
    refused: Grades | None = None,
    ids: Sequence[ClassId] | None = None,
    n_splits: int = 10,
    within_class: WithinClass = "same",
    n_resamples: int = 1000,
) -> SemanticSummary:
    """Accuracy, mean confidence, Sem1-ECE, Sem2-ECE and entropy with intervals.

    Args:
        class_ids, correct, refused, ids, n_splits, within_class: see :func:`semantic_confidence`; n >= 2 samples.
        n_bins: number of equal-width bins.
        seed: of ties, half splits and resampling.
        n_resamples: of the bootstrap.

    Raises:
        ValueError: wrong shapes or values, named by index.

    Example:
        >>> summary = semantic_summary([["a", "a", "a", "b"], ["c", "d", "c", "c"]], [[1, 1, 1, 0], [0, 0, 0, 0]])
        >>> summary.sem1_ece.estimate, summary.accuracy.estimate, summary.n_ties
        (0.25, 0.5, 0)
    """
    pools = pool_samples(class_ids, correct, refused=refused, within_class=within_class, ids=ids)
    return summarise_pools(pools, n_bins, seed, n_splits, n_resamples)


def semantic_abstention(
    class_ids: ClassIds,
    correct: Grades,
    refused: Grades,
    estimator: Estimator = "sem1",
    n_bins: int = 10,
    seed: int = 0,
    *,
    ids: Sequence[ClassId] | None = None,
    n_splits: int = 10,
    within_class: WithinClass = "same",
    n_resamples: int = 1000,
) -> Abstention:
    """Coverage, share of refusals, accuracy among answered, and semantic ECE with refusals as wrong and without them.

    A question is answered if its modal class is not the refusals, which count as one class. Confidence is the share of
    all samples in both views.

    Args:
        class_ids, estimator, ids, n_splits, within_class: see :func:`semantic_confidence`.
        correct: [N][n], for each sample; a refusal cannot be correct.
        refused: [N][n], which samples are refusals.
        n_bins: number of equal-width bins.
        seed: of ties, half splits and resampling.
        n_resamples: of the bootstrap.

    Raises:
        ValueError: wrong shapes or values, named by index.

    Example:
        >>> found = semantic_abstention([[1, 1], [2, 3]], [[1, 1], [0, 0]], [[0, 0], [1, 1]])
        >>> found.coverage.estimate, found.accuracy_answered.estimate, found.accuracy.estimate
        (0.5, 1.0, 0.5)
        >>> found.ece_refusal_wrong.estimate, found.ece_answered.estimate
        (0.5, 0.0)
    """
    if refused is None:
        raise ValueError("refused: expected [N][n], which samples are refusals, got None")
    found = semantic_confidence(
        class_ids, correct, estimator, seed, refused=refused, ids=ids, n_splits=n_splits, within_class=within_class
    )
    right = demand_grades(found.correct)
    share = np.array([np.mean([bool(flag) for flag in row]) for row in refused])
    ece = partial(expected_calibration_error, n_bins=n_bins)
    interval = partial(bootstrap_interval, seed=seed, n_resamples=n_resamples)
    return Abstention(
        n=len(found),
        n_answered=int(found.answered.sum()),
        coverage=interval(mean, found.answered),
        refusal_share=interval(mean, share),
        accuracy_answered=interval(partial(_among, mean), found.answered, right),
        accuracy=interval(mean, right),
        ece_refusal_wrong=interval(ece, found.confidence, right),
        ece_answered=interval(partial(_among, ece), found.answered, found.confidence, right),
    )


def summarise_pools(pools: Pools, n_bins: int, seed: int, n_splits: int, n_resamples: int) -> SemanticSummary:
    """:func:`semantic_summary` of counted samples."""
    pick, tied = modal_places(pools, seed)
    right = demand_grades(modal_grades(pools, pick))
    sem1 = pool_confidence(pools, "sem1", seed)
    sem2 = pool_confidence(pools, "sem2", seed, n_splits)
    ece = partial(expected_calibration_error, n_bins=n_bins)
    interval = partial(bootstrap_interval, seed=seed, n_resamples=n_resamples)
    return SemanticSummary(
        n=len(pools),
        n_ties=int((tied > 1).sum()),
        accuracy=interval(mean, right),
        sem1_confidence=interval(mean, sem1),
        sem2_confidence=interval(mean, sem2),
        sem1_ece=interval(ece, sem1, right),
        sem2_ece=interval(ece, sem2, right),
        entropy=interval(mean, pool_entropy(pools)),
    )


def mean(values: NDArray[Any]) -> float:
    """Mean of an array of numbers or flags."""
    return float(values.mean())


def demand_grades(right: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
    """The grades, which must be there.

    Raises:
        ValueError: there are none.
    """
    if right is None:
        raise ValueError("correct: expected grades, [N][n] for samples or [N] for modal classes, got None")
    return right


def _among(metric: Callable[..., float], answered: NDArray[np.bool_], *arrays: NDArray[Any]) -> float:
    """The metric on the answered questions, NaN where there are none."""
    return metric(*(array[answered] for array in arrays)) if answered.any() else float("nan")
