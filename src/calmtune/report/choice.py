"""Which row of the table the model is used as: the recorded decision, or one made by the same rule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from calmtune.report.comparison import Comparison
from calmtune.report.fitted import FittedRow
from calmtune.report.scaling import widest
from calmtune.report.selection import decide, key_of


@dataclass(frozen=True)
class Choice:
    """Which row the model is used as, decided on the calibration split.

    Args:
        row: its label.
        given: it was recorded when the model was evaluated, not made for this report.
        candidates: the rows among which it was chosen.
        chosen_by: the rule in words.
        scores: what the rule compared, by row; empty where it was not recorded.
        refused: rows that could not be chosen, and why.
    """

    row: str
    given: bool
    candidates: tuple[str, ...]
    chosen_by: str
    scores: Mapping[str, float]
    refused: Mapping[str, str]


def choose_row(rows: tuple[FittedRow, ...], comparison: Comparison, n_bins: int) -> Choice:
    """The recorded decision, or one made now by the same rule as at evaluation.

    Args:
        rows: all rows of the table; those of the last variant are the candidates.
        comparison: what they were made from.
        n_bins: bins of conf-ECE.

    Raises:
        ValueError: a recorded decision that fits no row.
    """
    variant = comparison.variants[-1]
    candidates = {key_of(row.row.adjusted, row.row.scaling): row for row in rows if row.row.variant == variant.name}
    given = comparison.decision is not None
    record = comparison.decision
    if record is None:
        record = decide(
            variant.calibration,
            comparison.variants[0].calibration,
            {**comparison.settings, "n_bins": n_bins},
            fit_temperature=comparison.fit_temperature,
            fit_vector=comparison.fit_vector,
            options=max(widest(one) for one in variant.tests.values()),
        )
    row = _row_of(record, candidates)

    def by_label(found: Mapping[str, Any]) -> dict[str, Any]:
        return {candidates[key].label if key in candidates else key: value for key, value in found.items()}

    return Choice(
        row=row.label,
        given=given,
        candidates=tuple(one.label for one in candidates.values()),
        chosen_by=str(record.get("chosen_by", "a rule that was not recorded")),
        scores={label: float(value) for label, value in by_label(record.get("candidates", {})).items()},
        refused=by_label(record.get("refused", {})),
    )


def _row_of(record: Mapping[str, Any], candidates: Mapping[str, FittedRow]) -> FittedRow:
    """The row that a record means, whose fit must be the record's.

    Raises:
        ValueError: there is no such row.
    """
    temperature = float(record.get("temperature") or 1.0)
    # records from before vector scaling tell a scaling by its temperature alone
    scaling: Any = record.get("scaling") or ("none" if temperature == 1.0 else "TS")
    row = candidates.get(key_of(record["distribution"] == "adjusted", scaling))
    if row is not None and math.isclose(row.temperature, temperature, rel_tol=1e-3):
        ours = (row.vector.scale, row.vector.shift) if row.vector else ((), ())
        theirs = (record.get("scale") or (), record.get("shift") or ())
        if all(len(a) == len(b) and np.allclose(a, b, rtol=1e-2, atol=1e-3) for a, b in zip(ours, theirs, strict=True)):
            return row
    shown = {key: record.get(key) for key in ("distribution", "scaling", "temperature", "scale", "shift")}
    raise ValueError(
        f"decision {shown} fits no row; the calibration split gives "
        f"{ {key: one.fitted.to_record() for key, one in candidates.items()} }. Was it made on other predictions, or "
        "for test items with fewer options?"
    )
