"""The report as Markdown, with its pictures as PNG files in a folder beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from calmtune.report.curves import curve_panels, plot_curves
from calmtune.report.figures import report_style, to_png
from calmtune.report.glossary import glossary
from calmtune.report.headline import headline
from calmtune.report.html import flatten, transposed
from calmtune.report.intervals import plot_all_intervals
from calmtune.report.reliability import plot_reliability_row
from calmtune.report.summary import Column, Summary
from calmtune.report.tables import column_table, detail_table, difference_table, notes, to_markdown
from calmtune.report.worst import WorstItem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = "report_files"


def write_markdown(summary: Summary, path: Path) -> Path:
    """Write ``path`` and its pictures in ``report_files`` beside it."""
    folder = path.parent / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    drawings = _drawings(summary)
    with report_style():
        for name, draw in drawings.items():
            (folder / name).write_bytes(to_png(draw()))
    path.write_text(render_markdown(summary), encoding="utf-8")
    return path


def render_markdown(summary: Summary) -> str:
    """The text, which refers to the pictures by relative path."""
    verdict, *sentences = headline(summary)
    parts = [f"# {escape(summary.comparison.title)}", f"**{escape(verdict)}**", *map(escape, sentences), "## Results"]
    parts.append(_picture("intervals.png", "conf-ECE of every method with 95 % intervals"))
    for column in summary.columns:
        table = column_table(summary, column)
        parts += [f"### {escape(table.caption)}", to_markdown(table).strip()]
        if len(summary.rows) > 1:
            versus = difference_table(summary, (column,))
            parts += [f"{escape(versus.caption)}:", to_markdown(versus).strip()]
    parts += [*map(escape, notes(summary)), "## Reliability"]
    parts += [
        _picture(_reliability_name(place), f"Reliability diagrams, {column.title}, n = {column.n}")
        for place, column in enumerate(summary.columns)
    ]
    parts.append("## Training")
    curves = "curves.png" in _drawings(summary)
    parts.append(_picture("curves.png", "Training curves") if curves else "No training log was given.")
    parts += ["## Most confident errors", *_worst(summary), "## All measures"]
    for column in summary.columns:
        detail = transposed(detail_table(summary, column))
        parts += [f"### {escape(detail.caption)}", to_markdown(detail).strip()]
    settings = "\n".join(f"{key}: {value}" for key, value in flatten(summary.comparison.settings))
    parts += ["## Settings", _code(settings) if settings else "No settings were recorded.", "## How to read this page"]
    parts += [f"**{escape(term)}.** {escape(text)}" for term, text in glossary(summary)]
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Text as text: nothing in it is taken as Markdown or HTML.

    >>> escape("<script> a_b *c* | d")
    '&lt;script&gt; a\\\\_b \\\\*c\\\\* \\\\| d'
    """
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{character}" if character in "\\`*_[]#|~$" else character for character in text).replace(
        "\n", " "
    )


def _drawings(summary: Summary) -> dict[str, Callable[[], Figure]]:
    found: dict[str, Callable[[], Figure]] = {"intervals.png": lambda: plot_all_intervals(summary)}
    for place, column in enumerate(summary.columns):
        found[_reliability_name(place)] = lambda column=column: _reliability(summary, column)  # type: ignore[misc]
    panels = curve_panels(summary.comparison.training_log)
    if panels:
        found["curves.png"] = lambda: plot_curves(panels)
    return found


def _reliability(summary: Summary, column: Column) -> Figure:
    cells = [(label, summary.cells[label, column.name]) for label in summary.shown]
    return plot_reliability_row([(label, cell.reliability, cell.estimates["conf_ece"]) for label, cell in cells])


def _reliability_name(place: int) -> str:
    # numbered, as a domain's name need not be a file name
    return f"reliability-{place + 1}.png"


def _picture(name: str, text: str) -> str:
    return f"![{escape(text)}]({FOLDER}/{name})"


def _code(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"


def _worst(summary: Summary) -> list[str]:
    if not summary.worst:
        return ["No wrong answer."]
    parts = []
    for item in summary.worst:
        if item.worst_for == "before" or summary.choice.row != summary.first:
            parts += _worst_item(summary, item)
    return parts


def _worst_item(summary: Summary, item: WorstItem) -> list[str]:
    question, choices = summary.comparison.texts.get(item.id, ("The text of this item was not given.", ()))
    row = summary.first if item.worst_for == "before" else summary.choice.row
    lines = [
        f"| option | {escape(summary.first)} | {escape(summary.choice.row)} | |",
        "| --- | ---: | ---: | --- |",
    ]
    for index, (before, after) in enumerate(zip(item.before, item.after, strict=True)):
        text = choices[index] if index < len(choices) else f"option {index + 1}"
        marks = ["gold"] * (index == item.label)
        marks += [f"chosen by {escape(summary.first)}"] * (index == item.choice_before)
        marks += [f"chosen by {escape(summary.choice.row)}"] * (index == item.choice_after)
        lines.append(f"| {escape(text)} | {before:.3f} | {after:.3f} | {', '.join(marks)} |")
    return [f"{escape(row)}, {escape(item.domain)}, {escape(item.id)}: {escape(question)}", "\n".join(lines)]
