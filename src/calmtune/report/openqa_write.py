"""All files of a report on open questions in one folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from calmtune.report.figures import report_style
from calmtune.report.openqa_html import write_open_html
from calmtune.report.openqa_markdown import write_open_markdown
from calmtune.report.openqa_records import OpenSummary
from calmtune.report.openqa_tables import (
    open_curve_table,
    open_detail_table,
    open_difference_table,
    open_rules_table,
    open_table,
    sampler_table,
)
from calmtune.report.openqa_words import open_headline, open_notes
from calmtune.report.summary import to_plain
from calmtune.report.tables import to_latex, to_text


def write_open_report(summary: OpenSummary, directory: Path | str) -> Path:
    """Write report.html, report.md with report_files/, report.txt, metrics.json and table.tex.

    Returns:
        The path of report.html. Two calls on the same summary write the same bytes.

    Raises:
        ValueError: matplotlib is missing.
    """
    with report_style():
        pass  # a missing matplotlib is told before anything is written
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "metrics.json").write_text(open_json(summary), encoding="utf-8")
    (directory / "report.txt").write_text(open_text(summary), encoding="utf-8")
    (directory / "table.tex").write_text(to_latex(open_table(summary)), encoding="utf-8")
    write_open_markdown(summary, directory / "report.md")
    return write_open_html(summary, directory / "report.html")


def open_text(summary: OpenSummary, *, width: int = 120) -> str:
    """The headline and every table for a terminal of that many characters."""
    parts = [summary.comparison.title, "", *open_headline(summary), ""]
    tables = [open_table(summary)]
    if len(summary.rows) > 1:
        tables.append(open_difference_table(summary))
    for column in summary.columns:
        tables += [
            open_detail_table(summary, column),
            open_rules_table(summary, column),
            open_curve_table(summary, column),
        ]
    sampler = sampler_table(summary)
    tables += [sampler] if sampler is not None else []
    return "\n".join([*parts, *(to_text(table, width=width) for table in tables), *open_notes(summary)]) + "\n"


def open_json(summary: OpenSummary) -> str:
    """Every number as JSON; NaN becomes null."""
    record: dict[str, Any] = {
        "task": "openqa",
        "title": summary.comparison.title,
        "headline": open_headline(summary),
        "definitions": summary.definitions,
        "rows": [asdict(row) for row in summary.rows],
        "columns": [asdict(column) for column in summary.columns],
        "chosen": summary.chosen,
        "decision": summary.comparison.decision,
        "class_temperatures": {name: asdict(one) for name, one in summary.class_temperatures.items()},
        "sampler_temperatures": {
            name: {
                "temperature": one.temperature,
                "told": one.told,
                "points": [asdict(point) | {"gap": point.gap} for point in one.points],
            }
            for name, one in summary.sampler_temperatures.items()
        },
        "cells": [{"row": label, "column": column} | vars(cell) for (label, column), cell in summary.cells.items()],
        "class_rules": [
            {"row": label, "column": column, "rules": [vars(one) for one in rows]}
            for (label, column), rows in summary.rules.items()
        ],
        "worst": [asdict(item) for item in summary.worst],
    }
    return json.dumps(to_plain(_named(record)), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _named(value: Any) -> Any:
    """Named tuples, such as an interval, as mappings; records as their fields."""
    if hasattr(value, "_asdict"):
        return _named(value._asdict())
    if is_dataclass(value) and not isinstance(value, type):
        return _named(vars(value))
    if isinstance(value, Mapping):
        return {key: _named(one) for key, one in value.items()}
    return [_named(one) for one in value] if isinstance(value, list | tuple) else value
