"""The gold of a multiple-choice record: which option its ``label``, ``answer`` and ``answerKey`` name."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

# a letter's place is its place in this text, whatever its code point
LETTERS = string.ascii_uppercase


def gold_index(raw: Mapping[str, Any], choices: Sequence[str], labels: Sequence[str] | None) -> int:
    """Index of the right option; every gold the record gives must name the same one.

    Args:
        raw: the record. ``label`` is a 0-based index. ``answer`` is a 0-based index when it is an int, else the
            option's text or its label. ``answerKey`` is a label.
        choices: the options' texts.
        labels: the options' own labels; None for A, B, C, ... (and, for ``answerKey`` alone, 1, 2, 3, ...).

    Returns:
        ``0 <= index < len(choices)``.

    Raises:
        ValueError: no gold, one that names no option, one that could name two, or golds that disagree.

    >>> gold_index({"answerKey": "2"}, ("hot", "cold"), None), gold_index({"answer": "cold"}, ("hot", "cold"), None)
    (1, 1)
    """
    readers = {"label": _by_index, "answer": _by_answer, "answerKey": _by_key}
    found = {key: read(raw[key], choices, labels) for key, read in readers.items() if raw.get(key) is not None}
    if not found:
        raise ValueError(
            "no gold: expected `label` (0-based index), `answer` (text, index or letter) or `answerKey` (letter)"
        )
    if len(set(found.values())) > 1:
        said = ", ".join(f"`{key}` {raw[key]!r} is option {index}" for key, index in found.items())
        raise ValueError(f"the golds disagree (counted from 0): {said}; keep the right one")
    return next(iter(found.values()))


def _by_index(value: Any, choices: Sequence[str], labels: Sequence[str] | None, key: str = "label") -> int:
    if isinstance(value, bool):
        raise ValueError(f"`{key}` is the truth value {value}; expected a 0-based index, or a text in quotes")
    if not isinstance(value, int):
        raise ValueError(f"`{key}` is {value!r}; expected a 0-based index (a letter belongs in `answerKey`)")
    if not 0 <= value < len(choices):
        raise ValueError(
            f"`{key}` is {value}; expected 0 to {len(choices) - 1} (counted from 0) for {len(choices)} options"
        )
    return value


def _by_answer(value: Any, choices: Sequence[str], labels: Sequence[str] | None) -> int:
    if not isinstance(value, str):
        return _by_index(value, choices, labels, "answer")
    text = value.strip()
    same = [index for index, choice in enumerate(choices) if choice == text]
    if len(same) > 1:
        raise ValueError(f"`answer` {text!r} is the text of options {same} (counted from 0); name one by `label`")
    names = list(labels) if labels is not None else list(LETTERS[: len(choices)])
    lettered = names.index(text) if text in names else names.index(text.upper()) if text.upper() in names else None
    if same and lettered is not None and same[0] != lettered:
        raise ValueError(
            f"`answer` {text!r} is the text of option {same[0]} and the label of option {lettered} (counted from 0); "
            "name one by `label`"
        )
    if same:
        return same[0]
    if lettered is not None:
        return lettered
    hint = ""
    if text.lstrip("-").isdigit():
        hint = " For an index name it `label` (a number, counted from 0) or `answerKey` (counted from 1)."
    raise ValueError(
        f"`answer` {text!r} is neither the text nor the label of an option; the options are {list(choices)}.{hint}"
    )


def _by_key(value: Any, choices: Sequence[str], labels: Sequence[str] | None) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"`answerKey` is {value!r}; expected the label of an option")
    text = str(value).strip()
    letters = list(LETTERS[: len(choices)])
    digits = [str(number) for number in range(1, len(choices) + 1)]
    for names in [list(labels)] if labels is not None else [letters, digits]:
        if text in names:
            return names.index(text)
    expected = list(labels) if labels is not None else f"{letters} (or 1 to {len(choices)})"
    raise ValueError(f"`answerKey` is {value!r}; expected one of {expected}")
