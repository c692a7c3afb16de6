"""Classes of meaning among the answers sampled for one question.

Only the first line of an answer counts. Answers with the same normal form share a class. An empty form is equal to
nothing, not even to another empty one, so each empty answer is a class of its own: a model that says nothing ten times
is not sure of anything. Answers that the caller marks as refused share one class, whatever their words.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from .match import first_line
from .normalise import NORMALISER, normaliser_named

EXACT_VERSION = "1"
NLI_VERSION = "1"

Pair = tuple[str, str]
Entails = Callable[[Sequence[Pair]], Sequence[bool]]


@dataclass(frozen=True)
class Clusters:
    """The classes of one question's answers.

    Args:
        ids: class of each answer, 0, 1, ... in order of first occurrence; the partition does not depend on the order.
        rule: ``"exact"`` or ``"nli"``.
        version: version of the rule and name of the normaliser, e.g. ``"1/calmtune-1"``.
        refusal_id: class of the refused answers, or None where there is none.
    """

    ids: tuple[int, ...]
    rule: str
    version: str
    refusal_id: int | None = None


@dataclass(frozen=True)
class Sampled:
    """A question and the answers sampled for it.

    Args:
        question: the text.
        answers: what the model said, one entry a sample, repeats included.
        refused: which answers are refusals (see ``is_refusal``); empty for none.
    """

    question: str
    answers: tuple[str, ...]
    refused: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        if self.refused and len(self.refused) != len(self.answers):
            raise ValueError(
                f"question {self.question!r}: {len(self.refused)} refusal marks for {len(self.answers)} answers; "
                "expected one each, or none at all"
            )


def exact_clusters(answers: Sequence[str], *, refused: Sequence[bool] = (), normaliser: str = NORMALISER) -> Clusters:
    """Classes of answers whose first lines have the same normal form.

    Args:
        answers: the samples of one question, repeats included.
        refused: which of them are refusals; these share one class.
        normaliser: a key of ``NORMALISERS``.

    Raises:
        ValueError: as many refusal marks as answers were expected, or an unknown normaliser.

    >>> exact_clusters(["Rome", "rome.", "Milan", "", ""]).ids
    (0, 0, 1, 2, 3)
    """
    keys = _keys(Sampled("", tuple(answers), tuple(refused)), normaliser)
    return _clusters(keys, "exact", f"{EXACT_VERSION}/{normaliser}")


def nli_clusters(items: Iterable[Sampled], entails: Entails, *, normaliser: str = NORMALISER) -> list[Clusters]:
    """Classes of answers that entail each other in both directions, for many questions at once.

    ``a ~ b`` where "question a" entails "question b" and the reverse; classes are the connected components of ~, so the
    order of the answers plays no part. Only distinct texts are compared: same normal form, same class, one comparison.
    Empty and refused answers are not compared. ``entails`` is called twice: then with the reverse of what held.

    Args:
        items: questions with their answers.
        entails: from (premise, hypothesis) pairs to whether each is an entailment; see ``EntailmentModel``.
        normaliser: a key of ``NORMALISERS``.

    Raises:
        ValueError: ``entails`` gave another number of answers than it got pairs, or an unknown normaliser.

    Source: Kuhn et al. 2023, section 4.2 (there greedily, against each class's first member).
    """
    items = list(items)
    keys = [_keys(item, normaliser) for item in items]
    links = _links(items, keys, entails)
    version = f"{NLI_VERSION}/{normaliser}"
    return [_clusters(_joined(key, link), "nli", version) for key, link in zip(keys, links, strict=True)]


REFUSED = ("refused",)


def _keys(item: Sampled, normaliser: str) -> list[Hashable]:
    """What two answers have in common exactly where the exact rule puts them into one class."""
    form = normaliser_named(normaliser)
    keys: list[Hashable] = []
    for index, answer in enumerate(item.answers):
        if item.refused and item.refused[index]:
            keys.append(REFUSED)
        else:
            keys.append(form(first_line(answer)) or ("empty", index))
    return keys


def _links(items: Sequence[Sampled], keys: Sequence[Sequence[Hashable]], entails: Entails) -> list[list[Pair]]:
    """By question, the pairs of normal forms that entail each other."""
    candidates: list[tuple[int, str, str, Pair]] = []
    for number, (item, forms) in enumerate(zip(items, keys, strict=True)):
        texts: dict[str, str] = {}
        for form, answer in zip(forms, item.answers, strict=True):
            if isinstance(
                form, str
            ):  # of texts with one form, the smallest stands for all, in whatever order they came
                texts[form] = min(texts.get(form, first_line(answer)), first_line(answer))
        ordered = sorted(texts)
        said = {form: _sentence(item.question, text) for form, text in texts.items()}
        for index, one in enumerate(ordered):
            candidates += [(number, one, other, (said[one], said[other])) for other in ordered[index + 1 :]]
    held = _asked(entails, [pair for *_, pair in candidates])
    forward = [candidate for candidate, holds in zip(candidates, held, strict=True) if holds]
    back = _asked(entails, [(hypothesis, premise) for *_, (premise, hypothesis) in forward])
    links: list[list[Pair]] = [[] for _ in items]
    for (number, one, other, _), holds in zip(forward, back, strict=True):
        if holds:
            links[number].append((one, other))
    return links


def _sentence(question: str, text: str) -> str:
    """The question before the answer; half a surrogate pair, which no tokenizer takes, becomes "?"."""
    return f"{question.strip()} {text}".strip().encode("utf-8", "replace").decode()


def _asked(entails: Entails, pairs: Sequence[Pair]) -> Sequence[bool]:
    held = entails(pairs) if pairs else []
    if len(held) != len(pairs):
        raise ValueError(f"expected {len(pairs)} decisions from `entails`, one a pair; got {len(held)}")
    return held


def _joined(keys: Sequence[Hashable], links: Iterable[Pair]) -> list[Hashable]:
    """Each key's connected component, named by one of its members (union-find)."""
    parent: dict[Hashable, Hashable] = {key: key for key in keys}

    def root(key: Hashable) -> Hashable:
        while parent[key] != key:
            key = parent[key]
        return key

    for one, other in links:
        parent[root(one)] = root(other)
    return [root(key) for key in keys]


def _clusters(keys: Sequence[Hashable], rule: str, version: str) -> Clusters:
    numbers: dict[Hashable, int] = {}
    ids = tuple(numbers.setdefault(key, len(numbers)) for key in keys)
    return Clusters(ids, rule, version, numbers.get(REFUSED))
