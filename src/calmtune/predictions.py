"""The record between scoring and metrics: what a model said about each item, kept once and never recomputed.

A predictions file is JSON Lines (:mod:`calmtune.jsonl`): the settings first, then one item a line, so that a run that
was interrupted keeps what it had and goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

FORMAT = "calmtune-predictions/1"


@dataclass(frozen=True)
class Prediction:
    """One item as the model saw it.

    Args:
        id: the item's id, unique within a file.
        domain: where the item comes from, e.g. ``"arc_easy"``.
        label: index of the gold option, ``0 <= label < len(scores)``.
        scores: raw option scores, float32 precision: logits of the letters, or (normalised) log-probabilities of the
            texts.
        adjusted: the same after alpha = (l, tau), from the same forward pass, or None without an adjustment.
        option_mass: share of the full-vocabulary probability on the options' first tokens, in [0, 1].
        token_entropy: mean entropy in nats of the vocabulary distribution at the positions that were read, or NaN.
        tokens: tokens of each option, so that other normalisations can be computed without the model.
    """

    id: str
    domain: str
    label: int
    scores: tuple[float, ...]
    adjusted: tuple[float, ...] | None = None
    option_mass: float = math.nan
    token_entropy: float = math.nan
    tokens: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 2 <= len(self.scores) <= 26:
            raise ValueError(f"item {self.id!r}: expected 2 to 26 option scores, got {len(self.scores)}")
        if not 0 <= self.label < len(self.scores):
            raise ValueError(f"item {self.id!r}: label {self.label} is outside its {len(self.scores)} options")
        for name, values in (("scores", self.scores), ("adjusted", self.adjusted or ())):
            for index, value in enumerate(values):
                if not math.isfinite(value):
                    raise ValueError(f"item {self.id!r}: {name}[{index}] is {value}; expected a finite number")
        if self.adjusted is not None and len(self.adjusted) != len(self.scores):
            raise ValueError(f"item {self.id!r}: {len(self.adjusted)} adjusted scores for {len(self.scores)} options")


@dataclass(frozen=True)
class Predictions(Sequence[Prediction]):
    """All items of one evaluation, with the settings that produced them.

    Args:
        items: one record an item.
        meta: what produced them (model, scoring, normalisation, prompt template, seed, ...), JSON values only.
    """

    items: tuple[Prediction, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_distinct((item.id for item in self.items), "predictions")

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        return self.items[index]

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self.items)

    @property
    def ids(self) -> tuple[str, ...]:
        """The items' ids, in order."""
        return tuple(item.id for item in self.items)

    @property
    def labels(self) -> NDArray[np.int64]:
        """Gold option indices, int64 [N]."""
        return np.array([item.label for item in self.items], dtype=np.int64)

    @property
    def domains(self) -> tuple[str, ...]:
        """Distinct domains in order of appearance."""
        return tuple(dict.fromkeys(item.domain for item in self.items))

    @property
    def has_adjusted(self) -> bool:
        """Whether every item carries adjusted scores."""
        return bool(self.items) and all(item.adjusted is not None for item in self.items)

    def of_domain(self, domain: str) -> Predictions:
        """The items of one domain, in order."""
        return replace(self, items=tuple(item for item in self.items if item.domain == domain))

    def logits(self, *, adjusted: bool = False) -> NDArray[np.float64]:
        """Option scores as float64 [N, K], K the largest option count; absent options are -inf.

        Raises:
            ValueError: ``adjusted`` is asked for and an item has no adjusted scores.
        """
        width = max((len(item.scores) for item in self.items), default=0)
        table = np.full((len(self.items), width), -np.inf)
        for row, item in enumerate(self.items):
            values = item.adjusted if adjusted else item.scores
            if values is None:
                raise ValueError(f"item {item.id!r} has no adjusted scores; it was scored without an adjustment")
            table[row, : len(values)] = values
        return table

    def probabilities(self, *, adjusted: bool = False, temperature: float = 1.0) -> NDArray[np.float64]:
        """Softmax over each item's own options, float64 [N, K]; absent options have probability 0."""
        if not temperature > 0:
            raise ValueError(f"temperature must be > 0, got {temperature}")
        z = self.logits(adjusted=adjusted) / temperature
        z = np.exp(z - z.max(axis=1, keepdims=True)) if len(self.items) else z
        probabilities: NDArray[np.float64] = z / z.sum(axis=1, keepdims=True)
        return probabilities

    def choices(self, *, adjusted: bool = False) -> NDArray[np.int64]:
        """Index of the highest score of each item, int64 [N].

        Ties are broken by a hash of (item id, option index), so no position is preferred and the choice is the same
        every time.
        """
        table = self.logits(adjusted=adjusted)
        picked = table.argmax(axis=1) if len(self.items) else np.zeros(0, dtype=np.int64)
        for row in (
            np.flatnonzero((table == table.max(axis=1, keepdims=True)).sum(axis=1) > 1) if len(self.items) else ()
        ):
            best = np.flatnonzero(table[row] == table[row].max())
            key = self.items[row].id
            picked[row] = min(best, key=lambda k: hashlib.sha256(f"{key}\x00{k}".encode()).digest())
        return picked.astype(np.int64)

    def ties(self, *, adjusted: bool = False) -> int:
        """How many items have more than one option at the highest score."""
        table = self.logits(adjusted=adjusted)
        return int(((table == table.max(axis=1, keepdims=True)).sum(axis=1) > 1).sum()) if len(self.items) else 0

    def confidence_and_correct(
        self, *, adjusted: bool = False, temperature: float = 1.0
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Probability of the chosen option, float64 [N] in (0, 1], and whether it is the gold one, bool [N]."""
        choices = self.choices(adjusted=adjusted)
        probabilities = self.probabilities(adjusted=adjusted, temperature=temperature)
        return probabilities[np.arange(len(self.items)), choices], choices == self.labels


def open_predictions(path: Path, meta: Mapping[str, Any]) -> tuple[Prediction, ...]:
    """Start a predictions file, or read what an interrupted run left in it; see :func:`calmtune.jsonl.open_records`."""
    return open_records(path, _KIND, meta)


def append_predictions(path: Path, items: Iterable[Prediction]) -> None:
    """Add items to a file made by :func:`open_predictions`."""
    append_records(path, _KIND, items)


def save_predictions(path: Path, predictions: Predictions) -> None:
    """Write a whole set of predictions, replacing ``path`` in one step."""
    save_records(path, _KIND, predictions.meta, predictions.items)


def load_predictions(path: Path) -> Predictions:
    """Read a predictions file.

    Raises:
        ValueError: not such a file, or a broken line; the message names the line.
    """
    meta, items = load_records(path, _KIND)
    return Predictions(items, meta)


def _to_json(item: Prediction) -> dict[str, Any]:
    record: dict[str, Any] = {"id": item.id, "domain": item.domain, "label": item.label, "scores": list(item.scores)}
    if item.adjusted is not None:
        record["adjusted"] = list(item.adjusted)
    for key, value in (("option_mass", item.option_mass), ("token_entropy", item.token_entropy)):
        if not math.isnan(value):
            record[key] = value
    if item.tokens:
        record["tokens"] = list(item.tokens)
    return record


def _from_json(record: Mapping[str, Any]) -> Prediction:
    return Prediction(
        id=record["id"],
        domain=record["domain"],
        label=record["label"],
        scores=tuple(record["scores"]),
        adjusted=tuple(record["adjusted"]) if "adjusted" in record else None,
        option_mass=record.get("option_mass", math.nan),
        token_entropy=record.get("token_entropy", math.nan),
        tokens=tuple(record.get("tokens", ())),
    )


_FIELDS = {
    "id": (is_text, "text", True),
    "domain": (is_text, "text", True),
    "label": (is_count, "a whole number", True),
    "scores": (list_of(is_number), "a list of numbers", True),
    "adjusted": (list_of(is_number), "a list of numbers", False),
    "option_mass": (is_number, "a number", False),
    "token_entropy": (is_number, "a number", False),
    "tokens": (list_of(is_count), "a list of whole numbers", False),
}
_KIND = RecordKind(FORMAT, "a prediction", "predictions", "evaluate again", _FIELDS, _to_json, _from_json)
