"""Questions that nobody can answer, each under the options of another: accuracy is chance, by construction."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from calmtune.data.rows import MultipleChoice

DOMAIN = "shuffled"


def shuffled_options(rows: Sequence[MultipleChoice], seed: int = 0) -> list[MultipleChoice]:
    """Each question with the options of another that has as many, none of which is its own right answer.

    No option belongs to the question, so whatever a model picks is right with probability 1 / K if one of the K options
    is drawn as the gold one; the ``label`` is such a draw. A model that knows what it does not know gives each of them
    about the same probability.

    Args:
        rows: questions with options. seed: another seed, other pairs and labels.

    Returns:
        At most as many rows as were given, ids with ``~shuffled`` behind them, domain ``"shuffled"``; a question is
        left out when no other one offers foreign options (yes/no questions, a number of options that it has alone).

    Example:
        >>> rows = [MultipleChoice(str(i), f"Capital {i}?", (f"a{i}", f"b{i}"), 0, "capitals") for i in range(3)]
        >>> sorted(shuffled_options(rows)[0].choices)[0] in {"a1", "a2"}
        True
    """
    order = sorted(rows, key=lambda row: _draw(row.id, seed))
    found: dict[str, MultipleChoice] = {}
    for place, row in enumerate(order):
        others = (order[(place + shift) % len(order)] for shift in range(1, len(order)))
        other = next((one for one in others if _foreign(row, one)), None)
        if other is not None:
            label = _draw(f"label {row.id}", seed) % len(other.choices)
            found[row.id] = replace(row, id=f"{row.id}~shuffled", choices=other.choices, label=label, domain=DOMAIN)
    return [found[row.id] for row in rows if row.id in found]


def _foreign(row: MultipleChoice, other: MultipleChoice) -> bool:
    """Whether the other's options can stand under this question without answering it."""
    gold = row.choices[row.label].strip().casefold()
    same = row.question.strip().casefold() == other.question.strip().casefold()
    return (
        len(other.choices) == len(row.choices)
        and not same
        and gold not in {c.strip().casefold() for c in other.choices}
    )


def _draw(text: str, seed: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {text}".encode()).digest()[:8])
