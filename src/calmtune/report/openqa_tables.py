"""Tables of a report on open questions; laid out by :mod:`calmtune.report.tables`."""

from __future__ import annotations

from collections.abc import Sequence

from calmtune.report.numbers import Difference, Estimate, interval, number, p_text
from calmtune.report.openqa_measures import OPEN_COMPARED, OPEN_HEADLINE, OPEN_MEASURES
from calmtune.report.openqa_records import OpenSummary
from calmtune.report.summary import Column
from calmtune.report.tables import Table, TableCell


def open_table(summary: OpenSummary, measures: Sequence[str] = OPEN_HEADLINE) -> Table:
    """One row a method, one group of columns a test domain."""
    rows = []
    for row in summary.rows:
        cells = [TableCell(_temperature(summary, row.variant) if row.tempered else "1")]
        for column in summary.columns:
            cells += [_cell(summary.cells[row.label, column.name].estimates[key]) for key in measures]
        rows.append((row.label, tuple(cells)))
    groups = (("", 2), *((f"{column.title}, n = {column.n}", len(measures)) for column in summary.columns))
    heads = tuple(OPEN_MEASURES[key].head for key in measures)
    caption = "Calibration and accuracy of sampled answers"
    return Table(caption, groups, ("method", "T of classes", *(heads * len(summary.columns))), tuple(rows))


def open_difference_table(summary: OpenSummary) -> Table:
    """Each row minus the first one, paired on questions."""
    rows = []
    for row in summary.rows[1:]:
        cells: list[TableCell] = []
        for column in summary.columns:
            versus = summary.cells[row.label, column.name].versus_first
            cells += [_difference(versus[key]) if key in versus else TableCell("–") for key in OPEN_COMPARED]
        rows.append((row.label, tuple(cells)))
    heads = tuple(f"Δ {OPEN_MEASURES[key].title}" for key in OPEN_COMPARED)
    groups = (("", 1), *((f"{column.title}, n = {column.n}", len(heads)) for column in summary.columns))
    caption = f"Difference from {summary.first}, paired on questions"
    return Table(caption, groups, ("method", *(heads * len(summary.columns))), tuple(rows))


def open_detail_table(summary: OpenSummary, column: Column) -> Table:
    """One test domain with every measure: measures down, methods across."""
    shown = [row for row in summary.rows if not row.tempered]
    cells = {row.label: summary.cells[row.label, column.name] for row in shown}
    rows: list[tuple[str, tuple[TableCell, ...]]] = [
        (
            measure.head,
            tuple(_cell(cells[row.label].estimates[key]) for row in shown),
        )
        for key, measure in OPEN_MEASURES.items()
    ]
    band = ("Sem1-ECE if calibrated", tuple(_cell(cells[row.label].null_band) for row in shown))
    rows.insert(1, band)
    rows.append(("tied questions", tuple(TableCell(str(cells[row.label].n_ties)) for row in shown)))
    return Table(_caption(column), (), ("measure", *(row.label for row in shown)), tuple(rows))


def open_rules_table(summary: OpenSummary, column: Column) -> Table:
    """The same samples under every class rule."""
    rows = []
    for row in summary.rows:
        for one in summary.rules.get((row.label, column.name), ()):
            cells = []
            for key in OPEN_HEADLINE:
                change = one.versus.get(key)
                told = f"Δ {number(change.value, sign=True)}, {p_text(change.p_value)}" if change else ""
                found = one.estimates[key]
                cells.append(TableCell(number(found.value), interval(found), told))
            rows.append((f"{row.label}, {one.rule}", tuple(cells)))
    heads = tuple(OPEN_MEASURES[key].head for key in OPEN_HEADLINE)
    return Table(f"By class rule, {_caption(column)}", (), ("method, rule", *heads), tuple(rows))


def open_curve_table(summary: OpenSummary, column: Column) -> Table:
    """Sem1- and Sem2-ECE for fewer samples."""
    rows = []
    for row in summary.rows:
        curve = summary.cells[row.label, column.name].curve
        if not curve:
            continue
        for sem1, sem2 in zip(curve["sem1"], curve["sem2"], strict=True):
            values = (sem1.ece, sem2.ece, sem1.accuracy, sem1.confidence, sem2.confidence)
            ends = [Estimate(one.estimate, one.low, one.high, column.n) for one in values]
            rows.append((f"{row.label}, n = {sem1.n_samples}", tuple(map(_cell, ends))))
    header = ("method, samples", "Sem1-ECE ↓", "Sem2-ECE ↓", "accuracy ↑", "Sem1 confidence", "Sem2 confidence")
    return Table(f"By number of samples, {_caption(column)}", (), header, tuple(rows))


def sampler_table(summary: OpenSummary) -> Table | None:
    """The calibration questions at each temperature, or None where they were sampled at one only."""
    found = summary.sampler_temperatures
    if not found:
        return None
    temperatures = sorted({point.temperature for one in found.values() for point in one.points})
    rows = []
    for name, one in found.items():
        by_t = {point.temperature: point for point in one.points}
        cells = [
            TableCell(number(by_t[t].gap, sign=True), f"{number(by_t[t].confidence)} − {number(by_t[t].accuracy)}")
            if t in by_t
            else TableCell("–")
            for t in temperatures
        ]
        zero = f"{one.temperature:.2f}" if one.temperature is not None else one.told
        rows.append((name, (*cells, TableCell(zero))))
    n = next(iter(found.values())).points[0].n
    header = ("method", *(f"T = {t:g}" for t in temperatures), "T that closes the gap")
    return Table(f"Overconfidence gap of the sampler on the calibration questions, n = {n}", (), header, tuple(rows))


def _temperature(summary: OpenSummary, variant: str) -> str:
    one = summary.class_temperatures[variant]
    return f"{one.temperature:.2f}" if one.identified else "not identified"


def _caption(column: Column) -> str:
    domains = f" ({', '.join(column.domains)})" if column.pooled else ""
    return f"{column.title}{domains}, n = {column.n}"


def _cell(found: Estimate) -> TableCell:
    return TableCell(number(found.value), interval(found) if found.low == found.low else "")


def _difference(one: Difference) -> TableCell:
    return TableCell(number(one.value, sign=True), interval(one, sign=True), p_text(one.p_value))
