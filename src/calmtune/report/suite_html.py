"""A suite's report as one HTML file that needs nothing else: no script, no font, no picture from outside."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from calmtune.report.figures import report_style, to_svg
from calmtune.report.measures import HEADLINE, MEASURES
from calmtune.report.suite_glossary import suite_glossary
from calmtune.report.suite_headline import suite_headline
from calmtune.report.suite_pictures import plot_suite_column, plot_trade
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
    suite_notes,
    versus_table,
)
from calmtune.report.tables import Table


def render_suite_html(summary: SuiteSummary) -> str:
    """The page as text; the same bytes for the same summary."""
    room = files("calmtune.report")
    page = Environment(
        loader=DictLoader({"suite": room.joinpath("suite.html.j2").read_text(encoding="utf-8")}),
        autoescape=True,
        undefined=StrictUndefined,
    ).get_template("suite")
    verdict, *sentences = suite_headline(summary)
    different = settings_table(summary.runs)
    return (
        page.render(
            title=summary.title,
            style=Markup(room.joinpath("style.css").read_text(encoding="utf-8")),
            byline=_byline(summary),
            verdict=verdict,
            sentences=sentences,
            progress=progress_notes(summary),
            parts=[_part(part, place) for place, part in enumerate(summary.settings)],
            notes=suite_notes(summary),
            different=None if different is None else _laid_out(different),
            common=common_settings(summary.runs),
            glossary=suite_glossary(summary.definitions),
        )
        + "\n"
    )


def write_suite_html(summary: SuiteSummary, path: Path) -> Path:
    """Write :func:`render_suite_html` to ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_suite_html(summary), encoding="utf-8")
    return path


def _part(part: SettingPart, place: int) -> dict[str, Any]:
    """What the template needs of one setting."""
    short, full = short_columns(part), full_columns(part)
    measures = []
    for key in HEADLINE:
        more = [(f"{MEASURES[key].title}: every row and test domain", measure_table(part, key, full, full=True))]
        for other, words in ((BASE, BASE), (LOWEST, "each column's best row")):
            title = f"Δ {MEASURES[key].title} from {words}, paired, with p-values"
            more.append((title, versus_table(part, key, full, other)))
        measures.append(
            {
                "key": key,
                "table": _laid_out(measure_table(part, key, short), part),
                "more": [
                    {"title": title, "table": _laid_out(table, part), "open": key == "conf_ece" and place == 1}
                    for place, (title, table) in enumerate(more)
                ],
            }
        )
    with report_style():
        trades, intervals = _pictures(part, place)
    return {
        "name": part.name,
        "trades": trades,
        "intervals": intervals,
        "measures": measures,
        "choices": _laid_out(choice_table(part)),
    }


def _pictures(part: SettingPart, place: int) -> tuple[list[Markup], list[tuple[str, list[Markup]]]]:
    """For each model calibration against accuracy, and conf-ECE with its intervals, a picture a column."""
    trades, intervals = [], []
    for index, model in enumerate(part.models):
        column = model.column("OOD") or model.column("ID")
        if not model.cells or column is None:
            continue
        what = f"{part.name}, {model.model}, {column.title}"
        drawn = plot_trade(part, model, column)
        trades.append(
            Markup(to_svg(drawn, name=f"trade-{place}-{index}", description=f"conf-ECE against accuracy, {what}"))
        )
        columns = [
            Markup(
                to_svg(
                    plot_suite_column(part, model, one),
                    name=f"intervals-{place}-{index}-{at}",
                    description=f"conf-ECE with 95 % intervals, {part.name}, {model.model}, {one.title}",
                )
            )
            for at, one in enumerate(model.columns)
        ]
        intervals.append((model.model, columns))
    return trades, intervals


def _laid_out(table: Table, part: SettingPart | None = None) -> dict[str, Any]:
    """The table for the template, with the columns at which a model starts and the rows at which a method does."""
    starts, at = set(), 0
    for _, span in table.groups:
        at += span
        starts.add(at)
    methods = {row.label: row.method for row in part.rows} if part is not None else {}
    first, seen = set(), set()
    for label, _ in table.rows:
        method = methods.get(label)
        if method is not None and method not in seen:
            first.add(label)
            seen.add(method)
    return vars(table) | {"starts": starts, "first": first}


def _byline(summary: SuiteSummary) -> str:
    d, runs = summary.definitions, summary.runs
    counts = (
        (len(runs), "run"),
        (len({run.setting for run in runs}), "setting"),
        (len({run.model for run in runs}), "model"),
        (len({run.method for run in runs}), "method"),
        (len({run.seed for run in runs}), "seed"),
    )
    told = ", ".join(f"{n} {word}{'s' * (n != 1)}" for n, word in counts)
    return (
        f"{told}. Brackets hold 95 % intervals over items and seeds. {d['n_bins']} equal-width bins, "
        f"{d['n_resamples']} resamples, random seed {d['seed']}."
    )
