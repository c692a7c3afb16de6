"""The report on open questions as Markdown, with its pictures as PNG files in a folder beside it."""

from __future__ import annotations

from pathlib import Path

from calmtune.report.figures import report_style, to_png
from calmtune.report.html import flatten
from calmtune.report.markdown import FOLDER, escape
from calmtune.report.openqa_html import shown_answers
from calmtune.report.openqa_pictures import plot_open_column
from calmtune.report.openqa_records import Cluster, OpenSummary, WorstQuestion
from calmtune.report.openqa_tables import (
    open_curve_table,
    open_detail_table,
    open_difference_table,
    open_rules_table,
    open_table,
    sampler_table,
)
from calmtune.report.openqa_words import open_glossary, open_headline, open_notes
from calmtune.report.reliability import plot_reliability_row
from calmtune.report.summary import Column
from calmtune.report.tables import Table, to_markdown


def write_open_markdown(summary: OpenSummary, path: Path) -> Path:
    """Write ``path`` and its pictures in ``report_files`` beside it."""
    folder = path.parent / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with report_style():
        for place, column in enumerate(summary.columns):
            (folder / f"reliability-{place + 1}.png").write_bytes(to_png(_reliability(summary, column)))
            for name, figure in plot_open_column(summary, column):
                (folder / f"{name}-{place + 1}.png").write_bytes(to_png(figure))
    path.write_text(render_open_markdown(summary), encoding="utf-8")
    return path


def render_open_markdown(summary: OpenSummary) -> str:
    """The text, which refers to the pictures by relative path."""
    verdict, *sentences = open_headline(summary)
    parts = [f"# {escape(summary.comparison.title)}", f"**{escape(verdict)}**", *map(escape, sentences)]
    parts += ["## Results", *_table(open_table(summary)), *map(escape, open_notes(summary))]
    if len(summary.rows) > 1:
        parts += _table(open_difference_table(summary))
    sampler = sampler_table(summary)
    parts += _table(sampler) if sampler is not None else []
    for place, column in enumerate(summary.columns, start=1):
        parts.append(f"## {escape(column.title)}, n = {column.n}")
        for name, text in (
            ("reliability", "Reliability of Sem1 confidence"),
            ("risk", "Risk and coverage"),
            ("sem1", "Sem1-ECE by number of samples"),
            ("sem2", "Sem2-ECE by number of samples"),
        ):
            parts.append(f"![{escape(f'{text}, {column.title}')}]({FOLDER}/{name}-{place}.png)")
        for table in (open_detail_table, open_rules_table, open_curve_table):
            parts += _table(table(summary, column))
    parts += ["## Most confident errors", *_worst(summary), "## Settings"]
    settings = "\n".join(f"    {key}: {value}" for key, value in flatten(summary.comparison.settings))
    parts += [settings or "No settings were recorded.", "## How to read this page"]
    parts += [f"**{escape(term)}.** {escape(text)}" for term, text in open_glossary(summary)]
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> list[str]:
    return [f"### {escape(table.caption)}", to_markdown(table).strip()]


def _reliability(summary: OpenSummary, column: Column):  # type: ignore[no-untyped-def]
    rows = [row.label for row in summary.rows if not row.tempered]
    cells = [(row, summary.cells[row, column.name]) for row in rows]
    panels = [(row, cell.reliability, cell.estimates["sem1_ece"]) for row, cell in cells]
    return plot_reliability_row(panels, name="Sem1-ECE")


def _worst(summary: OpenSummary) -> list[str]:
    if not summary.worst:
        return ["No wrong answer."]
    parts = []
    for item in summary.worst:
        row = summary.first if item.worst_for == "before" else summary.chosen
        told = f"{row}, {item.domain}, {item.id}: {item.question} (accepted: {shown_answers(item.accepted)})"
        parts += [escape(told), _classes(summary, item)]
    return parts


def _classes(summary: OpenSummary, item: WorstQuestion) -> str:
    sides = [(summary.first, item.before)]
    if summary.chosen != summary.first:
        sides.append((summary.chosen, item.after))
    return "\n".join(f"* {escape(name)}: {'; '.join(map(_cluster, clusters))}" for name, clusters in sides)


def _cluster(one: Cluster) -> str:
    mark = f" ({one.kind})" if one.kind != "wrong" else ""
    return f"{one.count} × {escape(one.text or '(empty)')}{mark}"
