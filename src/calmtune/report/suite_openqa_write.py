"""The report of a suite on open questions: tables as text, LaTeX, Markdown, CSV and one HTML page, and all as JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from calmtune.report.markdown import escape
from calmtune.report.numbers import interval, number, p_text, with_interval
from calmtune.report.openqa_measures import OPEN_MEASURES
from calmtune.report.suite_openqa import SUITE_MEASURES, OpenModelPart, OpenSettingPart, OpenSuiteSummary
from calmtune.report.suite_runs import BASE
from calmtune.report.summary import Column, to_plain
from calmtune.report.tables import Table, TableCell, to_latex, to_markdown, to_text

FEW = 2
"""With so many columns or fewer, the measures stand side by side."""


def write_open_suite(summary: OpenSuiteSummary, directory: Path | str) -> Path:
    """Write report.html, report.md, tables.txt, tables.tex, suite.csv and suite.json.

    Returns:
        The path of report.html. Two calls on the same summary write the same bytes.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    tables = [table for part in summary.settings for table in suite_tables(part)]
    told = [*open_suite_headline(summary), ""]
    text = "\n".join([summary.title, "", *told, *(to_text(t, width=110) for t in tables), *suite_notes(summary)])
    (directory / "tables.txt").write_text(text + "\n", encoding="utf-8")
    latex = "\n".join(to_latex(table).replace("±", r"$\pm$") for table in tables)
    (directory / "tables.tex").write_text(f"% {summary.title}\n% \\usepackage{{booktabs}}\n{latex}", encoding="utf-8")
    (directory / "suite.csv").write_text(_csv(summary), encoding="utf-8")
    (directory / "suite.json").write_text(_json(summary), encoding="utf-8")
    (directory / "report.md").write_text(_markdown(summary), encoding="utf-8")
    page = directory / "report.html"
    page.write_text(_html(summary), encoding="utf-8")
    return page


def suite_tables(part: OpenSettingPart) -> list[Table]:
    """Of one setting: each measure, then each measure's difference from the base; of few columns all in two tables."""
    columns = [(model, column) for model in part.models for column in model.columns]
    if len(columns) <= FEW:
        return _joined_tables(part, columns)
    tables = [
        _table(
            part,
            f"{OPEN_MEASURES[m].head}, {part.name}",
            columns,
            [(row, tuple(_value(model, column, row, m) for model, column in columns)) for row in part.rows],
        )
        for m in SUITE_MEASURES
    ]
    for m in SUITE_MEASURES:
        rows = [
            (row, tuple(_change(model, column, row, m) for model, column in columns))
            for row in part.rows
            if row != BASE
        ]
        tables.append(_table(part, f"Δ {OPEN_MEASURES[m].title} from {BASE}, {part.name}", columns, rows))
    return tables


def _joined_tables(part: OpenSettingPart, columns: Sequence[tuple[OpenModelPart, Column]]) -> list[Table]:
    """Measures side by side under each column."""
    n = len(SUITE_MEASURES)
    many = len(part.models) > 1
    titles = [f"{model.model}, {column.title}" if many else column.title for model, column in columns]
    groups = (("", 1), *((f"{title}, n = {column.n}", n) for title, (_, column) in zip(titles, columns, strict=True)))
    tables = []
    for caption, head, make, rows in (
        (f"Calibration and accuracy, {part.name}", "{0.head}", _value, part.rows),
        (f"Difference from {BASE}, {part.name}", "Δ {0.title}", _change, [row for row in part.rows if row != BASE]),
    ):
        header = ("method", *([head.format(OPEN_MEASURES[m]) for m in SUITE_MEASURES] * len(columns)))
        lines = [
            (row, tuple(make(model, column, row, m) for model, column in columns for m in SUITE_MEASURES))
            for row in rows
        ]
        tables.append(Table(caption, groups, header, tuple(lines)))
    return tables


def open_suite_headline(summary: OpenSuiteSummary) -> tuple[str, ...]:
    """A sentence for each trained row of each model and setting, on its last column, out of domain if there is one."""
    found = []
    for part in summary.settings:
        for model in part.models:
            column = model.columns[-1]
            base = model.cells[BASE, column.name]
            for row in part.rows:
                cell = model.cells.get((row, column.name))
                if row == BASE or cell is None:
                    continue
                changes = []
                for m in ("sem1_ece", "sem2_ece", "accuracy"):
                    values = (base.spreads[m].estimate.value, cell.spreads[m].estimate.value)
                    shown = "" if cell.versus[m].shown else ", not shown to differ"
                    changes.append(
                        f"{OPEN_MEASURES[m].title} {number(values[0])} → {number(values[1])} "
                        f"(Δ {with_interval(cell.versus[m], sign=True)}{shown})"
                    )
                found.append(
                    f"{part.name}, {model.model}, {row} on {column.title} (n = {column.n}): {'; '.join(changes)}."
                )
    return tuple(found)


def suite_notes(summary: OpenSuiteSummary) -> tuple[str, ...]:
    """How the numbers of the tables were found."""
    d = summary.definitions
    notes = [
        f"Numbers: mean over seeds ± their standard deviation; in brackets 95 % intervals over questions and seeds "
        f"(BCa for Sem-ECE). {d['n_resamples']} resamples, seed {d['seed']}; {d['n_bins']} equal-width bins.",
        f"{d['n_samples']} answers a question, sampled at temperature 1 over the whole vocabulary. Classes of meaning: "
        f"{d['rule']}; right: {d['grade']} ({d['normaliser']}), the grade of the largest class; a refusal is wrong.",
        "Δ: row minus base, question by question on the same resamples. p: two-sided permutation test that exchanges "
        "the two rows question by question; whether a difference is shown is read from its interval.",
        "Adjusted: the distribution with the learned logit adjustment was sampled.",
    ]
    if summary.missing:
        notes.append(f"Not done yet: {'; '.join(summary.missing)}.")
    return tuple(notes)


def _table(
    part: OpenSettingPart,
    caption: str,
    columns: Sequence[tuple[OpenModelPart, Column]],
    rows: Sequence[tuple[str, tuple[TableCell, ...]]],
) -> Table:
    models = [(name, len(list(group))) for name, group in groupby(columns, key=lambda pair: pair[0].model)]
    groups = (("", 1), *models) if len(models) > 1 else ()
    sizes = ", ".join(dict.fromkeys(f"{column.n} ({column.title})" for _, column in columns))
    header = ("method", *(column.title for _, column in columns))
    return Table(f"{caption}. n = {sizes}", groups, header, tuple(rows))


def _value(model: OpenModelPart, column: Column, row: str, measure: str) -> TableCell:
    cell = model.cells.get((row, column.name))
    if cell is None:
        return TableCell("–")
    spread = cell.spreads[measure]
    deviation = f" ± {number(spread.deviation)}" if len(cell.seeds) > 1 else ""
    return TableCell(f"{number(spread.estimate.value)}{deviation}", interval(spread.estimate))


def _change(model: OpenModelPart, column: Column, row: str, measure: str) -> TableCell:
    cell = model.cells.get((row, column.name))
    if cell is None:
        return TableCell("–")
    one = cell.versus[measure]
    return TableCell(number(one.value, sign=True), interval(one, sign=True), p_text(one.p_value))


def _cells(summary: OpenSuiteSummary) -> Iterator[tuple[str, str, Column, str, Any]]:
    for part in summary.settings:
        for model in part.models:
            for column in model.columns:
                for row in part.rows:
                    if (row, column.name) in model.cells:
                        yield part.name, model.model, column, row, model.cells[row, column.name]


def _csv(summary: OpenSuiteSummary) -> str:
    """Every number at full precision, one line a (row, column, measure)."""
    fields = (
        "setting", "model", "row", "column", "shift", "n", "seeds", "measure", "value", "deviation", "low", "high",
        "difference", "difference_low", "difference_high", "p_value", "null_low", "null_high",
    )  # fmt: skip
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fields, lineterminator="\n", restval="")
    writer.writeheader()
    for setting, model, column, row, cell in _cells(summary):
        for measure, spread in cell.spreads.items():
            one = spread.estimate
            line = {
                "setting": setting, "model": model, "row": row, "column": column.name, "shift": column.shift,
                "n": column.n, "seeds": len(cell.seeds), "measure": measure, "value": one.value, "low": one.low,
                "high": one.high, "deviation": spread.deviation,
            }  # fmt: skip
            if measure == "sem1_ece":
                line |= {"null_low": cell.null_band.low, "null_high": cell.null_band.high}
            if measure in cell.versus:
                delta = cell.versus[measure]
                line |= {"difference": delta.value, "difference_low": delta.low, "difference_high": delta.high}
                line["p_value"] = delta.p_value
            writer.writerow({key: "" if value != value else value for key, value in line.items()})
    return stream.getvalue()


def _json(summary: OpenSuiteSummary) -> str:
    record = {
        "task": "openqa",
        "title": summary.title,
        "headline": open_suite_headline(summary),
        "definitions": summary.definitions,
        "missing": summary.missing,
        "cells": [
            {"setting": setting, "model": model, "column": asdict(column), "row": row} | vars(cell)
            for setting, model, column, row, cell in _cells(summary)
        ],
        "runs": [
            {"setting": run.setting, "model": run.model, "method": run.method, "seed": run.seed}
            | {"settings": run.settings, "decision": run.decision}
            for run in summary.runs
        ],
    }
    return json.dumps(to_plain(record), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _markdown(summary: OpenSuiteSummary) -> str:
    parts = [f"# {escape(summary.title)}", *map(escape, open_suite_headline(summary))]
    for part in summary.settings:
        parts.append(f"## {escape(part.name)}")
        for table in suite_tables(part):
            parts += [f"### {escape(table.caption)}", to_markdown(table).strip()]
    return "\n\n".join([*parts, *map(escape, suite_notes(summary))]) + "\n"


def _html(summary: OpenSuiteSummary) -> str:
    room = files("calmtune.report")
    page = Environment(
        loader=DictLoader({"suite": room.joinpath("suite_openqa.html.j2").read_text(encoding="utf-8")}),
        autoescape=True,
        undefined=StrictUndefined,
    ).get_template("suite")
    d = summary.definitions
    return (
        page.render(
            title=summary.title,
            style=Markup(room.joinpath("style.css").read_text(encoding="utf-8")),
            byline=f"{len(summary.runs)} runs. {d['n_samples']} answers a question. Brackets hold 95 % intervals.",
            sentences=open_suite_headline(summary),
            parts=[
                (part.name, [vars(table) | {"starts": _starts(table)} for table in suite_tables(part)])
                for part in summary.settings
            ],
            notes=suite_notes(summary),
        )
        + "\n"
    )


def _starts(table: Table) -> set[int]:
    starts, place = set(), 0
    for _, span in table.groups:
        place += span
        starts.add(place)
    return starts
