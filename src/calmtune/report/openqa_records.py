"""The records of a report on open questions: what goes in, and what was computed before it is laid out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calmtune.graded import GradedAnswers
from calmtune.metrics import BudgetPoint, ReliabilityTable
from calmtune.report.comparison import Shift
from calmtune.report.numbers import Difference, Estimate
from calmtune.report.openqa_temperature import ClassTemperature, SamplerTemperature
from calmtune.report.summary import Column


@dataclass(frozen=True)
class OpenVariant:
    """What one model (or one of its distributions) said.

    Args:
        name: the row's name: ``base``, ``tuned``, ``tuned adjusted``.
        tests: graded answers by test domain.
        calibration: on the calibration questions, or None where there are none.
        grid: the calibration questions sampled at other temperatures.
    """

    name: str
    tests: Mapping[str, GradedAnswers]
    calibration: GradedAnswers | None = None
    grid: Mapping[float, GradedAnswers] = field(default_factory=dict)


@dataclass(frozen=True)
class OpenComparison:
    """Everything that the report is made from.

    Args:
        variants: the first is what the others are compared with.
        shifts: ``"ID"`` or ``"OOD"`` by test domain, in the order of the columns.
        title: the page's. settings: the resolved configuration. training_log: the trainer's log history.
        decision: which row the tuned model is used as, as :func:`decide_open` records it, or None.

    Raises:
        ValueError: no variant, a name twice, or a domain without answers.
    """

    variants: Sequence[OpenVariant]
    shifts: Mapping[str, Shift]
    title: str = "Open questions: sampled answers and their calibration"
    settings: Mapping[str, Any] = field(default_factory=dict)
    training_log: Sequence[Mapping[str, Any]] = ()
    decision: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        names = [variant.name for variant in self.variants]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"expected at least one model and different names, got {names}")
        for variant in self.variants:
            empty = [domain for domain in self.shifts if not len(variant.tests.get(domain, ()))]
            if empty or not self.shifts:
                raise ValueError(f"{variant.name} has no answers for the test domains {empty or 'at all'}")


@dataclass(frozen=True)
class OpenRow:
    """A line of the tables.

    Args:
        label: its name. variant: whose answers. tempered: whether the class temperature is applied.
    """

    label: str
    variant: str
    tempered: bool


@dataclass(frozen=True)
class OpenCell:
    """A row on a column.

    Args:
        estimates: by measure. null_band: Sem1-ECE if the grades were drawn from the row's own confidences.
        versus_first: this row minus the first, by measure.
        reliability, reliability2: bins of Sem1 and of Sem2 confidence.
        coverage, risk: the risk-coverage curve.
        curve: by estimator, the figures for fewer samples; empty for tempered rows.
        n_ties: questions whose modal class was drawn among several.
    """

    estimates: Mapping[str, Estimate]
    null_band: Estimate
    versus_first: Mapping[str, Difference]
    reliability: ReliabilityTable
    reliability2: ReliabilityTable
    coverage: NDArray[np.float64]
    risk: NDArray[np.float64]
    curve: Mapping[str, Sequence[BudgetPoint]]
    n_ties: int


@dataclass(frozen=True)
class RuleRow:
    """The figures of one row on one column by one class rule, and the rule's difference from the headline's."""

    rule: str
    estimates: Mapping[str, Estimate]
    versus: Mapping[str, Difference]


@dataclass(frozen=True)
class Cluster:
    """One class of meaning of one question: an answer that stands for it, how many samples, and what they are."""

    text: str
    count: int
    kind: str  # right, wrong or refused
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorstQuestion:
    """A confident error, with what both models said.

    Args:
        id, domain, question, accepted: of the question.
        worst_for: ``"before"`` or ``"after"``. before, after: their classes, largest first.
    """

    id: str
    domain: str
    question: str
    accepted: tuple[str, ...]
    worst_for: str
    before: tuple[Cluster, ...]
    after: tuple[Cluster, ...]


@dataclass(frozen=True)
class OpenSummary:
    """The computed report; see :func:`calmtune.report.openqa_summary.summarise_open`."""

    comparison: OpenComparison
    rows: tuple[OpenRow, ...]
    columns: tuple[Column, ...]
    cells: Mapping[tuple[str, str], OpenCell]
    rules: Mapping[tuple[str, str], Sequence[RuleRow]]
    class_temperatures: Mapping[str, ClassTemperature]
    sampler_temperatures: Mapping[str, SamplerTemperature]
    worst: Sequence[WorstQuestion]
    chosen: str
    definitions: Mapping[str, Any]

    @property
    def first(self) -> str:
        """The row that the others are compared with."""
        return self.rows[0].label

    def column(self, shift: Shift) -> Column | None:
        """The column that speaks for a shift: the pooled one where there is one."""
        found = [column for column in self.columns if column.shift == shift]
        return found[-1] if found else None
