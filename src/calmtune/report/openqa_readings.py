"""What sampling says of every question of one model, as arrays that the measures are computed from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from calmtune.graded import GradedAnswers
from calmtune.metrics.semantic import (
    SAME_TEXT_TOLERANCE,
    modal_grades,
    modal_places,
    pool_confidence,
    pool_entropy,
    semantic_entropy,
)
from calmtune.metrics.semantic_pool import REFUSED, Pools, WithinClass, pool_samples

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

WITHIN_CLASS: WithinClass = "majority"
"""A class of meaning is right where more than half of its answers are; by the exact rule they have one grade anyway."""


@dataclass(frozen=True)
class OpenReading:
    """One model on one set of questions.

    Args:
        ids: N. sem1, sem2: confidence in the modal class, float64 [N].
        correct: bool [N], grade of the modal class; a refusal is wrong.
        answered: bool [N], False where the modal class is the refusals.
        entropy: semantic entropy by frequency, nats. likelihood_entropy: over distinct texts by their probability,
            NaN where it is not known.
        refusals: share of a question's samples that are refusals, float64 [N].
        ties: bool [N], the modal class was drawn among several.
    """

    ids: tuple[str, ...]
    sem1: Floats
    sem2: Floats
    correct: Flags
    answered: Flags
    entropy: Floats
    likelihood_entropy: Floats
    refusals: Floats
    ties: Flags

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def confidence(self) -> Floats:
        """Sem1, the confidence that null bands are drawn from."""
        return self.sem1


def read_open(
    graded: GradedAnswers, *, rule: str | None = None, seed: int = 0, temperature: float = 1.0
) -> OpenReading:
    """Read graded answers.

    Args:
        graded: at least one question, two samples or more each.
        rule: of the classes; by default the headline's.
        seed: of ties and half splits, which belong to the question's id.
        temperature: T of the classes: ``sem1`` becomes n_1^(1/T) / sum_k n_k^(1/T). ``sem2`` stays that of T = 1.
    """
    pools = pools_of(graded, rule)
    pick, tied = modal_places(pools, seed)
    right = modal_grades(pools, pick)
    assert right is not None, "graded answers have grades"
    return OpenReading(
        ids=graded.ids,
        sem1=class_confidence(pools, temperature),
        sem2=pool_confidence(pools, "sem2", seed),
        correct=np.asarray(right),
        answered=np.asarray(pools.kinds[np.arange(len(pools)), pick] != REFUSED),
        entropy=pool_entropy(pools),
        likelihood_entropy=_likelihood_entropy(graded, rule),
        refusals=np.array([np.mean(item.refused) for item in graded], dtype=np.float64),
        ties=np.asarray(tied > 1),
    )


def pools_of(graded: GradedAnswers, rule: str | None = None) -> Pools:
    """The counted samples."""
    return pool_samples(
        graded.classes(rule),
        [item.correct for item in graded],
        refused=[item.refused for item in graded],
        within_class=WITHIN_CLASS,
        ids=graded.ids,
    )


def class_confidence(pools: Pools, temperature: float = 1.0) -> Floats:
    """Share of the largest class after a temperature on the shares: n_1^(1/T) / sum_k n_k^(1/T), float64 [N].

    Args:
        pools: counts fall along a row. temperature: T > 0; 1 gives the Sem1 confidence.
    """
    shares = pools.counts / pools.counts[:, :1]
    powers = np.where(shares > 0, shares, 0.0) ** (1.0 / temperature)
    return np.asarray(1.0 / powers.sum(axis=1))


def _likelihood_entropy(graded: GradedAnswers, rule: str | None) -> Floats:
    """Semantic entropy by likelihood, NaN for a question without log-probabilities."""
    found = np.full(len(graded), np.nan)
    for index, item in enumerate(graded):
        if item.log_probabilities:
            names, log_p = _spellings(item.texts, item.log_probabilities)
            classes = _own_classes(item.classes[rule or graded.rule], item.texts)
            found[index] = semantic_entropy([classes], [log_p], texts=[names])[0]
    return found


def _spellings(texts: Sequence[str], log_probabilities: Sequence[float]) -> tuple[list[str], list[float]]:
    """One text may be spelled by several token sequences, which differ in probability: a name and a value for each.

    >>> _spellings(["a", "a", "a"], [-1.0, -1.01, -3.0])
    (['a 0', 'a 0', 'a 1'], [-1.005, -1.005, -3.0])
    """
    names, values = [""] * len(texts), [0.0] * len(texts)
    for text in dict.fromkeys(texts):
        where = sorted((i for i, one in enumerate(texts) if one == text), key=lambda i: -log_probabilities[i])
        groups: list[list[int]] = []
        for i in where:
            if not groups or log_probabilities[groups[-1][0]] - log_probabilities[i] > SAME_TEXT_TOLERANCE:
                groups.append([])
            groups[-1].append(i)
        for number, group in enumerate(groups):
            mean = min(float(np.mean([log_probabilities[i] for i in group])), 0.0)
            for i in group:
                names[i], values[i] = f"{text} {number}", mean
    return names, values


def _own_classes(classes: Sequence[int], texts: Sequence[str]) -> list[int]:
    """Empty answers are a class each, though they are one text; for probabilities they are one."""
    first = dict(zip(reversed(texts), reversed(classes), strict=True))
    return [first[text] for text in texts]


def join(parts: Sequence[OpenReading]) -> OpenReading:
    """Several readings as one; ids get a number in front, as two domains may share one."""
    ids = tuple(f"{place}/{one}" for place, part in enumerate(parts) for one in part.ids)
    arrays = {f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(OpenReading)[1:]}
    return OpenReading(ids, **arrays)


def align(graded: GradedAnswers, ids: Sequence[str], name: str) -> GradedAnswers:
    """The questions in the order of ``ids``.

    Raises:
        ValueError: other questions than those; the message names the model and a few of them.
    """
    by_id = {item.id: item for item in graded}
    apart = sorted(set(by_id) ^ set(ids))
    if apart:
        raise ValueError(
            f"{name} was asked other questions: {len(apart)} are not shared, e.g. {', '.join(map(repr, apart[:3]))}"
        )
    return replace(graded, items=tuple(by_id[one] for one in ids))
