"""The record of a threshold for abstaining, laid out: tables, a picture, and what it says in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calmtune.report.figures import ACCENT, INK, MUTED, WARM, new_figure, report_style, to_png
from calmtune.report.markdown import FOLDER, escape
from calmtune.report.numbers import number
from calmtune.report.tables import Table, TableCell, to_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE = "abstention.png"
Record = Mapping[str, Any]


def guarantee(record: Record) -> str:
    """What the threshold promises, in a sentence; or that there is none.

    Example:
        >>> guarantee({"threshold": None, "control": "joint", "target": 0.01, "confidence": None, "n": 50})
        'No threshold could be shown to hold the target of 0.01 on 50 items: the rule is to answer nothing. More \
calibration items, or a higher target, may change that.'
    """
    target = f"{record['target']:g}"
    if record["threshold"] is None:
        return (
            f"No threshold could be shown to hold the target of {target} on {record['n']} items: the rule is to answer "
            "nothing. More calibration items, or a higher target, may change that."
        )
    at = f"Answer where the confidence is at least {record['threshold']:.4g}."
    if record["control"] == "joint":
        return f"{at} On average at most {target} of all questions are then answered and wrong."
    return (
        f"{at} With probability {record['confidence']:g} over the calibration items, the error rate among answered "
        f"questions is then at most {target}."
    )


def reading_in_words(record: Record) -> str:
    """Which confidence the threshold is for.

    Example:
        >>> reading_in_words({"distribution": "raw", "scaling": "TS", "temperature": 1.5})
        'raw distribution, temperature 1.5'
    """
    words = f"{record['distribution']} distribution"
    if record["scaling"] == "TS":
        return f"{words}, temperature {record['temperature']:.4g}"
    return f"{words}, vector scaling" if record["scaling"] == "VS" else words


def coverage_table(record: Record) -> Table:
    """Coverage and error rate among answered on the threshold items, by threshold; the chosen one is marked."""
    rows = tuple(
        (
            f"{one['threshold']:.4f}" + ("  chosen" if one["threshold"] == record["threshold"] else ""),
            (
                TableCell(f"{one['n_answered']} of {record['n']}"),
                _share(one["coverage"]),
                TableCell(str(one["n_wrong"])),
                _share(one["risk"]),
            ),
        )
        for one in record["table"]
    )
    return Table(
        f"Coverage and risk on the {record['n']} items that the threshold was found on",
        (),
        ("threshold", "answered", "coverage", "wrong", "risk: wrong of answered"),
        rows,
        ("In brackets: exact 95 % intervals, each for itself; a threshold picked by eye has no guarantee.",),
    )


def domain_table(record: Record) -> Table:
    """What the threshold does on each test domain, and whether its confidences look like the calibration items'."""
    rows = []
    for one in record["domains"]:
        alike = TableCell("not tested", "part of ID (all)")
        if one["p_value"] is not None:
            detail = f"KS {number(one['ks'])}, p = {one['p_value']:.4f}"
            alike = TableCell("no" if one["shifted"] else "yes", detail)
        risk = [_share(one["risk"]), _share(one["joint"])] if one["risk"] else [TableCell("not known")] * 2
        cells = (TableCell(one["shift"]), TableCell(str(one["n"])), _share(one["coverage"]), *risk, alike)
        rows.append((one["domain"], cells))
    level = record["shift_level"]
    return Table(
        "The threshold on other items",
        (),
        ("domain", "shift", "n", "coverage", "risk: wrong of answered", "answered and wrong", "alike?"),
        tuple(rows),
        (
            "In brackets: exact 95 % intervals. The promise is for questions like the calibration split's (ID); "
            "nothing is promised for others.",
            "Alike: whether the confidences are, by a Kolmogorov-Smirnov test by permutation against the items that "
            f"the threshold was found on, at level {level:g} over all tests together. It sees no labels: answers can "
            "become worse while confidences stay as they were.",
        ),
    )


def plot_risk_coverage(record: Record) -> Figure:
    """Risk against coverage with exact intervals, the target, and the chosen threshold."""
    figure = new_figure(4.4, 3.1)
    axes = figure.subplots()
    drawn = [one for one in record["table"] if one["n_answered"]]
    x = [one["coverage"]["value"] for one in drawn]
    axes.fill_between(
        x, [one["risk"]["low"] for one in drawn], [one["risk"]["high"] for one in drawn], color=ACCENT, alpha=0.15, lw=0
    )
    axes.plot(x, [one["risk"]["value"] for one in drawn], color=ACCENT, linewidth=1.4, marker="o", markersize=2.5)
    if record["control"] == "answered":  # the other target is of another rate
        axes.axhline(record["target"], color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
        style = {"color": MUTED, "fontsize": 7.5, "xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        axes.annotate("target", (0, record["target"]), (4, 3), **style)
    for one in drawn:
        if one["threshold"] == record["threshold"]:
            point = (one["coverage"]["value"], one["risk"]["value"])
            axes.plot(*point, marker="o", markersize=6, color=WARM, zorder=5)
            axes.annotate("chosen", point, (-4, 8), ha="right", color=INK, fontsize=7.5, textcoords="offset points")
    axes.set(xlim=(0, 1.02), ylim=(0, 1), xlabel="coverage: share answered", ylabel="risk: wrong of answered")
    return figure


def warnings_of(record: Record) -> list[str]:
    """What a user should act on: no threshold, confidences that look different, and targets that are missed."""
    found = [guarantee(record)] if record["threshold"] is None else []
    for one in record["domains"]:
        if one["shifted"]:
            found.append(
                f"{one['domain']} (n = {one['n']}): its confidences do not look like those that the threshold was "
                f"found on (KS {number(one['ks'])}, p = {one['p_value']:.4f}), so the promise does not cover it; "
                "calibrate with questions of its kind"
            )
        held = one["risk"] if record["control"] == "answered" else one["joint"]
        if held and held["low"] is not None and held["low"] > record["target"]:
            found.append(
                f"{one['domain']} (n = {one['n']}): the target of {record['target']:g} is missed: {_span(held)}"
            )
    return found


def write_abstention(record: Record, directory: Path) -> Path:
    """Write abstention.md and its picture in ``report_files`` beside it.

    Returns:
        The path of abstention.md.
    """
    folder = directory / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with report_style():
        (folder / PICTURE).write_bytes(to_png(plot_risk_coverage(record)))
    path = directory / "abstention.md"
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(render_abstention(record), encoding="utf-8")
    temporary.replace(path)
    return path


def render_abstention(record: Record) -> str:
    """The page as Markdown."""
    tables = [coverage_table(record), *([domain_table(record)] if record["domains"] else [])]
    parts = ["# When to answer", f"**{escape(guarantee(record))}**"]
    parts += [f"Warning: {escape(one)}." for one in warnings_of(record) if one != guarantee(record)]
    parts.append(
        f"Confidence: {escape(reading_in_words(record))}, fitted on the other {record['n_fit']} items of the "
        f"calibration split. Method: {record['method']}."
    )
    parts.append(f"![Risk against coverage]({FOLDER}/{PICTURE})")
    for table in tables:
        parts += [f"## {escape(table.caption)}", to_markdown(table).strip(), *map(escape, table.notes)]
    return "\n\n".join(parts) + "\n"


def _share(found: Mapping[str, float | None]) -> TableCell:
    value = math.nan if found["value"] is None else found["value"]
    return TableCell(number(value), f"[{number(found['low'] or 0.0)}, {number(_or(found['high'], 1.0))}]")


def _span(found: Mapping[str, float | None]) -> str:
    return _share(found).joined


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def table_rows(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Columns of a table as records, each share with its interval; JSON values only.

    Args:
        columns: the fields of ``calmtune.posthoc.abstention.RiskCoverage``, [M] each.

    Example:
        >>> names = ("threshold", "n_answered", "n_wrong", "coverage", "coverage_low", "coverage_high", "risk",
        ...          "risk_low", "risk_high")
        >>> row = table_rows({name: [0.5] for name in names})[0]
        >>> row["risk"], sorted(row)
        ({'value': 0.5, 'low': 0.5, 'high': 0.5}, ['coverage', 'n_answered', 'n_wrong', 'risk', 'threshold'])
    """

    def share(name: str, place: int) -> dict[str, float | None]:
        ends = {"value": name, "low": f"{name}_low", "high": f"{name}_high"}
        found = {end: float(columns[key][place]) for end, key in ends.items()}
        return {end: None if math.isnan(value) else value for end, value in found.items()}

    return [
        {
            "threshold": float(columns["threshold"][place]),
            "n_answered": int(columns["n_answered"][place]),
            "n_wrong": int(columns["n_wrong"][place]),
            "coverage": share("coverage", place),
            "risk": share("risk", place),
        }
        for place in range(len(columns["threshold"]))
    ]
