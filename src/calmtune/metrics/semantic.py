"""Calibration of sampled answers: confidence, calibration error and entropy over classes of one meaning.

Invariant: neither the order of the samples nor the names of the classes changes a figure; with ``ids``, the order of
the questions does not either.

Ties. Where m classes share the largest count, each is the modal class with probability 1/m, drawn by the question's id
and the seed; the draw looks at the grades (refused, wrong, right) so that it does not look at names or places. How many
questions were tied is reported. In the half splits of Sem2 a tie of the choosing half is not drawn: the mean over the
tied classes stands for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from .binned import expected_calibration_error
from .checks import Floats, Ints, check_count
from .semantic_draws import Keys, draw, draw_share, question_keys
from .semantic_pool import (
    REFUSED,
    RIGHT,
    ClassId,
    ClassIds,
    Grades,
    Pools,
    WithinClass,
    check_classes,
    check_questions,
    count_classes,
    pool_samples,
)

Estimator = Literal["sem1", "sem2"]

SAME_TEXT_TOLERANCE = 0.05
"""Log-probabilities (nats) of one text may differ by this between batches; beyond it they are not of one text."""


@dataclass(frozen=True)
class SemanticConfidence:
    """What sampling says of each question, ready for any metric of confidence against correctness.

    Args:
        confidence: float64 [N] in [0, 1].
        correct: bool [N], grade of the modal class; None where no grades were given.
        modal_class: N names; None where the modal class is the refusals.
        tied: int64 [N], how many classes share the largest count; 1 means no tie.
        answered: bool [N], False where the modal class is the refusals.
    """

    confidence: Floats
    correct: NDArray[np.bool_] | None
    modal_class: tuple[ClassId | None, ...]
    tied: Ints
    answered: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.confidence)

    @property
    def n_ties(self) -> int:
        """Questions whose modal class was drawn among several."""
        return int((self.tied > 1).sum())


def semantic_confidence(
    class_ids: ClassIds,
    correct: Grades | None = None,
    estimator: Estimator = "sem1",
    seed: int = 0,
    *,
    refused: Grades | None = None,
    ids: Sequence[ClassId] | None = None,
    n_splits: int = 10,
    within_class: WithinClass = "same",
) -> SemanticConfidence:
    """Confidence and grade of each question's modal class.

    ``sem1``: max_k n_k / n. ``sem2``: in each of R random half splits, the modal class of one half (the larger one if n
    is odd) and its share of the other half; the mean of the shares. The modal class and its grade are those of the
    whole pool for both. Sem1 looks for the largest count and reads it in the same samples, so its mean is above the
    largest class probability; Sem2's mean is not.

    Args:
        class_ids: ``[N][n]``, the class of each sample, an int or a string; n may differ between questions.
        correct: per sample ``[N][n]``, from which the modal class's grade is read; or [N], the grades of exactly the
            modal classes that this function returns without it.
        estimator: ``"sem1"`` (n >= 1) or ``"sem2"`` (n >= 2).
        seed: of ties and half splits.
        refused: ``[N][n]``, which samples are refusals: they become one class, whose grade is wrong.
        ids: [N], different ints or strings, to which the draws belong; places by default.
        n_splits: R.
        within_class: ``"same"`` demands that the samples of a class have one grade; ``"any"`` takes one right sample as
            enough, ``"majority"`` more than half.

    Raises:
        ValueError: wrong shapes or values, named by index.

    Example:
        >>> found = semantic_confidence([["Rome", "Rome", "Milan"], ["7", "7", "7"]], [[1, 1, 0], [0, 0, 0]])
        >>> found.confidence.round(6).tolist(), found.modal_class, found.correct.tolist()
        ([0.666667, 1.0], ('Rome', '7'), [True, False])

    Source: Wang et al. (2026), the two Sem-ECE estimators, as summarised in public.
    """
    pools = pool_samples(class_ids, correct, refused=refused, within_class=within_class, ids=ids)
    pick, tied = modal_places(pools, seed)
    return SemanticConfidence(
        pool_confidence(pools, estimator, seed, n_splits),
        modal_grades(pools, pick),
        tuple(names[j] for names, j in zip(pools.labels, pick.tolist(), strict=True)),
        tied,
        pools.kinds[np.arange(len(pools)), pick] != REFUSED,
    )


def semantic_ece(
    class_ids: ClassIds,
    correct: Grades,
    estimator: Estimator = "sem1",
    n_bins: int = 10,
    seed: int = 0,
    *,
    refused: Grades | None = None,
    ids: Sequence[ClassId] | None = None,
    n_splits: int = 10,
    within_class: WithinClass = "same",
) -> float:
    """Sem1-ECE or Sem2-ECE: sum_b n_b/N |accuracy_b - mean confidence_b| over equal-width bins of semantic confidence.

    Args:
        class_ids, correct, estimator, seed, refused, ids, n_splits, within_class: see :func:`semantic_confidence`.
            With ``refused`` a confident refusal is confidently wrong; :func:`semantic_abstention` also gives the figure
            among answered questions.
        n_bins: number of bins.

    Returns:
        A fraction in [0, 1].

    Raises:
        ValueError: wrong shapes or values, named by index.

    Example:
        >>> semantic_ece([["a", "a", "a", "b"], ["c", "d", "c", "c"]], [[1, 1, 1, 0], [0, 0, 0, 0]])
        0.25

    Source: Wang et al. (2026), Sem-ECE, as summarised in public.
    """
    found = semantic_confidence(
        class_ids, correct, estimator, seed, refused=refused, ids=ids, n_splits=n_splits, within_class=within_class
    )
    if found.correct is None:
        raise ValueError("correct: expected grades, [N][n] for samples or [N] for modal classes, got None")
    return expected_calibration_error(found.confidence, found.correct, n_bins)


def semantic_entropy(
    class_ids: ClassIds,
    log_probabilities: Sequence[Sequence[float]] | NDArray[Any] | None = None,
    *,
    texts: Sequence[Sequence[ClassId]] | NDArray[Any] | None = None,
) -> Floats:
    """Entropy over classes, -sum_k q_k ln q_k, for each question.

    Without log-probabilities q_k = n_k / n. With them q_k is proportional to the sum of p over the *distinct* texts of
    the class: a text that was drawn three times has its probability once. A class of probability 0 adds 0.

    Args:
        class_ids: ``[N][n]``, the class of each sample.
        log_probabilities: ``[N][n]``, ln p of each sample's whole text under the model's own distribution, nats, <= 0;
            -inf is probability 0.
        texts: ``[N][n]``, the samples' texts, or any ids that are equal for equal texts; needed with, and only with,
            ``log_probabilities``. Where one text can be spelled by several token sequences, ids of the sequences count
            each of them.

    Returns:
        float64 [N], nats.

    Raises:
        ValueError: wrong shapes or values, named by index; one text in two classes, or with two log-probabilities more
            than ``SAME_TEXT_TOLERANCE`` apart; a question whose probabilities are all 0.

    Example:
        >>> classes, texts = [[0, 0, 0, 0, 1]], [["Rome", "Rome", "Rome", "It's Rome", "Milan"]]
        >>> semantic_entropy(classes).round(6).tolist()
        [0.500402]
        >>> semantic_entropy(classes, np.log([[0.5, 0.5, 0.5, 0.2, 0.1]]), texts=texts).round(6).tolist()
        [0.37677]

    Source: Kuhn, Gal and Farquhar (2023), eq. 3; Farquhar et al. (2024), the discrete form.
    """
    if (log_probabilities is None) != (texts is None):
        missing = "texts" if texts is None else "log_probabilities"
        raise ValueError(f"{missing}: expected log_probabilities and texts together, so that repeats count once")
    if log_probabilities is None or texts is None:
        return pool_entropy(pool_samples(class_ids))
    rows = check_questions(class_ids, "class_ids")
    logs, names = check_questions(log_probabilities, "log_probabilities"), check_questions(texts, "texts")
    for values, name in ((logs, "log_probabilities"), (names, "texts")):
        if len(values) != len(rows):
            raise ValueError(f"{name} has {len(values)} questions and class_ids has {len(rows)}; expected the same")
    each = enumerate(zip(rows, logs, names, strict=True))
    return np.array([_likelihood_entropy(i, check_classes(row, i), p, text) for i, (row, p, text) in each])


def modal_places(pools: Pools, seed: int, repeat: int = 0) -> tuple[Ints, Ints]:
    """(place of the modal class, number of classes tied for it), both int64 [N]."""
    tied = (pools.counts == pools.counts[:, :1]).sum(axis=1)
    share = draw_share(question_keys(pools.ids, seed, f"tie {repeat}"))
    return (share * tied).astype(np.int64), tied


def modal_grades(pools: Pools, pick: Ints) -> NDArray[np.bool_] | None:
    """Grades of the picked classes, bool [N], or None where there are no grades."""
    if pools.given is not None:
        return pools.given
    return pools.kinds[np.arange(len(pools)), pick] == RIGHT if pools.graded else None


def pool_confidence(pools: Pools, estimator: Estimator, seed: int, n_splits: int = 10, repeat: int = 0) -> Floats:
    """Confidence in each pool's modal class, float64 [N]; see :func:`semantic_confidence`."""
    n_splits = check_count(n_splits, "n_splits")
    if estimator == "sem1":
        return np.asarray(pools.counts[:, 0] / pools.size)
    if estimator != "sem2":
        raise ValueError(f"estimator: expected 'sem1' or 'sem2', got {estimator!r}")
    if (pools.size < 2).any():
        i = int(np.argmax(pools.size < 2))
        raise ValueError(f"class_ids[{i}] has one sample; sem2 splits samples in halves and needs at least two")
    keys = question_keys(pools.ids, seed, f"split {repeat}")
    confidence = np.empty(len(pools))
    for rows, samples in pools.by_size(n_splits):
        confidence[rows] = _split_shares(samples, pools.counts[rows], keys[rows], n_splits).mean(axis=1)
    return confidence


def pool_entropy(pools: Pools) -> Floats:
    """Entropy of each pool's class frequencies, float64 [N], nats."""
    return _entropy(pools.counts / pools.size[:, None])


def _split_shares(samples: Ints, counts: Ints, keys: Keys, n_splits: int) -> Floats:
    """What each half split reads, float64 [M, R]: the share, in one half, of the other half's modal classes."""
    m, n = samples.shape
    chosen_size = (n + 1) // 2
    order = draw(keys, n_splits * n).reshape(m, n_splits, n)
    half = np.argpartition(order, chosen_size - 1, axis=2)[:, :, :chosen_size]
    chosen = count_classes(samples[np.arange(m)[:, None, None], half], counts.shape[1])
    modal = chosen == chosen.max(axis=2, keepdims=True)
    read = np.where(modal, counts[:, None, :] - chosen, 0).sum(axis=2)
    return np.asarray(read / (modal.sum(axis=2) * (n - chosen_size)))


def _entropy(q: Floats) -> Floats:
    return np.asarray(np.abs(xlogy(q, q).sum(axis=-1)))  # abs: minus 0 for a single class is 0


def _likelihood_entropy(i: int, row: list[ClassId], log_p: Any, texts: Any) -> float:
    """Entropy of question ``i`` from the probabilities of its distinct texts."""
    logs = np.asarray(log_p)
    if not len(row) == len(logs) == len(texts) or logs.dtype.kind not in "iuf":
        raise ValueError(
            f"question {i}: expected {len(row)} texts and real log-probabilities, one for each sample, "
            f"got {len(texts)} and {len(logs)} of dtype {logs.dtype}"
        )
    members: dict[Any, list[int]] = {}
    for k, text in enumerate(texts):
        if isinstance(text, bool) or not isinstance(text, (str, int, np.integer)):
            raise ValueError(f"texts[{i}][{k}] is {text!r}; expected a string or an int")
        if not logs[k] <= 1e-6:
            raise ValueError(f"log_probabilities[{i}][{k}] is {logs[k]}; expected ln p <= 0, or -inf for p = 0")
        members.setdefault(text, []).append(k)
    place = {name: j for j, name in enumerate(dict.fromkeys(row))}
    cells, values = [], []
    for text, where in members.items():
        if len({row[k] for k in where}) > 1:
            raise ValueError(f"texts[{i}]: {text!r} is in several classes; expected one class for a text")
        found = logs[where].astype(np.float64)
        low, high = found.min(), found.max()
        if not (low == high or high - low <= SAME_TEXT_TOLERANCE):
            raise ValueError(
                f"log_probabilities[{i}]: {text!r} has {low:.6g} and {high:.6g}; expected one value for a text. "
                "If token sequences differ, give ids of the sequences as texts"
            )
        cells.append(place[row[where[0]]])
        values.append(low if low == high else found.mean())
    top = max(values)
    if np.isneginf(top):
        raise ValueError(f"log_probabilities[{i}] are all -inf; expected a text of probability above 0")
    mass = np.bincount(cells, weights=np.exp(np.array(values) - top), minlength=len(place))
    return float(_entropy(mass / mass.sum()))
