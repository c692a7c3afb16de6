"""A suite's report as Markdown, with its pictures as PNG files in a folder beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from calmtune.report.figures import report_style, to_png
from calmtune.report.markdown import FOLDER, escape
from calmtune.report.measures import HEADLINE
from calmtune.report.suite_glossary import suite_glossary
from calmtune.report.suite_headline import suite_headline
from calmtune.report.suite_pictures import plot_suite_intervals, plot_trade
from calmtune.report.suite_records import SettingPart, SuiteSummary
from calmtune.report.suite_runs import BASE
from calmtune.report.suite_settings import common_settings, settings_table
from calmtune.report.suite_tables import (
    LOWEST,
    choice_table,
    full_columns,
    measure_table,
    progress_notes,
    short_columns,
    versus_table,
)
from calmtune.report.tables import Table, to_markdown


def write_suite_markdown(summary: SuiteSummary, path: Path) -> Path:
    """Write ``path`` and its pictures in ``report_files`` beside it."""
    folder = path.parent / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with report_style():
        for place, part in enumerate(summary.settings):
            for index, model in enumerate(part.models):
                column = model.column("OOD") or model.column("ID")
                if model.cells and column is not None:
                    (folder / _name("trade", place, index)).write_bytes(to_png(plot_trade(part, model, column)))
                    (folder / _name("conf-ece", place, index)).write_bytes(to_png(plot_suite_intervals(part, model)))
    path.write_text(render_suite_markdown(summary), encoding="utf-8")
    return path


def render_suite_markdown(summary: SuiteSummary) -> str:
    """The text, which refers to the pictures by relative path."""
    verdict, *sentences = suite_headline(summary)
    parts = [f"# {escape(summary.title)}", f"**{escape(verdict)}**", *map(escape, sentences)]
    parts += [escape(note) for note in progress_notes(summary)]
    for place, part in enumerate(summary.settings):
        parts += _part(part, place)
    different = settings_table(summary.runs)
    parts.append("## Settings")
    if different is not None:
        parts += _table(different)
    common = [f"| {escape(key)} | {escape(value)} |" for key, value in common_settings(summary.runs)]
    if common:
        parts += ["### Settings of every run", "\n".join(["| setting | value |", "| --- | --- |", *common])]
    parts += ["## How to read this page"]
    parts += [f"**{escape(term)}.** {escape(text)}" for term, text in suite_glossary(summary.definitions)]
    return "\n\n".join(parts) + "\n"


def _part(part: SettingPart, place: int) -> list[str]:
    """One setting: pictures, short tables, then every row, then the paired differences."""
    short, full = short_columns(part), full_columns(part)
    found = [f"## {escape(part.name)}"]
    for index, model in enumerate(part.models):
        if model.cells:
            what = escape(f"{part.name}, {model.model}")
            found.append(f"![conf-ECE against accuracy, {what}]({FOLDER}/{_name('trade', place, index)})")
            found.append(
                f"![conf-ECE of every method with 95 % intervals, {what}]({FOLDER}/{_name('conf-ece', place, index)})"
            )
    for key in HEADLINE:
        found += _table(measure_table(part, key, short))
    found += _table(choice_table(part))
    for key in HEADLINE:
        found += _table(versus_table(part, key, full, BASE)) + _table(versus_table(part, key, full, LOWEST))
    for key in HEADLINE:
        found += _table(measure_table(part, key, full, full=True), "Every row: ")
    return found


def _table(table: Table, title: str = "") -> list[str]:
    return [f"### {title}{escape(table.caption)}", to_markdown(_safe(table)).strip()]


def _safe(table: Table) -> Table:
    """Names and settings as text; numbers and their brackets are left as they are."""
    rows = tuple(
        (_word(label), tuple(cell if cell.detail else replace(cell, text=_word(cell.text)) for cell in cells))
        for label, cells in table.rows
    )
    groups = tuple((_word(name), span) for name, span in table.groups)
    return replace(table, groups=groups, header=tuple(map(_word, table.header)), rows=rows)


def _word(text: str) -> str:
    # the table's own writer takes care of what would end a cell
    return escape(text).replace("\\|", "|")


def _name(what: str, place: int, index: int) -> str:
    # numbered, as the name of a setting or a model need not be a file name
    return f"{what}-{place + 1}-{index + 1}.png"
