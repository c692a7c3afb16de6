"""The measures of open questions: their names, which way is better, and the risk-coverage curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from calmtune.report.openqa_readings import Floats, OpenReading


@dataclass(frozen=True)
class OpenMeasure:
    """One measure, by the name under which :mod:`calmtune.report.openqa_column` computes it.

    Args:
        title: as in the head of a table. better: which way is better, or None.
    """

    title: str
    better: Literal["lower", "higher"] | None

    @property
    def head(self) -> str:
        """The title with an arrow to the better side, or none."""
        return self.title + {"lower": " ↓", "higher": " ↑", None: ""}[self.better]


OPEN_MEASURES: dict[str, OpenMeasure] = {
    "sem1_ece": OpenMeasure("Sem1-ECE", "lower"),
    "sem2_ece": OpenMeasure("Sem2-ECE", "lower"),
    "accuracy": OpenMeasure("accuracy", "higher"),
    "entropy": OpenMeasure("entropy, nats", None),
    "sem1_confidence": OpenMeasure("Sem1 confidence", None),
    "sem2_confidence": OpenMeasure("Sem2 confidence", None),
    "gap": OpenMeasure("overconfidence gap (Sem2)", None),
    "brier": OpenMeasure("Brier (Sem1)", "lower"),
    "auroc": OpenMeasure("AUROC (Sem1)", "higher"),
    "aurc": OpenMeasure("AURC (Sem1)", "lower"),
    "likelihood_entropy": OpenMeasure("entropy by likelihood, nats", None),
    "coverage": OpenMeasure("answered", None),
    "refusals": OpenMeasure("refusals among samples", None),
    "accuracy_answered": OpenMeasure("accuracy where answered", "higher"),
    "ece_answered": OpenMeasure("Sem1-ECE where answered", "lower"),
}
OPEN_HEADLINE = ("sem1_ece", "sem2_ece", "accuracy", "entropy")
OPEN_COMPARED = OPEN_HEADLINE
"""Measures with a paired difference from the first row."""
NOT_TEMPERED = frozenset({"sem2_ece", "sem2_confidence", "gap", "entropy", "likelihood_entropy"})
"""Measures that a temperature on the classes does not reach."""


def risk_coverage(reading: OpenReading) -> tuple[Floats, Floats]:
    """Error among the most confident share of the questions, for every share: (coverage, risk), each float64.

    Questions of equal confidence come in together: which of them came first would be chance. A refusal is an error.
    """
    order = np.argsort(-reading.sem1, kind="stable")
    confidence, wrong = reading.sem1[order], ~reading.correct[order]
    last = np.flatnonzero(np.append(np.abs(np.diff(confidence)) > 1e-9, True))
    counts = last + 1
    return np.asarray(counts / len(reading)), np.asarray(np.cumsum(wrong)[last] / counts)
