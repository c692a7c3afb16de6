"""The record between scoring and metrics: what a model said about each item, kept once and never recomputed.

A predictions file is JSON Lines. The first line holds the settings that produced it, every further line one item, so
that a run that was interrupted keeps what it had and goes on where it stopped. Python's ``repr`` of a float32 cast to
float is exact, so reading a file gives back the very numbers that were written.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        seen: set[str] = set()
        for item in self.items:
            if item.id in seen:
                raise ValueError(f"item {item.id!r} occurs twice; ids must be unique within one set of predictions")
            seen.add(item.id)

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
    """Start a predictions file, or read what an interrupted run left in it.

    A last line cut short by a crash is removed. Settings that differ from the file's are refused.

    Returns:
        The items already on disk (empty for a new file).

    Raises:
        ValueError: the file was made with other settings; the message names each difference.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.stat().st_size == 0:
        path.write_text(_line({"format": FORMAT, "meta": dict(meta)}), encoding="utf-8")
        return ()
    text = path.read_bytes()
    if not text.endswith(b"\n"):
        text = text[: text.rfind(b"\n") + 1]
        path.write_bytes(text)
    if not text:
        return open_predictions(path, meta)
    existing = load_predictions(path)
    wanted = json.loads(json.dumps(dict(meta)))
    keys = [key for key in sorted({*wanted, *existing.meta}) if wanted.get(key) != existing.meta.get(key)]
    if keys:
        changes = "; ".join(
            f"{key}: file has {existing.meta.get(key)!r}, asked for {wanted.get(key)!r}" for key in keys
        )
        raise ValueError(f"{path} was made with other settings ({changes}). Delete it, or write to another place.")
    return existing.items


def append_predictions(path: Path, items: Iterable[Prediction]) -> None:
    """Add items to a file made by :func:`open_predictions`; on disk when the call returns."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(_line(_to_json(item)) for item in items)
        file.flush()


def save_predictions(path: Path, predictions: Predictions) -> None:
    """Write a whole set of predictions, replacing ``path`` in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(path.suffix + ".partial")
    temporary.write_text(_line({"format": FORMAT, "meta": dict(predictions.meta)}), encoding="utf-8")
    append_predictions(temporary, predictions.items)
    temporary.replace(path)


def load_predictions(path: Path) -> Predictions:
    """Read a predictions file.

    Raises:
        ValueError: not such a file, or a broken line; the message names the line.
    """
    # split on "\n" alone: JSON may hold U+2028 and friends, which str.splitlines would cut at
    lines = enumerate(path.read_bytes().split(b"\n"), start=1)
    records = [(number, _parsed(line, f"{path}:{number}")) for number, line in lines if line]
    header = records[0][1] if records else {}
    if header.get("format") != FORMAT or not isinstance(header.get("meta"), dict):
        raise ValueError(
            f"{path}: expected a first line with format {FORMAT!r} and meta; is this a predictions file? If it was "
            "damaged, delete it and evaluate again"
        )
    items = []
    for number, record in records[1:]:
        try:
            items.append(_from_json(record))
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}; delete the file and evaluate again") from error
    try:
        return Predictions(tuple(items), header["meta"])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    """One line as a JSON object.

    Raises:
        ValueError: it is something else.
    """
    try:
        record = json.loads(line.decode("utf-8"))
    except ValueError as error:  # covers UnicodeDecodeError and JSONDecodeError
        raise ValueError(f"{where}: not valid UTF-8 JSON ({error})") from error
    except RecursionError:
        raise ValueError(f"{where}: nested too deeply to be a prediction") from None
    if not isinstance(record, dict):
        raise ValueError(f"{where}: expected a JSON object, got {type(record).__name__}")
    return record


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _list_of(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(test, value))


# a line's fields: the test of its value, what is expected, and whether it must be there
_FIELDS: dict[str, tuple[Callable[[Any], bool], str, bool]] = {
    "id": (_is_text, "text", True),
    "domain": (_is_text, "text", True),
    "label": (_is_count, "a whole number", True),
    "scores": (_list_of(_is_number), "a list of numbers", True),
    "adjusted": (_list_of(_is_number), "a list of numbers", False),
    "option_mass": (_is_number, "a number", False),
    "token_entropy": (_is_number, "a number", False),
    "tokens": (_list_of(_is_count), "a list of whole numbers", False),
}


def _from_json(record: Mapping[str, Any]) -> Prediction:
    for name, (test, expected, needed) in _FIELDS.items():
        if name not in record:
            if needed:
                raise ValueError(f"the field {name!r} is missing")
        elif not test(record[name]):
            raise ValueError(f"the field {name!r} is {record[name]!r:.60}; expected {expected}")
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
