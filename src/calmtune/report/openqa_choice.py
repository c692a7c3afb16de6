"""Which distribution of a model is sampled when it is used, chosen on the calibration questions alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calmtune.graded import GradedAnswers
from calmtune.report.openqa_readings import OpenReading, read_open

METRIC = "Brier score of the Sem1 confidence against the grade of the modal class"


def decide_open(
    candidates: Mapping[str, GradedAnswers], base: GradedAnswers | None, *, accuracy_drop: float
) -> dict[str, Any]:
    """Choose among the distributions of a tuned model; no test question is looked at.

    The lowest Brier score wins among those whose accuracy is at most ``accuracy_drop`` below the base's; where none is,
    the most accurate one. Of equal ones the first.

    Args:
        candidates: answers to the calibration questions by distribution, ``raw`` and, with an alpha, ``adjusted``.
        base: the base's answers to them, or None where there is no floor.
        accuracy_drop: in [0, 1].

    Returns:
        The record for ``decision`` in ``calibration.json``: JSON values.
    """
    readings = {name: read_open(graded) for name, graded in candidates.items()}
    floor = float(read_open(base).correct.mean()) - accuracy_drop if base is not None else 0.0
    accuracy = {name: float(one.correct.mean()) for name, one in readings.items()}
    scores = {name: _brier(one) for name, one in readings.items()}
    allowed = [name for name in readings if accuracy[name] >= floor - 1e-12]
    best = min(allowed, key=lambda name: scores[name]) if allowed else max(accuracy, key=lambda name: accuracy[name])
    return {
        "task": "openqa",
        "distribution": best,
        "scaling": "none",
        "metric": METRIC,
        "scores": scores,
        "accuracy": accuracy,
        "accuracy_floor": floor,
        "n": len(next(iter(readings.values()))),
    }


def _brier(reading: OpenReading) -> float:
    return float(((reading.sem1 - reading.correct) ** 2).mean())
