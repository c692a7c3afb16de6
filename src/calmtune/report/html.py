"""The report as one HTML file that needs nothing else: no script, no font, no picture from outside."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from calmtune.report.curves import curve_panels, plot_panel
from calmtune.report.figures import report_style, to_svg
from calmtune.report.glossary import glossary
from calmtune.report.headline import headline
from calmtune.report.intervals import plot_intervals
from calmtune.report.measures import COMPARED, MEASURES
from calmtune.report.numbers import interval, number, p_text, with_interval
from calmtune.report.reliability import describe, plot_reliability
from calmtune.report.summary import Column, Summary
from calmtune.report.tables import Table, detail_table, difference_table, notes, overview_table
from calmtune.report.worst import WorstItem


def render_html(summary: Summary) -> str:
    """The page as text; the same bytes for the same summary."""
    room = files("calmtune.report")
    page = Environment(
        loader=DictLoader({"page": room.joinpath("page.html.j2").read_text(encoding="utf-8")}),
        autoescape=True,
        undefined=StrictUndefined,
    ).get_template("page")
    verdict, *sentences = headline(summary)
    with report_style():
        pictures = {
            "intervals": [_interval_svg(summary, column, place) for place, column in enumerate(summary.columns)],
            "reliability": [
                (f"{column.title}, n = {column.n}", _reliability_svgs(summary, column, place))
                for place, column in enumerate(summary.columns)
            ],
            "curves": [
                Markup(to_svg(plot_panel(panel), name=f"curve-{place}", description=f"{panel.title} by step"))
                for place, panel in enumerate(curve_panels(summary.comparison.training_log))
            ],
        }
    return (
        page.render(
            title=summary.comparison.title,
            style=Markup(room.joinpath("style.css").read_text(encoding="utf-8")),
            byline=_byline(summary),
            verdict=verdict,
            sentences=sentences,
            key_figures=_key_figures(summary),
            first=summary.first,
            chosen=summary.choice.row,
            overview=with_starts(overview_table(summary)),
            differences=with_starts(difference_table(summary, summary.columns)),
            details=[with_starts(transposed(detail_table(summary, column))) for column in summary.columns],
            notes=notes(summary),
            worst=_worst(summary),
            settings=list(flatten(summary.comparison.settings)),
            glossary=glossary(summary),
            **pictures,
        )
        + "\n"
    )


def write_html(summary: Summary, path: Path) -> Path:
    """Write :func:`render_html` to ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_html(summary), encoding="utf-8")
    return path


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as (dotted key, JSON text).

    >>> list(flatten({"data": {"train": "a.jsonl", "limit": None}}))
    [('data.train', 'a.jsonl'), ('data.limit', 'null')]
    """
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from flatten(value, f"{name}.")
        else:
            yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def transposed(table: Table) -> Table:
    """Measures down and methods across, for tables with more measures than methods."""
    rows = tuple(
        (title, tuple(cells[place] for _, cells in table.rows)) for place, title in enumerate(table.header[1:])
    )
    return Table(table.caption, (), ("measure", *(label for label, _ in table.rows)), rows, table.notes)


def with_starts(table: Table) -> dict[str, Any]:
    """The table for the template, with the places at which a group of columns starts."""
    starts, place = set(), 0
    for _, span in table.groups:
        place += span
        starts.add(place)
    return vars(table) | {"starts": starts}


def _byline(summary: Summary) -> str:
    d = summary.definitions
    domains = ", ".join(
        f"{column.name} ({column.shift}, n = {column.n})" for column in summary.columns if not column.pooled
    )
    return f"Test domains: {domains}. Brackets hold 95 % intervals. {d['n_bins']} equal-width bins, seed {d['seed']}."


def _key_figures(summary: Summary) -> list[dict[str, str]]:
    if summary.choice.row == summary.first:
        return []
    found = []
    for column in filter(None, (summary.column("ID"), summary.column("OOD"))):
        before = summary.cells[summary.first, column.name]
        after = summary.cells[summary.choice.row, column.name]
        for key in COMPARED[:2]:
            change = after.versus_first[key]
            found.append(
                {
                    "name": f"{MEASURES[key].title}, {column.shift}, n = {column.n}",
                    "before": number(before.estimates[key].value),
                    "after": number(after.estimates[key].value),
                    "intervals": f"{interval(before.estimates[key])} → {interval(after.estimates[key])}",
                    "paired": f"Δ {with_interval(change, sign=True)}, {p_text(change.p_value)}",
                }
            )
    return found


def _interval_svg(summary: Summary, column: Column, place: int) -> Markup:
    description = f"conf-ECE of every method with 95 % intervals, {column.title}"
    return Markup(to_svg(plot_intervals(summary, column), name=f"intervals-{place}", description=description))


def _reliability_svgs(summary: Summary, column: Column, place: int) -> list[Markup]:
    found = []
    for index, label in enumerate(summary.shown):
        cell = summary.cells[label, column.name]
        ece = cell.estimates["conf_ece"]
        figure = plot_reliability(cell.reliability, ece, label)
        description = f"Reliability of {label}, {column.title}: {describe(cell.reliability, ece)}"
        found.append(Markup(to_svg(figure, name=f"reliability-{place}-{index}", description=description)))
    return found


def _worst(summary: Summary) -> list[tuple[str, list[dict[str, Any]]]]:
    lists = [("before", f"Most confident errors of {summary.first}")]
    if summary.choice.row != summary.first:
        lists.append(("after", f"Most confident errors of {summary.choice.row}"))
    return [
        (title, [_worst_item(summary, item) for item in summary.worst if item.worst_for == side])
        for side, title in lists
    ]


def _worst_item(summary: Summary, item: WorstItem) -> dict[str, Any]:
    question, choices = summary.comparison.texts.get(item.id, ("The text of this item was not given.", ()))
    options = []
    for index in range(len(item.before)):
        sides = []
        for probabilities, choice in ((item.before, item.choice_before), (item.after, item.choice_after)):
            kind = ("right" if choice == item.label else "wrong") if choice == index else ""
            p = probabilities[index]
            sides.append({"percent": f"{100 * p:.1f}", "text": number(p), "kind": kind})
        text = choices[index] if index < len(choices) else f"option {index + 1}"
        options.append({"text": text, "gold": index == item.label, "sides": sides})
    return {"id": item.id, "domain": item.domain, "question": question, "options": options}
