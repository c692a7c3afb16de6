"""The items that were answered wrongly with the highest confidence, before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from calmtune.report.comparison import Comparison
from calmtune.report.readings import Reading


@dataclass(frozen=True)
class WorstItem:
    """One item with what both rows said about it.

    Args:
        id: the item's id.
        domain: the test domain.
        label: gold option.
        worst_for: which row put it on the list.
        before: probability of each option in the first row.
        after: probability of each option in the chosen row.
        choice_before: option chosen by the first row.
        choice_after: option chosen by the chosen row.
    """

    id: str
    domain: str
    label: int
    worst_for: Literal["before", "after"]
    before: tuple[float, ...]
    after: tuple[float, ...]
    choice_before: int
    choice_after: int


def worst_items(
    comparison: Comparison, readings: Mapping[tuple[str, str], Reading], *, before: str, after: str, top: int = 5
) -> tuple[WorstItem, ...]:
    """The ``top`` worst items of the first row, then those of the chosen row.

    Both lists are needed: items picked by the first row alone get better by being picked, whatever the training did.
    """
    found: list[WorstItem] = []
    for side, label in (("before", before), ("after", after)):
        ranked: list[tuple[float, int, int, str]] = []
        for place, domain in enumerate(comparison.shifts):
            reading = readings[label, domain]
            wrong = np.flatnonzero(~reading.correct)
            ranked += [(-float(reading.confidence[index]), place, int(index), domain) for index in wrong]
        found += [
            _item(comparison, domain, index, readings[before, domain], readings[after, domain], side)  # type: ignore[arg-type]
            for _, _, index, domain in sorted(ranked)[:top]
        ]
    return tuple(found)


def _item(
    comparison: Comparison, domain: str, index: int, before: Reading, after: Reading, side: Literal["before", "after"]
) -> WorstItem:
    item = comparison.variants[0].tests[domain][index]
    k = len(item.scores)
    return WorstItem(
        id=item.id,
        domain=domain,
        label=item.label,
        worst_for=side,
        before=tuple(before.probabilities[index, :k].tolist()),
        after=tuple(after.probabilities[index, :k].tolist()),
        choice_before=int(before.choices[index]),
        choice_after=int(after.choices[index]),
    )
