"""The report on predictions that were made elsewhere as text, Markdown and one HTML file."""

from __future__ import annotations

import math
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from calmtune.report.figures import report_style, to_png, to_svg
from calmtune.report.markdown import FOLDER, escape
from calmtune.report.measures import HEADLINE, MEASURES
from calmtune.report.numbers import Estimate, interval, number, with_interval
from calmtune.report.outcomes import OutcomeColumn, OutcomesSummary
from calmtune.report.reliability import describe, plot_reliability
from calmtune.report.tables import OUTSIDE, Table, TableCell, to_markdown

# what belongs to which measures, said only where one of them is in the table
_WORDS = (
    (("confidence",), "Confidence", "The {confidence}."),
    (
        ("conf_ece",),
        "conf-ECE",
        "The distance between confidence and accuracy, averaged over {n_bins} bins of confidence ({bin_rule}). 0 is "
        "perfect; 0.10 says that a stated 80 % means about 70 % or 90 %.",
    ),
    (("mce", "smooth_ece"), "MCE and smooth ECE", "MCE is the worst bin; smooth ECE needs no bins."),
    (("cw_ece",), "cw-ECE", "The same error for every option, not only for the chosen one."),
    (
        ("nll", "brier"),
        "NLL and Brier",
        "Proper scores of the whole distribution. NLL is in nats; Brier is summed over options, and its reliability is "
        "its calibration part.",
    ),
    (("gap",), "Overconfidence gap", "Mean confidence minus accuracy: positive when more is claimed than known."),
    (("auroc",), "AUROC", "How often a right answer has more confidence than a wrong one: 0.5 says nothing."),
    (
        ("accuracy",),
        "Intervals",
        "{interval}; {n_resamples} resamples, {n_resamples_slow} for slow measures; seed {seed}.",
    ),
    (("conf_ece",), "If calibrated", "The {null_band}. A conf-ECE inside this band is no evidence of miscalibration."),
)


def outcomes_table(summary: OutcomesSummary, *, every: bool = False) -> Table:
    """One row a domain; the headline measures that apply, or all of them with the null band and ties."""
    keys = [key for key in (MEASURES if every else HEADLINE) if any(key in one.estimates for one in summary.columns)]
    rows = []
    for column in summary.columns:
        cells = [TableCell(str(column.n))]
        for key in keys:
            found = column.estimates.get(key)
            cells.append(TableCell("not known") if found is None else _cell(found))
            if key == "conf_ece":
                cells.append(_cell(column.null_band))
        rows.append((column.name, (*cells, *([TableCell(str(column.ties))] if every else []))))
    heads: list[str] = []
    for key in keys:
        heads += [MEASURES[key].title + MEASURES[key].arrow] + ["conf-ECE if calibrated"] * (key == "conf_ece")
    header = ("domain", "n", *heads, *(["ties"] if every else []))
    return Table("Calibration and accuracy on every domain", (), header, tuple(rows), outcomes_notes(summary))


def outcomes_notes(summary: OutcomesSummary) -> tuple[str, ...]:
    """How the numbers were found, and what was left out."""
    d = summary.definitions
    outside = any(
        not one.low <= one.value <= one.high and not math.isnan(one.low)
        for column in summary.columns
        for one in column.estimates.values()
    )
    return (
        f"In brackets: {d['interval']}; {d['n_resamples']} resamples, seed {d['seed']}. {d['n_bins']} bins, "
        f"{d['bin_rule']}. Confidence: {d['confidence']}.",
        *summary.notes,
        *([OUTSIDE] if outside else []),
    )


def outcomes_verdict(summary: OutcomesSummary) -> str:
    """One sentence: whether the confidences are off, in which direction, and by how much."""
    column = summary.last
    gap, ece, band = column.estimates["gap"], column.estimates["conf_ece"], column.null_band
    where = f"on {column.name}, n = {column.n}"
    if ece.value <= band.high:
        return (
            f"No evidence of miscalibration {where}: conf-ECE {number(ece.value)} is what a perfectly calibrated model "
            f"would show ({interval(band)})."
        )
    size = f"conf-ECE {with_interval(ece)}, {interval(band)} if calibrated"
    if gap.low > 0:
        return f"Overconfident by {with_interval(gap)} {where}: {size}."
    if gap.high < 0:
        return f"Underconfident by {number(-gap.value)} [{number(-gap.high)}, {number(-gap.low)}] {where}: {size}."
    return f"Miscalibrated {where}, but not in one direction: {size}."


def write_outcomes(summary: OutcomesSummary, directory: Path) -> Path:
    """Write report.html, report.md with report_files/, and metrics.json; the same bytes for the same summary.

    Returns:
        The path of report.html.
    """
    folder = directory / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with report_style():
        for place, column in enumerate(summary.columns, start=1):
            (folder / f"reliability-{place}.png").write_bytes(to_png(_figure(column)))
        page = render_outcomes_html(summary)
    for name, text in (
        ("metrics.json", summary.to_text()),
        ("report.md", render_outcomes_markdown(summary)),
        ("report.html", page),
    ):
        temporary = directory / f"{name}.partial"
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(directory / name)
    return directory / "report.html"


def render_outcomes_markdown(summary: OutcomesSummary) -> str:
    """The text, which refers to the pictures by relative path."""
    parts = [f"# {escape(summary.title)}", f"**{escape(outcomes_verdict(summary))}**", "## Results"]
    parts += [to_markdown(outcomes_table(summary)).strip(), *map(escape, outcomes_notes(summary)), "## Reliability"]
    parts += [
        f"![Reliability diagram, {escape(column.name)}, n = {column.n}]({FOLDER}/reliability-{place}.png)"
        for place, column in enumerate(summary.columns, start=1)
    ]
    parts += ["## All measures", to_markdown(outcomes_table(summary, every=True)).strip(), "## How to read this page"]
    parts += [f"**{term}.** {escape(text)}" for term, text in outcomes_glossary(summary)]
    return "\n\n".join(parts) + "\n"


def render_outcomes_html(summary: OutcomesSummary) -> str:
    """The page as text; call it inside :func:`calmtune.report.figures.report_style`."""
    room = files("calmtune.report")
    page = Environment(
        loader=DictLoader({"page": room.joinpath("outcomes.html.j2").read_text(encoding="utf-8")}),
        autoescape=True,
        undefined=StrictUndefined,
    ).get_template("page")
    d = summary.definitions
    drawings: list[Any] = []
    for place, column in enumerate(summary.columns):
        about = f"Reliability on {column.name}: {describe(column.reliability, column.estimates['conf_ece'])}"
        drawings.append(Markup(to_svg(_figure(column), name=f"reliability-{place}", description=about)))
    text: str = page.render(
        title=summary.title,
        style=Markup(room.joinpath("style.css").read_text(encoding="utf-8")),
        byline=f"n = {summary.last.n}. Brackets hold 95 % intervals. {d['n_bins']} equal-width bins, seed {d['seed']}.",
        verdict=outcomes_verdict(summary),
        overview=outcomes_table(summary),
        details=outcomes_table(summary, every=True),
        drawings=drawings,
        glossary=outcomes_glossary(summary),
    )
    return text + "\n"


def outcomes_glossary(summary: OutcomesSummary) -> tuple[tuple[str, str], ...]:
    """(term, explanation) of the measures that are in the report."""
    known = {key for column in summary.columns for key in column.estimates}
    d = summary.definitions
    return tuple((term, text.format_map(d)) for keys, term, text in _WORDS if known & set(keys))


def _figure(column: OutcomeColumn) -> Any:
    return plot_reliability(column.reliability, column.estimates["conf_ece"], column.name)


def _cell(found: Estimate) -> TableCell:
    return TableCell(number(found.value), interval(found))
