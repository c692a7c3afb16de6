"""The report on open questions as one HTML file that needs nothing else: no script, no font, no outside picture."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from calmtune.report.curves import curve_panels, plot_panel
from calmtune.report.figures import report_style, to_svg
from calmtune.report.html import flatten, with_starts
from calmtune.report.numbers import interval, number, p_text, with_interval
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
from calmtune.report.reliability import describe, plot_reliability
from calmtune.report.summary import Column

MOST_CLUSTERS = 5


def render_open_html(summary: OpenSummary) -> str:
    """The page as text; the same bytes for the same summary."""
    room = files("calmtune.report")
    page = Environment(
        loader=DictLoader({"openqa": room.joinpath("openqa.html.j2").read_text(encoding="utf-8")}),
        autoescape=True,
        undefined=StrictUndefined,
    ).get_template("openqa")
    verdict, *sentences = open_headline(summary)
    sampler = sampler_table(summary)
    with report_style():
        pictures = {
            "reliability": [
                (
                    f"{column.title}, n = {column.n}",
                    [_reliability(summary, column, place, key) for key in ("sem1", "sem2")],
                )
                for place, column in enumerate(summary.columns)
            ],
            "plots": [_plots(summary, column, place) for place, column in enumerate(summary.columns)],
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
            chosen=summary.chosen,
            overview=with_starts(open_table(summary)),
            differences=with_starts(open_difference_table(summary)) if len(summary.rows) > 1 else None,
            sampler=None if sampler is None else with_starts(sampler),
            details=[with_starts(open_detail_table(summary, column)) for column in summary.columns],
            rules=[with_starts(open_rules_table(summary, column)) for column in summary.columns],
            by_n=[with_starts(open_curve_table(summary, column)) for column in summary.columns],
            notes=open_notes(summary),
            worst=_worst(summary),
            settings=list(flatten(summary.comparison.settings)),
            glossary=open_glossary(summary),
            **pictures,
        )
        + "\n"
    )


def write_open_html(summary: OpenSummary, path: Path) -> Path:
    """Write :func:`render_open_html` to ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_open_html(summary), encoding="utf-8")
    return path


def _byline(summary: OpenSummary) -> str:
    d = summary.definitions
    domains = ", ".join(f"{one.name} ({one.shift}, n = {one.n})" for one in summary.columns if not one.pooled)
    return (
        f"Test domains: {domains}. {d['n_samples']} sampled answers a question. Brackets hold 95 % intervals over "
        f"questions. {d['n_bins']} equal-width bins, seed {d['seed']}."
    )


def _key_figures(summary: OpenSummary) -> list[dict[str, str]]:
    if summary.chosen == summary.first:
        return []
    found = []
    for column in filter(None, (summary.column("ID"), summary.column("OOD"))):
        before = summary.cells[summary.first, column.name]
        after = summary.cells[summary.chosen, column.name]
        for key, title in (("sem1_ece", "Sem1-ECE"), ("sem2_ece", "Sem2-ECE"), ("accuracy", "accuracy")):
            change = after.versus_first[key]
            found.append(
                {
                    "name": f"{title}, {column.shift}, n = {column.n}",
                    "before": number(before.estimates[key].value),
                    "after": number(after.estimates[key].value),
                    "intervals": f"{interval(before.estimates[key])} → {interval(after.estimates[key])}",
                    "paired": f"Δ {with_interval(change, sign=True)}, {p_text(change.p_value)}",
                }
            )
    return found


def _reliability(summary: OpenSummary, column: Column, place: int, key: str) -> list[Markup]:
    """Diagrams of one kind of confidence, one a model."""
    found = []
    name = f"{key.capitalize()}-ECE"
    for index, row in enumerate(row.label for row in summary.rows if not row.tempered):
        cell = summary.cells[row, column.name]
        table, ece = (cell.reliability if key == "sem1" else cell.reliability2), cell.estimates[f"{key}_ece"]
        title = f"{row}, {key.capitalize()}"
        figure = plot_reliability(table, ece, title, name)
        text = f"Reliability of {title}, {column.title}: {describe(table, ece, name)}"
        found.append(Markup(to_svg(figure, name=f"reliability-{place}-{index}-{key}", description=text)))
    return found


def _plots(summary: OpenSummary, column: Column, place: int) -> list[Markup]:
    return [
        Markup(to_svg(figure, name=f"{name}-{place}", description=f"{name} of every method, {column.title}"))
        for name, figure in plot_open_column(summary, column)
    ]


def _worst(summary: OpenSummary) -> list[tuple[str, list[dict[str, Any]]]]:
    lists = [("before", f"Most confident errors of {summary.first}")]
    if summary.chosen != summary.first:
        lists.append(("after", f"Most confident errors of {summary.chosen}"))
    return [
        (title, [_worst_question(item) for item in summary.worst if item.worst_for == side]) for side, title in lists
    ]


def _worst_question(item: WorstQuestion) -> dict[str, Any]:
    return {
        "id": item.id,
        "domain": item.domain,
        "question": item.question,
        "accepted": shown_answers(item.accepted),
        "sides": [_side(item.before), _side(item.after)],
    }


def shown_answers(accepted: tuple[str, ...], most: int = 4) -> str:
    """The first accepted answers, and how many more there are.

    >>> shown_answers(("a", "b", "c"), most=2)
    'a; b; and 1 more'
    """
    more = f"; and {len(accepted) - most} more" if len(accepted) > most else ""
    return "; ".join(accepted[:most]) + more


def _side(clusters: tuple[Cluster, ...]) -> list[dict[str, Any]]:
    total = sum(one.count for one in clusters)
    shown = [
        {
            "text": one.text or "(empty)",
            "others": f"also: {shown_answers(one.others, 2)}" if one.others else "",
            "kind": one.kind,
            "percent": f"{100 * one.count / total:.1f}",
            "value": f"{one.count}/{total}",
        }
        for one in clusters[:MOST_CLUSTERS]
    ]
    rest = sum(one.count for one in clusters[MOST_CLUSTERS:])
    if rest:
        shown.append(
            {
                "text": f"{len(clusters) - MOST_CLUSTERS} smaller classes",
                "others": "",
                "kind": "",
                "percent": f"{100 * rest / total:.1f}",
                "value": f"{rest}/{total}",
            }
        )
    return shown
