"""Tables of a suite, laid out as the paper's: methods down, models across, and in each model its test domains."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from textwrap import fill
from typing import Any

from calmtune.report.measures import HEADLINE, MEASURES
from calmtune.report.numbers import Difference, Estimate, interval, number, p_text
from calmtune.report.suite_column import ALL_MEASURES
from calmtune.report.suite_records import ModelPart, SettingPart, SuiteCell, SuiteRow, SuiteSummary
from calmtune.report.suite_runs import BASE
from calmtune.report.summary import Column
from calmtune.report.tables import Table, TableCell, to_latex, to_text

WIDE = 6
"""A short table with more columns than this shows one column a shift for each model; the full one shows all."""
LOWEST = "best"
"""Stands for each column's row with the best mean, where a table compares with it."""

Columns = Sequence[tuple[ModelPart, Column]]


def short_columns(part: SettingPart) -> Columns:
    """Every column, or where these are many, the one that speaks for each shift."""
    every = full_columns(part)
    if len(every) <= WIDE:
        return every
    return [(model, column) for model, column in every if column == model.column(column.shift)]


def full_columns(part: SettingPart) -> Columns:
    """Every test domain, and those of a shift together, model by model."""
    return [(model, column) for model in part.models for column in model.columns]


def measure_table(part: SettingPart, measure: str, columns: Columns, *, full: bool = False) -> Table:
    """Mean over seeds ± their standard deviation, and the 95 % interval beneath.

    Args:
        part: the setting.
        measure: key of :data:`calmtune.report.measures.MEASURES`.
        columns: of the setting.
        full: all rows, with every post-hoc fit; else the main ones.
    """
    rows = [
        (row.label, tuple(_value_cell(row, model, column, measure) for model, column in columns))
        for row in part.rows
        if full or row.main
    ]
    return _table(f"{_title(measure)}, {part.name}", columns, rows)


def versus_table(part: SettingPart, measure: str, columns: Columns, other: str, *, full: bool = False) -> Table:
    """Each row minus another one, with interval and p-value.

    Args:
        part: the setting.
        measure: key of :data:`calmtune.report.measures.MEASURES`.
        columns: of the setting.
        other: a row's label, or :data:`LOWEST`.
        full: all rows, or the main ones and those that are best in a column.
    """
    named = {(model.model, column.name): _other(model, column, measure, other) for model, column in columns}
    shown = [row for row in part.rows if full or row.main or row.label in named.values()]
    rows = [
        (
            row.label,
            tuple(
                _versus_cell(row, model, column, measure, named[model.model, column.name]) for model, column in columns
            ),
        )
        for row in shown
        if row.label != other
    ]
    against = f"each column's best row ({_best_words(measure)})" if other == LOWEST else other
    return _table(f"Δ {MEASURES[measure].title}, {part.name}: difference from {against}", columns, rows)


def choice_table(part: SettingPart) -> Table:
    """What the runs of each method are used as, and how many seeds chose it."""
    rows = []
    for method in dict.fromkeys(row.method for row in part.rows if row.method != BASE):
        cells = []
        for model in part.models:
            labels = [choice.row.removeprefix(f"{method} ") for choice in model.choices.get(method, {}).values()]
            names = [label if label != method else "as it is" for label in labels]
            counts = {name: names.count(name) for name in dict.fromkeys(names)}
            cells.append(TableCell("; ".join(f"{name}: {n} of {len(names)}" for name, n in counts.items()) or "–"))
        rows.append((method, tuple(cells)))
    header = ("method", *(model.model for model in part.models))
    return Table(f"What each run is used as, {part.name}", (), header, tuple(rows))


def suite_notes(summary: SuiteSummary) -> tuple[str, ...]:
    """How the numbers of the tables were found."""
    d = summary.definitions
    return (
        f"Numbers: {d['over_seeds']}. In brackets: {d['interval']}. {d['n_resamples']} resamples, random seed "
        f"{d['seed']}. {d['n_bins']} bins, {d['bin_rule']}. Confidence: {d['confidence']}.",
        f"Bold: {d['best']}.",
        f"Chosen: {d['chosen']}. TS, VS: a temperature, or a scale and a shift by option, fitted on the calibration "
        "split of the same model and used on every domain; TS changes no answer.",
        f"Δ: {d['difference']}. p: {d['p_value']}.",
        *progress_notes(summary),
    )


def progress_notes(summary: SuiteSummary) -> tuple[str, ...]:
    """What is not there yet, and rows that are not defined."""
    found = [f"Setting {name}: no run is done yet." for name in summary.not_started]
    for part in summary.settings:
        for model in part.models:
            if model.missing:
                total = sum(map(len, model.planned.values()))
                listed = "; ".join(
                    f"{method} (seed {', '.join(str(seed) for _, seed in group)})"
                    for method, group in groupby(model.missing, key=lambda pair: pair[0])
                )
                found.append(
                    f"{part.name}, {model.model}: {total - len(model.missing)} of {total} runs are done, so no row is "
                    f"marked as best. Missing: {listed}."
                )
            found += [
                f"{part.name}, {model.model}: {name} has no row of vector scaling: {why}."
                for name, why in model.left_out.items()
            ]
    return tuple(found)


def tables_text(summary: SuiteSummary, *, width: int = 100) -> str:
    """All tables for a terminal of that many characters: for each setting the short ones, then everything."""
    parts = [summary.title, ""]
    for part in summary.settings:
        parts += [f"== {part.name} ==", ""]
        every = full_columns(part)
        for measure in HEADLINE:
            parts += _text(part, lambda columns, m=measure, p=part: measure_table(p, m, columns), every, width)
        for other in (BASE, LOWEST):
            parts += _text(part, lambda c, o=other, p=part: versus_table(p, "conf_ece", c, o), every, width)
        parts.append(to_text(choice_table(part), width=width))
        parts += [f"== {part.name}, with every post-hoc fit ==", ""]
        for measure in HEADLINE:
            parts += _text(part, lambda c, m=measure, p=part: measure_table(p, m, c, full=True), every, width)
    # a text has no bold
    parts += [fill(note.replace("Bold:", "Star:"), width) for note in suite_notes(summary)]
    return "\n".join(parts) + "\n"


def tables_latex(summary: SuiteSummary) -> str:
    """One booktabs tabular for each setting and measure, short and full, models side by side; then the differences to
    the base and to the lowest row, with their p-values.
    """
    parts = [f"% {summary.title}", r"% \usepackage{booktabs}", ""]
    for part in summary.settings:
        for measure in HEADLINE:
            tables = [measure_table(part, measure, short_columns(part))]
            tables += [
                measure_table(part, measure, [(model, column) for column in model.columns], full=True)
                for model in part.models
            ]
            parts += [to_latex(table).replace("±", r"$\pm$") for table in tables]
        for measure in HEADLINE:
            for other in (BASE, LOWEST):
                parts.append(to_latex(versus_table(part, measure, short_columns(part), other)))
    parts += [f"% {note}" for note in suite_notes(summary)]
    return "\n".join(parts) + "\n"


CSV_FIELDS = (
    "setting", "model", "row", "method", "distribution", "scaling", "column", "shift", "n", "measure", "seed", "value",
    "deviation", "low", "high", "seeds", "planned", "null_low", "null_high", "lowest", "best", "versus", "difference",
    "difference_low", "difference_high", "p_value", "n_bins", "n_resamples", "resampling_seed",
)  # fmt: skip


def suite_csv(summary: SuiteSummary) -> str:
    """Every number at full precision. A line is the mean over seeds, one seed's number, or a difference from a row."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, CSV_FIELDS, lineterminator="\n", restval="")
    writer.writeheader()
    for line in _csv_lines(summary):
        # what is not there is left empty: an interval that was not made, the spread of a single seed
        writer.writerow({key: "" if value != value else value for key, value in line.items()})
    return stream.getvalue()


def planned_seeds(model: ModelPart, row: SuiteRow) -> int:
    """How many seeds a row shall have; the base has one reading."""
    return 1 if row.method == BASE else len(model.planned.get(row.method, ()))


def _csv_lines(summary: SuiteSummary) -> Iterator[dict[str, Any]]:
    d = summary.definitions
    ends = {"n_bins": d["n_bins"], "n_resamples": d["n_resamples"], "resampling_seed": d["seed"]}
    for part, model, column, row, cell in cells_of(summary):
        start = {
            "setting": part.name, "model": model.model, "row": row.label, "method": row.method,
            "distribution": row.kind, "scaling": row.scaling if row.kind != "chosen" else "", "column": column.name,
            "shift": column.shift, "n": column.n, "planned": planned_seeds(model, row),
        }  # fmt: skip
        if cell is None:
            yield start | {"measure": "conf_ece", "seed": "mean", "seeds": 0} | ends
            continue
        for measure in ALL_MEASURES:
            spread, about = cell.spreads[measure], start | {"measure": measure} | ends
            one = spread.estimate
            line = about | {"seed": "mean", "value": one.value, "low": one.low, "high": one.high}
            line |= {"deviation": spread.deviation, "seeds": len(cell.seeds), "best": measure in cell.best}
            line["lowest"] = model.lowest.get((column.name, measure)) == row.label
            if measure == "conf_ece":
                line |= {"null_low": cell.null_band.low, "null_high": cell.null_band.high}
            yield line
            if row.method != BASE:
                for seed, value in zip(cell.seeds, spread.values, strict=True):
                    yield about | {"seed": seed, "value": value}
            for other, of_measure in cell.versus.items():
                if measure in of_measure:
                    delta = of_measure[measure]
                    yield about | {
                        "seed": "mean", "versus": other, "difference": delta.value, "difference_low": delta.low,
                        "difference_high": delta.high, "p_value": delta.p_value,
                    }  # fmt: skip


def cells_of(summary: SuiteSummary) -> Iterator[tuple[SettingPart, ModelPart, Column, SuiteRow, SuiteCell | None]]:
    """Every place of every table; None where no run is there."""
    for part in summary.settings:
        for model in part.models:
            for column in model.columns:
                for row in part.rows:
                    yield part, model, column, row, model.cells.get((row.label, column.name))


def _title(measure: str) -> str:
    return MEASURES[measure].title + MEASURES[measure].arrow


def _best_words(measure: str) -> str:
    return f"the {'highest' if MEASURES[measure].better == 'higher' else 'lowest'} mean"


def _table(caption: str, columns: Columns, rows: Sequence[tuple[str, tuple[TableCell, ...]]]) -> Table:
    """The caption tells what the header has no room for: the model where there is one, and the sizes."""
    models = [(name, len(list(group))) for name, group in groupby(columns, key=lambda pair: pair[0].model)]
    sizes = dict.fromkeys(f"{column.n} ({column.title})" for _, column in columns)
    named = f", {models[0][0]}" if len(models) == 1 else ""
    return Table(
        caption=f"{caption}{named}. n = {', '.join(sizes)}",
        groups=(("", 1), *models) if len(models) > 1 else (),
        header=("method", *(column.title for _, column in columns)),
        rows=tuple(rows),
    )


def _value_cell(row: SuiteRow, model: ModelPart, column: Column, measure: str) -> TableCell:
    cell = model.cells.get((row.label, column.name))
    planned = planned_seeds(model, row)
    if cell is None:
        undefined = row.method == BASE or row.method in model.choices or not planned
        return TableCell("–", "" if undefined else f"0 of {planned} seeds")
    spread = cell.spreads[measure]
    deviation = f" ± {number(spread.deviation)}" if len(cell.seeds) > 1 else ""
    partial = f"{len(cell.seeds)} of {planned} seeds" if len(cell.seeds) < planned else ""
    return TableCell(
        f"{number(spread.estimate.value)}{deviation}", _ends(spread.estimate), partial, measure in cell.best
    )


def _versus_cell(row: SuiteRow, model: ModelPart, column: Column, measure: str, other: str | None) -> TableCell:
    if row.label == other:
        return TableCell("reference")
    cell = model.cells.get((row.label, column.name))
    delta = cell.versus.get(other or "", {}).get(measure) if cell is not None else None
    if delta is None:
        return TableCell("–")
    return TableCell(number(delta.value, sign=True), _ends(delta, sign=True), p_text(delta.p_value))


def _other(model: ModelPart, column: Column, measure: str, other: str) -> str | None:
    return model.lowest.get((column.name, measure)) if other == LOWEST else other


def _ends(one: Estimate | Difference, *, sign: bool = False) -> str:
    return interval(one, sign=sign)


def _text(part: SettingPart, make: Any, columns: Columns, width: int) -> list[str]:
    """A table model by model, in pieces that fit the width."""
    label = max(len(row.label) for row in part.rows) + 2
    fit = max(1, (width - label) // 16)
    found = []
    for model in part.models:
        mine = [pair for pair in columns if pair[0] is model]
        for start in range(0, len(mine), fit):
            table = make(mine[start : start + fit])
            found.append(to_text(replace(table, groups=()), width=width))
    return found
