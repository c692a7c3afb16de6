"""``calmtune report``: the page and the tables, from stored predictions alone; no model is loaded."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calmtune.cli.console import note, say
from calmtune.cli.folder import RunFolder
from calmtune.cli.options import new_parser


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = new_parser(
        commands,
        "report",
        run,
        "write report.html and report.md of one or more runs",
        "Compute every figure from the stored predictions of evaluated runs and write one self-contained HTML page\n"
        "and a Markdown file. With several runs, each is a row of the same tables; the page is about the last one.",
        "  calmtune report runs/first\n  calmtune report runs/sft runs/calm --output_dir runs/comparison",
    )
    parser.add_argument("run_folders", metavar="RUN", nargs="+", type=Path, help="output_dir of an evaluated run")
    parser.add_argument("--output_dir", type=Path, help="where to write; default: the last RUN")


def run(options: argparse.Namespace) -> None:
    """Write the report, and say where it is."""
    folder = run_report(options.run_folders, options.output_dir)
    say(f"the report: {folder.report_html.resolve()}")
    say(f"as Markdown: {folder.report_markdown.resolve()}")


def run_report(paths: Sequence[Path], output_dir: Path | None = None) -> RunFolder:
    """Write report.html, report.md, metrics.json, and the tables as CSV and LaTeX.

    Args:
        paths: evaluated runs.
        output_dir: where to; None for the last run's folder.

    Returns:
        The folder that was written to.
    """
    from calmtune.cli.comparison import compare_runs, summary_options
    from calmtune.cli.openqa import summarise_open_runs
    from calmtune.report.openqa_write import write_open_report
    from calmtune.report.write import write_report

    note("computing the figures and writing the report")
    folder = RunFolder(output_dir or paths[-1])
    runs = [RunFolder(path) for path in paths]
    kinds = {run.is_open for run in runs}
    if len(kinds) > 1:
        listed = ", ".join(str(run.path) for run in runs if run.is_open)
        raise ValueError(f"runs on open questions ({listed}) and on questions with options have no table in common")
    if kinds == {True}:
        for run in runs:
            run.require()
        write_open_report(summarise_open_runs(runs), folder.path)
        return folder
    write_report(compare_runs(runs), folder.path, **summary_options(runs[-1]))
    return folder
