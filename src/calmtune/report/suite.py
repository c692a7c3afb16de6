"""The report of a suite: all its files in one folder, made from the runs that are done."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from calmtune.report.figures import report_style
from calmtune.report.scaling import TemperatureFit, VectorFit
from calmtune.report.suite_headline import suite_headline
from calmtune.report.suite_html import write_suite_html
from calmtune.report.suite_markdown import write_suite_markdown
from calmtune.report.suite_records import Planned, SuiteSummary
from calmtune.report.suite_runs import SuiteRun
from calmtune.report.suite_summary import summarise_suite
from calmtune.report.suite_tables import cells_of, suite_csv, tables_latex, tables_text
from calmtune.report.summary import to_plain

__all__ = ["Planned", "SuiteRun", "SuiteSummary", "summarise_suite", "write_suite_report"]


def write_suite_report(
    runs: Sequence[SuiteRun],
    directory: Path | str,
    *,
    title: str,
    n_bins: int,
    n_resamples: int,
    fit_temperature: TemperatureFit,
    fit_vector: VectorFit | None = None,
    planned: Iterable[Planned] = (),
    seed: int = 0,
) -> Path:
    """Write report.html, report.md with report_files/, tables.txt, tables.tex, suite.csv and suite.json.

    Args:
        runs: those that are done; a suite in progress gets a report of them.
        directory: made if it is not there; files of these names are replaced.
        title, n_bins, n_resamples, fit_temperature, fit_vector, planned, seed: see
            :func:`calmtune.report.suite_summary.summarise_suite`.

    Returns:
        The path of report.html. Two calls on the same predictions write the same bytes.

    Raises:
        ValueError: matplotlib is missing, or the runs do not fit together.
    """
    with report_style():
        pass  # a missing matplotlib is told before anything is computed
    summary = summarise_suite(
        runs,
        title=title,
        n_bins=n_bins,
        n_resamples=n_resamples,
        fit_temperature=fit_temperature,
        fit_vector=fit_vector,
        planned=planned,
        seed=seed,
    )
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "suite.json").write_text(suite_json(summary), encoding="utf-8")
    (directory / "suite.csv").write_text(suite_csv(summary), encoding="utf-8")
    (directory / "tables.txt").write_text(tables_text(summary), encoding="utf-8")
    (directory / "tables.tex").write_text(tables_latex(summary), encoding="utf-8")
    write_suite_markdown(summary, directory / "report.md")
    return write_suite_html(summary, directory / "report.html")


def suite_json(summary: SuiteSummary) -> str:
    """Every number as JSON; NaN becomes null and infinity the string ``"inf"``."""
    record: dict[str, Any] = {
        "title": summary.title,
        "headline": suite_headline(summary),
        "definitions": summary.definitions,
        "settings": [
            {
                "name": part.name,
                "rows": [asdict(row) for row in part.rows],
                "models": [
                    {
                        "name": model.model,
                        "columns": [asdict(column) for column in model.columns],
                        "planned": model.planned,
                        "missing": [{"method": method, "seed": seed} for method, seed in model.missing],
                        "lowest": [
                            {"column": column, "measure": measure, "row": row}
                            for (column, measure), row in model.lowest.items()
                        ],
                        "same_as": model.same_as,
                        "choices": model.choices,
                        "left_out": model.left_out,
                    }
                    for model in part.models
                ],
            }
            for part in summary.settings
        ],
        "not_started": list(summary.not_started),
        "cells": [
            {"setting": part.name, "model": model.model, "row": row.label, "column": column.name} | vars(cell)
            for part, model, column, row, cell in cells_of(summary)
            if cell is not None
        ],
        "runs": [
            {"setting": run.setting, "model": run.model, "method": run.method, "seed": run.seed}
            | {"settings": run.settings, "decision": run.decision}
            for run in summary.runs
        ],
    }
    return json.dumps(to_plain(record), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
