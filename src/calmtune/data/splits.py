"""Splits by question: the same question is always on the same side, and an overlap between splits is an error."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import astuple

from calmtune.data.rows import Row

_ENDINGS = " .?!:;,"


def normalise_question(text: str) -> str:
    """The form in which two questions count as the same.

    NFKC, case folded, invisible format characters dropped, white space collapsed, punctuation at the end removed
    (unless nothing else is left). Idempotent.

    >>> normalise_question("  What is\\u00a0the CAPITAL of\\tFrance ? ")
    'what is the capital of france'
    """
    previous = None
    while text != previous:  # case folding can undo NFKC and the other way round; two rounds settle it
        previous = text
        text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        text = " ".join("".join(c for c in text if unicodedata.category(c) != "Cf").split())
        text = text.rstrip(_ENDINGS) or text
    return text


def question_key(row: Row) -> str:
    """Hex SHA-256 of the row's normalised question.

    The options are left out on purpose: the same question with its options reordered or replaced is still the same
    question, and the safe mistake is to keep two different items with one stem ("Which of these is true?") on one side.
    """
    return hashlib.sha256(normalise_question(row.question).encode()).hexdigest()


def split_rows(rows: Sequence[Row], shares: Mapping[str, float], seed: int = 0) -> dict[str, list[Row]]:
    """Share rows out by a hash of (seed, question): which side a question is on depends on nothing else.

    Adding or removing rows moves no other row. The sizes are therefore the shares only on average.

    Args:
        rows: any rows; their order is kept within each split.
        shares: name -> fraction, each > 0, together 1, e.g. ``{"train": .6, "upper": .2, "calibration": .1,
            "test": .1}``.
        seed: another seed, another partition.

    Raises:
        ValueError: shares that do not add up to 1, or a split that received no row.

    >>> from calmtune.data.rows import OpenQuestion
    >>> rows = [OpenQuestion(str(i), f"What is {i} + 1?", (str(i + 1),), "sums") for i in range(100)]
    >>> {name: len(part) for name, part in split_rows(rows, {"train": 0.5, "test": 0.5}).items()}
    {'train': 54, 'test': 46}
    """
    for name, share in shares.items():
        if isinstance(share, bool) or not (math.isfinite(share) and share > 0):
            raise ValueError(f"share of {name!r} is {share!r}; expected a number > 0 (leave the split out for none)")
    if not math.isclose(sum(shares.values()), 1.0, abs_tol=1e-6):
        raise ValueError(f"the shares {dict(shares)} add up to {sum(shares.values()):g}; expected 1")
    names = list(shares)
    bounds = list(itertools.accumulate(shares.values()))
    parts: dict[str, list[Row]] = {name: [] for name in names}
    for row in rows:
        digest = hashlib.sha256(f"{seed}\x00{question_key(row)}".encode()).digest()
        place = int.from_bytes(digest[:8], "big") / 2**64
        index = next((i for i, bound in enumerate(bounds) if place < bound), len(names) - 1)
        parts[names[index]].append(row)
    empty = [name for name, part in parts.items() if not part]
    if empty:
        raise ValueError(f"{len(rows)} rows leave {', '.join(empty)} without any; give more rows or a larger share")
    return parts


def check_disjoint(splits: Mapping[str, Sequence[Row]]) -> None:
    """Make sure that no question is in two splits.

    Raises:
        ValueError: for every pair of splits that share questions: how many, and up to three of them with their ids.
    """
    keyed: dict[str, dict[str, Row]] = {}
    for name, rows in splits.items():
        keyed[name] = {}
        for row in rows:
            keyed[name].setdefault(question_key(row), row)
    faults = []
    for first, second in itertools.combinations(keyed, 2):
        shared = [key for key in keyed[first] if key in keyed[second]]
        if shared:
            examples = "; ".join(
                f"{keyed[first][key].question[:80]!r} ({keyed[first][key].id!r} and {keyed[second][key].id!r})"
                for key in shared[:3]
            )
            faults.append(f"{first} and {second} share {len(shared)} question(s): {examples}")
    if faults:
        raise ValueError(
            "the splits must not share a question. "
            + ". ".join(faults)
            + ". Remove them from one side: overlap: drop in a configuration, drop_shared() from Python."
        )


def drop_shared(rows: Sequence[Row], others: Sequence[Row]) -> list[Row]:
    """The rows whose question is not among ``others``, in order; compare lengths to see how many went."""
    taken = {question_key(row) for row in others}
    return [row for row in rows if question_key(row) not in taken]


def fingerprint(rows: Sequence[Row]) -> str:
    """Hex SHA-256 over every field of every row, in order: equal for the same data in the same order, else different.

    >>> fingerprint([])[:8]
    'e3b0c442'
    """
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps([type(row).__name__, *astuple(row)], ensure_ascii=False).encode())
        digest.update(b"\n")
    return digest.hexdigest()
