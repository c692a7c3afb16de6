"""The record between sampling and grading: every answer a model gave to open questions, kept once, with its likelihood.

A samples file is JSON Lines (:mod:`calmtune.jsonl`): the settings first, then one question a line with all its answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from calmtune.jsonl import (
    RecordKind,
    append_records,
    check_distinct,
    is_count,
    is_number,
    is_text,
    list_of,
    load_records,
    open_records,
    save_records,
)

FORMAT = "calmtune-samples/1"
Finish = Literal["eos", "stop", "length"]
_ROUNDING = 1e-3  # nats: what float32 sums over an answer may be off by


@dataclass(frozen=True)
class Sample:
    """One sampled answer.

    Args:
        text: the answer as written, cut before the stop text and without outer white space; may be empty.
        log_probability: log-probability in nats of the sampled tokens under the raw distribution (T = 1, no top-p, no
            top-k, no alpha), the token that ended the answer included; None where an endpoint gave none.
        tokens: how many tokens were sampled, the one that ended the answer included; 0 where an endpoint did not say.
        finish: ``"eos"``: the model ended its turn; ``"stop"``: the stop text came; ``"length"``: it was cut at
            max_new_tokens. An endpoint tells the first two apart only by chance: both may be ``"stop"``.
        adjusted_log_probability: the same under the adjusted distribution (alpha = (l, tau), T = 1), or None.
        token_log_probabilities: the terms of ``log_probability``; empty where they were not kept.

    Raises:
        ValueError: a number that cannot be meant; the message names the field.
    """

    text: str
    log_probability: float | None
    tokens: int
    finish: Finish
    adjusted_log_probability: float | None = None
    token_log_probabilities: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.finish not in get_args(Finish):
            raise ValueError(f"finish is {self.finish!r}; expected one of {', '.join(get_args(Finish))}")
        if self.tokens < 0:
            raise ValueError(f"tokens is {self.tokens}; expected 0 or more")
        for name in ("log_probability", "adjusted_log_probability"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value <= _ROUNDING):
                raise ValueError(f"{name} is {value}; expected a finite number of nats, 0 at most")
        terms = self.token_log_probabilities
        if terms and (
            self.log_probability is None
            or len(terms) != self.tokens
            or not abs(math.fsum(terms) - self.log_probability) <= _ROUNDING * (1 + abs(self.log_probability))
        ):
            raise ValueError(
                f"token_log_probabilities are {len(terms)} with sum {math.fsum(terms):.6g}; expected {self.tokens} "
                f"(tokens) with sum {self.log_probability} (log_probability)"
            )


@dataclass(frozen=True)
class AnswerSamples:
    """One question with the answers a model gave to it.

    Args:
        id: the row's id, unique within a file.
        domain: where the row comes from, e.g. ``"triviaqa"``.
        question: the question, without the prompt around it.
        answers: every accepted answer.
        samples: at least one, in the order they were drawn.
    """

    id: str
    domain: str
    question: str
    answers: tuple[str, ...]
    samples: tuple[Sample, ...]

    def __post_init__(self) -> None:
        if not self.samples:
            raise ValueError(f"item {self.id!r}: expected at least one sample, got none")

    @property
    def texts(self) -> tuple[str, ...]:
        """The sampled answers, in order."""
        return tuple(sample.text for sample in self.samples)

    def log_probabilities(self, *, adjusted: bool = False) -> tuple[float, ...]:
        """Log-probability of each sample in nats.

        Raises:
            ValueError: a sample has none.
        """
        found = [sample.adjusted_log_probability if adjusted else sample.log_probability for sample in self.samples]
        known = tuple(value for value in found if value is not None)
        if len(known) < len(found):
            kind = "adjusted log-probability" if adjusted else "log-probability"
            raise ValueError(
                f"item {self.id!r}: a sample has no {kind}; "
                + ("it was sampled without alpha" if adjusted else "the endpoint gave none")
            )
        return known


@dataclass(frozen=True)
class SampledAnswers(Sequence[AnswerSamples]):
    """All questions of one run of sampling, with the settings that produced the answers.

    Args:
        items: one record a question.
        meta: what produced them (model, prompt, temperature, top_p, top_k, seed, ...), JSON values only.
    """

    items: tuple[AnswerSamples, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_distinct((item.id for item in self.items), "samples")

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        return self.items[index]

    def __iter__(self) -> Iterator[AnswerSamples]:
        return iter(self.items)

    @property
    def ids(self) -> tuple[str, ...]:
        """The items' ids, in order."""
        return tuple(item.id for item in self.items)

    @property
    def domains(self) -> tuple[str, ...]:
        """Distinct domains in order of appearance."""
        return tuple(dict.fromkeys(item.domain for item in self.items))

    @property
    def has_log_probabilities(self) -> bool:
        """Whether every sample carries its log-probability."""
        return all(sample.log_probability is not None for item in self.items for sample in item.samples)

    def of_domain(self, domain: str) -> SampledAnswers:
        """The items of one domain, in order."""
        return replace(self, items=tuple(item for item in self.items if item.domain == domain))


def open_samples(path: Path, meta: Mapping[str, Any]) -> tuple[AnswerSamples, ...]:
    """Start a samples file, or read what an interrupted run left in it; see :func:`calmtune.jsonl.open_records`."""
    return open_records(path, _KIND, meta)


def append_samples(path: Path, items: Iterable[AnswerSamples]) -> None:
    """Add items to a file made by :func:`open_samples`."""
    append_records(path, _KIND, items)


def save_samples(path: Path, samples: SampledAnswers) -> None:
    """Write a whole set of samples, replacing ``path`` in one step."""
    save_records(path, _KIND, samples.meta, samples.items)


def load_samples(path: Path) -> SampledAnswers:
    """Read a samples file.

    Raises:
        ValueError: not such a file, or a broken line; the message names the line.
    """
    meta, items = load_records(path, _KIND)
    return SampledAnswers(items, meta)


def _to_json(item: AnswerSamples) -> dict[str, Any]:
    return {
        "id": item.id,
        "domain": item.domain,
        "question": item.question,
        "answers": list(item.answers),
        "samples": [_sample_to_json(sample) for sample in item.samples],
    }


def _sample_to_json(sample: Sample) -> dict[str, Any]:
    record: dict[str, Any] = {"text": sample.text, "tokens": sample.tokens, "finish": sample.finish}
    if sample.log_probability is not None:
        record["log_probability"] = sample.log_probability
    if sample.adjusted_log_probability is not None:
        record["adjusted_log_probability"] = sample.adjusted_log_probability
    if sample.token_log_probabilities:
        record["token_log_probabilities"] = list(sample.token_log_probabilities)
    return record


def _from_json(record: Mapping[str, Any]) -> AnswerSamples:
    samples = tuple(
        Sample(
            text=one["text"],
            log_probability=one.get("log_probability"),
            tokens=one["tokens"],
            finish=one["finish"],
            adjusted_log_probability=one.get("adjusted_log_probability"),
            token_log_probabilities=tuple(one.get("token_log_probabilities", ())),
        )
        for one in record["samples"]
    )
    return AnswerSamples(record["id"], record["domain"], record["question"], tuple(record["answers"]), samples)


def _is_sample(value: Any) -> bool:
    return isinstance(value, dict) and all(
        test(value[name]) if name in value else not needed for name, (test, needed) in _SAMPLE_FIELDS.items()
    )


_SAMPLE_FIELDS = {
    "text": (is_text, True),
    "tokens": (is_count, True),
    "finish": (is_text, True),
    "log_probability": (is_number, False),
    "adjusted_log_probability": (is_number, False),
    "token_log_probabilities": (list_of(is_number), False),
}
_FIELDS = {
    "id": (is_text, "text", True),
    "domain": (is_text, "text", True),
    "question": (is_text, "text", True),
    "answers": (list_of(is_text), "a list of texts", True),
    "samples": (list_of(_is_sample), "a list of {text, tokens, finish, log_probability, ...}", True),
}
_KIND = RecordKind(FORMAT, "an item of samples", "samples", "sample again", _FIELDS, _to_json, _from_json)
