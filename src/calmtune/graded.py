"""The record between grading and report: of every sampled answer its class of meaning, its grade, and if it refuses.

Every figure of open questions is computed from here, without a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from calmtune.jsonl import RecordKind, check_distinct, is_count, is_number, is_text, list_of, load_records, save_records

FORMAT = "calmtune-graded/1"


@dataclass(frozen=True)
class GradedQuestion:
    """One question with its graded samples; every list has one entry a sample, in the order they were drawn.

    Args:
        id, domain, question: as sampled. accepted: every accepted answer.
        texts: what was said.
        classes: by class rule, the class of each sample, 0, 1, ...
        correct: whether the answer is right; never a refusal.
        refused: whether it declines to answer.
        log_probabilities: nats, of the whole answer under the raw distribution; empty where they are not known.

    Raises:
        ValueError: lists of different lengths, no sample or no rule, or a right refusal.
    """

    id: str
    domain: str
    question: str
    accepted: tuple[str, ...]
    texts: tuple[str, ...]
    classes: Mapping[str, tuple[int, ...]]
    correct: tuple[bool, ...]
    refused: tuple[bool, ...]
    log_probabilities: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.texts)
        lists: dict[str, Sequence[Any]] = {
            "correct": self.correct,
            "refused": self.refused,
            **{f"classes {r}": c for r, c in self.classes.items()},
        }
        if self.log_probabilities:
            lists["log_probabilities"] = self.log_probabilities
        for name, values in lists.items():
            if len(values) != n:
                raise ValueError(f"question {self.id!r}: {len(values)} {name} for {n} answers; expected one each")
        if not n or not self.classes:
            raise ValueError(f"question {self.id!r}: expected at least one answer and one class rule")
        if any(right and refusal for right, refusal in zip(self.correct, self.refused, strict=True)):
            raise ValueError(f"question {self.id!r}: an answer is both right and a refusal")


@dataclass(frozen=True)
class GradedAnswers(Sequence[GradedQuestion]):
    """All graded questions of one model on one split.

    Args:
        items: one a question.
        meta: JSON values: ``rule`` (the class rule of the headline figures), ``rules`` (version by rule), ``grade``,
            ``refusal``, ``normaliser``, and ``samples``, the settings that the samples were drawn with.

    Raises:
        ValueError: an id twice, or questions with other class rules than ``meta`` names.
    """

    items: tuple[GradedQuestion, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_distinct((item.id for item in self.items), "graded answers")
        rules = set(self.meta.get("rules", ()))
        for item in self.items:
            if set(item.classes) != rules:
                raise ValueError(
                    f"question {item.id!r}: expected the class rules {sorted(rules)}, got {sorted(item.classes)}"
                )
        if self.meta.get("rule") not in rules:
            raise ValueError(f"rule: expected one of {sorted(rules)}, got {self.meta.get('rule')!r}")

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        return self.items[index]

    def __iter__(self) -> Iterator[GradedQuestion]:
        return iter(self.items)

    @property
    def ids(self) -> tuple[str, ...]:
        """The questions' ids, in order."""
        return tuple(item.id for item in self.items)

    @property
    def rule(self) -> str:
        """The class rule of the headline figures."""
        return str(self.meta["rule"])

    @property
    def n_samples(self) -> int:
        """The smallest number of samples a question has."""
        return min(len(item.texts) for item in self.items)

    def classes(self, rule: str | None = None) -> list[tuple[int, ...]]:
        """The class of each sample, [N][n]."""
        return [item.classes[rule or self.rule] for item in self.items]

    def of_domain(self, domain: str) -> GradedAnswers:
        """The questions of one domain, in order."""
        return replace(self, items=tuple(item for item in self.items if item.domain == domain))


def save_graded(path: Path, graded: GradedAnswers) -> None:
    """Write a whole file, replacing ``path`` in one step."""
    save_records(path, _KIND, graded.meta, graded.items)


def load_graded(path: Path) -> GradedAnswers:
    """Read a file of graded answers.

    Raises:
        ValueError: not such a file, or a broken line; the message names the line.
    """
    meta, items = load_records(path, _KIND)
    try:
        return GradedAnswers(items, meta)
    except ValueError as error:
        raise ValueError(f"{path}: {error}; delete the file and evaluate again") from error


def _to_json(item: GradedQuestion) -> dict[str, Any]:
    record: dict[str, Any] = {
        "id": item.id,
        "domain": item.domain,
        "question": item.question,
        "accepted": list(item.accepted),
        "texts": list(item.texts),
        "classes": {rule: list(classes) for rule, classes in item.classes.items()},
        "correct": [int(value) for value in item.correct],
        "refused": [int(value) for value in item.refused],
    }
    if item.log_probabilities:
        record["log_probabilities"] = list(item.log_probabilities)
    return record


def _from_json(record: Mapping[str, Any]) -> GradedQuestion:
    return GradedQuestion(
        id=record["id"],
        domain=record["domain"],
        question=record["question"],
        accepted=tuple(record["accepted"]),
        texts=tuple(record["texts"]),
        classes={rule: tuple(classes) for rule, classes in record["classes"].items()},
        correct=tuple(map(bool, record["correct"])),
        refused=tuple(map(bool, record["refused"])),
        log_probabilities=tuple(record.get("log_probabilities", ())),
    )


def _is_flag(value: Any) -> bool:
    return is_count(value) and value in (0, 1)


def _is_classes(value: Any) -> bool:
    return isinstance(value, dict) and all(list_of(is_count)(one) for one in value.values())


_FIELDS = {
    "id": (is_text, "text", True),
    "domain": (is_text, "text", True),
    "question": (is_text, "text", True),
    "accepted": (list_of(is_text), "a list of texts", True),
    "texts": (list_of(is_text), "a list of texts", True),
    "classes": (_is_classes, "lists of whole numbers by class rule", True),
    "correct": (list_of(_is_flag), "a list of 0 and 1", True),
    "refused": (list_of(_is_flag), "a list of 0 and 1", True),
    "log_probabilities": (list_of(is_number), "a list of numbers", False),
}
_KIND = RecordKind(FORMAT, "graded answers", "graded answers", "evaluate again", _FIELDS, _to_json, _from_json)
