"""Everything a report says, computed once from stored predictions; the drawing files only lay it out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from calmtune import metrics
from calmtune.metrics import ReliabilityTable
from calmtune.report.choice import Choice, choose_row
from calmtune.report.comparison import Comparison, Row, Shift, Variant
from calmtune.report.fitted import FittedRow, fit_row
from calmtune.report.measures import COMPARED, MEASURES, RANKED, SLOW_SHARE, best_row, difference, estimate
from calmtune.report.numbers import Difference, Estimate
from calmtune.report.readings import Reading, concatenate
from calmtune.report.worst import WorstItem, worst_items

__all__ = ["Cell", "Choice", "Column", "Comparison", "FittedRow", "Row", "Summary", "Variant", "summarise"]


@dataclass(frozen=True)
class Column:
    """A test domain, or all domains of one shift together."""

    name: str
    shift: Shift
    domains: tuple[str, ...]
    n: int

    @property
    def pooled(self) -> bool:
        """Whether it joins several domains."""
        return len(self.domains) > 1

    @property
    def title(self) -> str:
        """What stands over the column."""
        return f"{self.shift}: {'all' if self.pooled else self.name}"


@dataclass(frozen=True)
class Cell:
    """A row on a column.

    Args:
        estimates: every measure by key, see :data:`calmtune.report.measures.MEASURES`.
        null_band: conf-ECE of a perfectly calibrated model with the same confidences: mean, and 95 % band.
        versus_first: this row minus the first row, on the same items, by measure; empty for the first row itself.
        best: measures in which this row is better than every other by a paired interval that excludes zero.
        ties: items with several options at the highest score.
        option_mass: mean share of the vocabulary's probability on the options, or None where it was not stored.
        reliability: the table behind the diagram.
    """

    estimates: Mapping[str, Estimate]
    null_band: Estimate
    versus_first: Mapping[str, Difference]
    best: tuple[str, ...]
    ties: int
    option_mass: Estimate | None
    reliability: ReliabilityTable


@dataclass(frozen=True)
class Summary:
    """The computed report.

    Args:
        rows: in the order of the table.
        columns: test domains in order, then pooled columns.
        cells: by (row label, column name).
        choice: the row that is used, and among which it was chosen.
        versus_scaled: the chosen row minus the first row at its fitted temperature, by column and measure; empty when
            they are one.
        worst: items answered wrongly with the highest confidence.
        definitions: how every number was found, said once.
        comparison: what it was computed from.
    """

    rows: tuple[FittedRow, ...]
    columns: tuple[Column, ...]
    cells: Mapping[tuple[str, str], Cell]
    choice: Choice
    versus_scaled: Mapping[str, Mapping[str, Difference]]
    worst: tuple[WorstItem, ...]
    definitions: Mapping[str, Any]
    comparison: Comparison

    @property
    def first(self) -> str:
        """The row that the others are compared with."""
        return self.rows[0].label

    @property
    def shown(self) -> tuple[str, ...]:
        """The rows worth a picture: those of the first model and of the last one."""
        ends = {self.rows[0].row.variant, self.rows[-1].row.variant}
        return tuple(
            row.label
            for row in self.rows
            if row.row.variant in ends and (row.label == self.choice.row or not self._in_between(row))
        )

    def _in_between(self, row: FittedRow) -> bool:
        """Vector scaling, and raw scaled beside adjusted."""
        adjusted = {one.row.variant for one in self.rows if one.row.adjusted}
        beside = row.row.scaled and not row.row.adjusted and row.row.variant in adjusted
        return beside or row.row.scaling == "VS"

    def row(self, label: str) -> FittedRow:
        """The row of that name."""
        return next(row for row in self.rows if row.label == label)

    def column(self, shift: Shift) -> Column | None:
        """The column that speaks for a shift: the pooled one where there is one."""
        of_shift = [column for column in self.columns if column.shift == shift]
        return of_shift[-1] if of_shift else None

    def to_json(self) -> dict[str, Any]:
        """JSON values only; NaN becomes null and infinity the string ``"inf"``."""
        plain: dict[str, Any] = to_plain(
            {
                "title": self.comparison.title,
                "definitions": self.definitions,
                "columns": [asdict(column) for column in self.columns],
                "rows": [row.to_json() for row in self.rows],
                "choice": asdict(self.choice),
                "versus_scaled": self.versus_scaled,
                "cells": [
                    {"row": row, "column": column} | dict(vars(cell)) for (row, column), cell in self.cells.items()
                ],
                "worst": [asdict(item) for item in self.worst],
                "training_log": list(self.comparison.training_log),
                "settings": self.comparison.settings,
            }
        )
        return plain

    def to_text(self) -> str:
        """:meth:`to_json` as text, the same bytes every time."""
        return json.dumps(self.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def summarise(comparison: Comparison, *, n_bins: int = 10, seed: int = 0, n_resamples: int = 1000) -> Summary:
    """Compute every number of the report.

    Args:
        comparison: the stored predictions.
        n_bins: bins of the binned errors, equal width.
        seed: of every resampling; the same for all rows, so that rows with the same answers have the same interval.
        n_resamples: bootstrap resamples and permutations; slow measures take a fifth of it.

    Raises:
        ValueError: a decision that fits no row, or wrong settings.
    """
    options = {"n_bins": n_bins, "seed": seed, "n_resamples": n_resamples}
    rows = tuple(fit_row(row, comparison, options) for row in comparison.rows)
    columns = _columns(comparison)
    readings = {
        (row.label, domain): row.read(comparison.aligned(row.row.variant, domain))
        for row in rows
        for domain in comparison.shifts
    }
    parts = {
        column.name: {
            row.label: concatenate([readings[row.label, domain] for domain in column.domains]) for row in rows
        }
        for column in columns
    }
    cells: dict[tuple[str, str], Cell] = {}
    for column in columns:
        found = _column_cells(parts[column.name], rows[0].label, options)
        cells |= {(label, column.name): cell for label, cell in found.items()}
    choice = choose_row(rows, comparison, n_bins)
    return Summary(
        rows=rows,
        columns=columns,
        cells=cells,
        choice=choice,
        versus_scaled=_versus_scaled(parts, choice.row, rows[1].label, options),
        worst=worst_items(comparison, readings, before=rows[0].label, after=choice.row),
        definitions=_definitions(n_bins, seed, n_resamples, rows[0].label, comparison.left_out),
        comparison=comparison,
    )


def _columns(comparison: Comparison) -> tuple[Column, ...]:
    sizes = {domain: len(comparison.variants[0].tests[domain]) for domain in comparison.shifts}
    columns = []
    for shift in ("ID", "OOD"):
        domains = tuple(domain for domain, one in comparison.shifts.items() if one == shift)
        columns += [Column(domain, shift, (domain,), sizes[domain]) for domain in domains]
        if len(domains) > 1:
            columns.append(Column(f"{shift} (all)", shift, domains, sum(sizes[domain] for domain in domains)))
    return tuple(columns)


def _column_cells(parts: Mapping[str, Reading], first: str, options: Mapping[str, int]) -> dict[str, Cell]:
    estimates = {
        label: {key: estimate(measure, reading, **options) for key, measure in MEASURES.items()}
        for label, reading in parts.items()
    }
    best = {
        key: best_row(
            MEASURES[key], dict(parts), {label: found[key].value for label, found in estimates.items()}, **options
        )
        for key in RANKED
    }
    return {
        label: Cell(
            estimates=estimates[label],
            null_band=_null_band(reading, options),
            versus_first={key: difference(MEASURES[key], reading, parts[first], **options) for key in COMPARED}
            if label != first
            else {},
            best=tuple(key for key in RANKED if best[key] == label),
            ties=reading.ties,
            option_mass=_option_mass(reading, options),
            reliability=metrics.reliability_table(reading.confidence, reading.correct, options["n_bins"]),
        )
        for label, reading in parts.items()
    }


def _versus_scaled(
    parts: Mapping[str, Mapping[str, Reading]], chosen: str, scaled: str, options: Mapping[str, int]
) -> dict[str, dict[str, Difference]]:
    if chosen == scaled:
        return {}
    return {
        name: {key: difference(MEASURES[key], readings[chosen], readings[scaled], **options) for key in COMPARED}
        for name, readings in parts.items()
    }


def _null_band(reading: Reading, options: Mapping[str, int]) -> Estimate:
    band = metrics.null_band(
        reading.confidence,
        n_resamples=options["n_resamples"],
        metric=lambda c, o: metrics.expected_calibration_error(c, o, options["n_bins"]),
        seed=options["seed"],
    )
    return Estimate(band.estimate, band.low, band.high, len(reading))


def _option_mass(reading: Reading, options: Mapping[str, int]) -> Estimate | None:
    known = reading.option_mass[~np.isnan(reading.option_mass)]
    if not len(known):
        return None
    found = metrics.bootstrap_interval(
        lambda mass: float(mass.mean()), known, seed=options["seed"], n_resamples=options["n_resamples"]
    )
    return Estimate(found.estimate, found.low, found.high, len(known))


def _definitions(n_bins: int, seed: int, n_resamples: int, first: str, left_out: Mapping[str, str]) -> dict[str, Any]:
    return {
        "n_bins": n_bins,
        "bin_rule": "equal width, [low, high), last bin closed; mean confidence of the bin, never its centre",
        "confidence": "largest softmax probability over the item's own options",
        "interval": "95 % bootstrap over items; BCa for conf-ECE and MCE, percentile for the rest",
        "n_resamples": n_resamples,
        "n_resamples_slow": max(1, n_resamples // SLOW_SHARE),
        "slow_measures": [key for key, measure in MEASURES.items() if measure.slow],
        "difference": f"row minus {first}, paired on item ids, percentile bootstrap",
        "p_value": "two-sided permutation test that exchanges the two rows item by item",
        "null_band": "conf-ECE when labels are drawn from the row's own confidences: mean and 95 % band",
        "best": "better than every other row of the column by a paired 95 % interval that excludes zero",
        "temperature": "one scalar, fitted on the variant's own calibration split and used on every domain",
        "vector": "one scale and one shift by option index for the log-probabilities, fitted on the same split with a "
        "pull towards that temperature",
        "vector_left_out": dict(left_out),
        "ties": "broken by a hash of the item id, so that no option's place is preferred",
        "seed": seed,
    }


def to_plain(value: Any) -> Any:
    """JSON values only; NaN becomes None, an infinity its name."""
    if isinstance(value, Mapping):
        return {str(key): to_plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return to_plain(value.tolist())
    if isinstance(value, list | tuple):
        return [to_plain(one) for one in value]
    if hasattr(value, "__dataclass_fields__"):
        return to_plain(vars(value))
    if isinstance(value, np.generic):
        return to_plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value if isinstance(value, str | int | float | bool | None) else str(value)
