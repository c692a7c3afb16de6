"""The records of a suite's report: what was computed, before it is laid out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from calmtune.report.choice import Choice
from calmtune.report.comparison import Shift
from calmtune.report.measures import RANKED
from calmtune.report.numbers import Difference, Estimate
from calmtune.report.scaling import Scaling
from calmtune.report.suite_column import RESAMPLED, Spread
from calmtune.report.suite_runs import BASE, Seed, SuiteRun
from calmtune.report.summary import Column

Planned = tuple[str, str, str, int]
"""Setting, model, method and seed of a run that belongs to the suite."""
BEST_OF = tuple(measure for measure in RESAMPLED if measure in RANKED)
"""Measures in which a best row can be marked."""


@dataclass(frozen=True)
class SuiteRow:
    """A line of a suite's tables.

    Args:
        label: its name.
        method: ``"base"`` or the training method.
        kind: which distribution; ``"chosen"``: what each run's own decision on its calibration split says.
        scaling: the post-hoc fit; ``"none"`` for chosen, which may hold any.
        main: whether it stands in the short table.
    """

    label: str
    method: str
    kind: Literal["raw", "adjusted", "chosen"]
    scaling: Scaling
    main: bool

    @property
    def is_trained(self) -> bool:
        """Whether it is a training method's own distribution, without a post-hoc fit."""
        return self.method != BASE and self.kind != "chosen" and self.scaling == "none"


@dataclass(frozen=True)
class SuiteCell:
    """A row on a column.

    Args:
        seeds: that are there; ``(None,)`` for the base, which has none.
        spreads: every measure of :data:`calmtune.report.suite_column.ALL_MEASURES`.
        null_band: conf-ECE of a calibrated model with the same confidences, mean over seeds.
        versus: this row minus another one, by that row's label and measure.
        best: measures in which this row is better than every other by paired intervals that exclude zero.
    """

    seeds: tuple[Seed, ...]
    spreads: Mapping[str, Spread]
    null_band: Estimate
    versus: Mapping[str, Mapping[str, Difference]]
    best: tuple[str, ...]


@dataclass(frozen=True)
class ModelPart:
    """One model in one setting.

    Args:
        model: its name.
        columns: test domains, and those of a shift together.
        cells: by row label and column name; rows without a run are not there.
        lowest: the row with the best mean, by column name and measure.
        lowest_trained: by column name, the row with the lowest mean conf-ECE of the training methods without a fit.
        same_as: rows that are another row by construction, in every seed.
        planned: the seeds that each method shall have.
        missing: methods and seeds without a run.
        choices: what each run is used as, by method and seed.
        left_out: methods without rows of vector scaling, and why.
    """

    model: str
    columns: tuple[Column, ...]
    cells: Mapping[tuple[str, str], SuiteCell]
    lowest: Mapping[tuple[str, str], str]
    lowest_trained: Mapping[str, str]
    same_as: Mapping[str, str]
    planned: Mapping[str, tuple[int, ...]]
    missing: tuple[tuple[str, int], ...]
    choices: Mapping[str, Mapping[int, Choice]]
    left_out: Mapping[str, str]

    def column(self, shift: Shift) -> Column | None:
        """The column that speaks for a shift: the pooled one where there is one."""
        of_shift = [column for column in self.columns if column.shift == shift]
        return of_shift[-1] if of_shift else None


@dataclass(frozen=True)
class SettingPart:
    """One setting: the same rows for every model.

    Args:
        name: the setting. rows: in the order of the tables. models: in the order of the columns.
        plain: label of plain fine-tuning's row, or None where the setting has none.
    """

    name: str
    rows: tuple[SuiteRow, ...]
    models: tuple[ModelPart, ...]
    plain: str | None


@dataclass(frozen=True)
class SuiteSummary:
    """The computed report.

    Args:
        title: the page's. settings: in order. not_started: settings of which no run is there.
        definitions: how every number was found, said once. runs: what it was computed from.
    """

    title: str
    settings: tuple[SettingPart, ...]
    not_started: tuple[str, ...]
    definitions: Mapping[str, Any]
    runs: tuple[SuiteRun, ...]


def chosen_label(method: str) -> str:
    """The row that holds what each run of a method is used as.

    >>> chosen_label("calm")
    'calm chosen'
    """
    return f"{method} chosen"
