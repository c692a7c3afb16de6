"""From what a user hands to the trainer to encoded examples and batches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import torch

from calmtune.data.encoding import collate_items, collate_sequences
from calmtune.data.prompts import EncodedItem, EncodedSequence, Renderer
from calmtune.data.rows import Instruction, MultipleChoice, OpenQuestion, parse_row
from calmtune.data.splits import check_disjoint
from calmtune.training.arguments import CalmConfig

Example = EncodedItem | EncodedSequence
LevelName = Literal["options", "vocabulary"]


def as_rows(data: Iterable[Any], name: str) -> list[Any]:
    """Rows of any accepted kind: calmtune rows, mappings (a list of dicts, a ``datasets.Dataset``), or encoded
    examples.

    Raises:
        ValueError: no row, a row of an unknown shape, or a kind that this trainer can't train on; the place is named.
    """
    kinds = (MultipleChoice, Instruction, OpenQuestion, EncodedItem, EncodedSequence)
    rows = [
        raw if isinstance(raw, kinds) else parse_row(raw, where=f"{name}[{i}]", default_id=f"{name}/{i}", domain=name)
        for i, raw in enumerate(data)
    ]
    if not rows:
        raise ValueError(
            f"{name} is empty; expected at least one row (methods with an upper level need held-out rows in "
            "upper_dataset; eta: auto and load_best_model_at_end need labelled ones in calibration_dataset)"
        )
    return rows


def read_data_sets(args: CalmConfig, train: Any, upper: Any, calibration: Any) -> dict[str, list[Any]]:
    """The rows of every data set by its argument's name; empty where there are none and none are needed.

    Raises:
        ValueError: rows that are needed are missing, or see :func:`as_rows`.
    """
    rows = {"train_dataset": as_rows(train, "train_dataset")}
    for name, data, needed in (
        ("upper_dataset", upper, args.has_upper_level),
        ("calibration_dataset", calibration, args.needs_calibration_rows),
    ):
        given = list(data or ())
        rows[name] = as_rows(given, name) if given or needed else []
    refuse_bare(rows["calibration_dataset"], "calibration_dataset")
    return rows


def choose_level(level: str, rows: Sequence[Any]) -> LevelName:
    """``auto``: options where every row has options, else vocabulary.

    Raises:
        ValueError: ``options`` with a row that has none.
    """
    bare = [row.id for row in rows if not isinstance(row, MultipleChoice | EncodedItem)]
    if level == "auto":
        return "vocabulary" if bare else "options"
    if level == "options" and bare:
        raise ValueError(
            f"level: options needs multiple-choice rows, but row {bare[0]!r} has no options; use level: vocabulary"
        )
    return level  # type: ignore[return-value]


def encode(
    rows: Sequence[Any], renderer: Renderer, level: LevelName, max_length: int, *, upper: bool = False
) -> list[Example]:
    """Rows as the level needs them: items with their options, or prompts with their answer.

    Args:
        upper: the rows are the upper level's, which is given open questions without an answer.
    """
    encoded: list[Example] = []
    for row in rows:
        if isinstance(row, EncodedItem | EncodedSequence):
            encoded.append(row)
        elif isinstance(row, Instruction):
            encoded.append(renderer.instruction(row, max_length))
        elif isinstance(row, OpenQuestion):
            encoded.append(renderer.asked(row, max_length) if upper else renderer.open_question(row, max_length))
        elif level == "options":
            encoded.append(renderer.multiple_choice(row, max_length))
        else:
            encoded.append(renderer.gold_sequence(row, max_length))
    kinds = {example.scoring: example.id for example in encoded if isinstance(example, EncodedItem)}
    if {"letter", "letter-sequence"} <= kinds.keys():
        raise ValueError(
            f"row {kinds['letter-sequence']!r} has letters of several tokens and row {kinds['letter']!r} has not: "
            "their scores are of two kinds and can't share a batch; leave one kind out, or use scoring: text"
        )
    return encoded


class Collator:
    """Encoded examples to a batch of tensors."""

    def __init__(self, pad_id: int) -> None:
        self.pad_id = pad_id

    def __call__(self, examples: Sequence[Any]) -> dict[str, Any]:
        if not examples:  # this process has no part of a micro-batch that others have
            return {"ids": [], "input_ids": torch.zeros(0, 0, dtype=torch.long)}
        if isinstance(examples[0], EncodedItem):
            return collate_items(examples, self.pad_id)
        return collate_sequences(examples, self.pad_id)


def fingerprint(examples: Sequence[Example]) -> str:
    """sha256 over ids and tokens in order: equal exactly when training would see the same data."""
    digest = hashlib.sha256()
    for example in examples:
        if isinstance(example, EncodedItem):
            content: Any = (example.id, example.domain, example.prompt_ids, example.option_ids, example.label)
        else:
            content = (example.id, example.input_ids, example.answer_start)
        digest.update(repr(content).encode())
    return digest.hexdigest()


def refuse_bare(rows: Sequence[Any], what: str, *, open_too: bool = False) -> None:
    """Questions with options alone can be read there.

    Args:
        open_too: open questions can be, too.

    Raises:
        ValueError: a row without options; ``what`` needs them.
    """
    kinds = (MultipleChoice, EncodedItem, *((OpenQuestion,) if open_too else ()))
    bare = [row.id for row in rows if not isinstance(row, kinds)]
    if bare:
        needed = "questions, with options or open ones" if open_too else "questions with options"
        given = "is another kind of row; give questions" if open_too else "has none; give multiple-choice rows"
        raise ValueError(f"{what} needs {needed}, but row {bare[0]!r} {given}")


def is_open(rows: Iterable[Any]) -> bool:
    """Whether open questions are among the rows."""
    return any(isinstance(row, OpenQuestion) for row in rows)


def refuse_for_open(args: CalmConfig, rows: Sequence[Any]) -> None:
    """What cannot be asked for where the upper level has open questions: it is given no answer.

    Args:
        rows: the upper level's.

    Raises:
        ValueError: names the setting.
    """
    if args.entropy_positions == "response" and is_open(rows):
        raise ValueError(
            "entropy_positions: response reads a reference answer, and the upper level is given open questions without "
            "one; use first (the position after the prompt) or sample (an answer of the model itself)"
        )


def refuse_overlap(rows: Mapping[str, Sequence[Any]], encoded: Mapping[str, Sequence[Any]]) -> None:
    """S_T, S_V and the calibration rows must be disjoint: by normalised question for rows, by the prompt's tokens for
    encoded examples.

    Args:
        rows, encoded: by the data set's name, in the same order.

    Raises:
        ValueError: a question stands in two of them.
    """
    check_disjoint(
        {
            name: [row for row in part if not isinstance(row, EncodedItem | EncodedSequence)]
            for name, part in rows.items()
        }
    )
    seen: dict[tuple[int, ...], tuple[str, str]] = {}
    for name, part in encoded.items():
        mine = {
            tuple(row.prompt_ids if isinstance(row, EncodedItem) else row.input_ids[: row.answer_start]): row.id
            for row in part
        }
        shared = sorted((seen[key][1], seen[key][0]) for key in mine.keys() & seen.keys())
        if shared:
            raise ValueError(
                f"{len(shared)} of the {name}'s {len(mine)} prompts are also in {shared[0][1]} (e.g. {shared[0][0]!r}"
                "); the upper level and the calibration must see held-out inputs"
            )
        seen |= {key: (name, identity) for key, identity in mine.items()}
