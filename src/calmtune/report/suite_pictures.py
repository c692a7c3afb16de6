"""Pictures of a suite: calibration against accuracy, and conf-ECE of every method with its interval and its seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calmtune.report.figures import ACCENT, INK, MUTED, WARM, new_figure
from calmtune.report.suite_records import ModelPart, SettingPart, SuiteRow
from calmtune.report.suite_runs import BASE
from calmtune.report.summary import Column

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_KINDS = {"raw": (INK, "o"), "adjusted": (ACCENT, "s"), "chosen": (WARM, "D")}


def shown_rows(part: SettingPart, model: ModelPart, column: Column) -> list[SuiteRow]:
    """The main rows that have a number on a column."""
    return [row for row in part.rows if row.main and (row.label, column.name) in model.cells]


def plot_trade(part: SettingPart, model: ModelPart, column: Column) -> Figure:
    """conf-ECE against accuracy with both intervals; the better methods lie to the lower right.

    Points are numbered as in the list beside them, since names would cover one another.
    """
    rows = shown_rows(part, model, column)
    figure = new_figure(6.4, max(3.4, 0.8 + 0.19 * len(rows)))
    axes = figure.subplots()
    draw_trade(axes, rows, model, column)
    axes.set_title(f"{part.name}, {model.model}. {column.title}, n = {column.n}", color=INK)
    return figure


def draw_trade(axes: Axes, rows: list[SuiteRow], model: ModelPart, column: Column) -> None:
    """The points, and the list of their names at the right."""
    marks = []
    for place, row in enumerate(rows, start=1):
        cell = model.cells[row.label, column.name]
        x, y = cell.spreads["accuracy"].estimate, cell.spreads["conf_ece"].estimate
        colour, marker = (MUTED, "o") if row.method == BASE else _KINDS[row.kind]
        axes.hlines(y.value, x.low, x.high, color=colour, linewidth=0.7, alpha=0.45)
        axes.vlines(x.value, y.low, y.high, color=colour, linewidth=0.7, alpha=0.45)
        line = axes.plot(
            [x.value], [y.value], marker=marker, markersize=5, color=colour, linestyle="", label=f"{place}  {row.label}"
        )[0]
        marks.append((x.value, y.value, str(place), colour))
        line.set_zorder(3)
    axes.set_xlim(*_window([mark[0] for mark in marks]))
    axes.set_ylim(*_window([mark[1] for mark in marks]))
    _number(axes, marks)
    axes.set_xlabel("accuracy")
    axes.set_ylabel("conf-ECE")
    axes.grid(True)
    axes.set_axisbelow(True)
    axes.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=7.5, handletextpad=0.3, borderaxespad=0
    )


def _window(values: list[float]) -> tuple[float, float]:
    """Room for the points; a wide interval of few seeds is cut at the edge rather than pressing them together."""
    room = max(0.3 * (max(values) - min(values)), 0.03)
    return max(0.0, min(values) - room), min(1.0, max(values) + room)


def _number(axes: Axes, marks: list[tuple[float, float, str, str]]) -> None:
    """Numbers beside their points; those of points at nearly one place go on one line."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    wide, tall = 0.05 * (right - left), 0.045 * (high - low)
    groups: list[list[tuple[float, float, str, str]]] = []
    for mark in marks:
        near = [g for g in groups if any(abs(m[0] - mark[0]) < wide and abs(m[1] - mark[1]) < tall for m in g)]
        groups = [g for g in groups if g not in near] + [[one for g in near for one in g] + [mark]]
    for group in groups:
        x, y = max(mark[0] for mark in group), max(mark[1] for mark in group)
        axes.annotate(
            ", ".join(mark[2] for mark in group),
            (x, y),
            textcoords="offset points",
            xytext=(4, 3),
            fontsize=7.5,
            color=INK,
        )


def plot_suite_intervals(part: SettingPart, model: ModelPart) -> Figure:
    """conf-ECE of the main rows on every column, on one scale."""
    labels = [row.label for row in part.rows if row.main]
    n = len(model.columns)
    figure = new_figure(1.6 + 2.1 * n, 0.9 + 0.22 * len(labels))
    grid = figure.subplots(1, n, squeeze=False, sharex=True)[0]
    for place, (axes, column) in enumerate(zip(grid, model.columns, strict=True)):
        draw_suite_intervals(axes, part, model, column, names=place == 0)
    return figure


def plot_suite_column(part: SettingPart, model: ModelPart, column: Column) -> Figure:
    """One column as its own figure."""
    figure = new_figure(3.4, 0.9 + 0.2 * sum(row.main for row in part.rows))
    draw_suite_intervals(figure.subplots(), part, model, column)
    return figure


def draw_suite_intervals(
    axes: Axes, part: SettingPart, model: ModelPart, column: Column, *, names: bool = True
) -> None:
    """A point and an interval a row, its seeds as ticks, and in grey what a calibrated model would score."""
    rows = [row for row in part.rows if row.main]
    for place, row in enumerate(rows):
        cell = model.cells.get((row.label, column.name))
        if cell is None:
            continue
        spread, band, colour = cell.spreads["conf_ece"], cell.null_band, _colour(row)
        axes.barh(place, band.high - band.low, left=band.low, height=0.56, color=MUTED, alpha=0.25, linewidth=0)
        axes.hlines(place, spread.estimate.low, spread.estimate.high, color=colour, linewidth=1.4)
        axes.plot([spread.estimate.value], [place], marker="o", markersize=4.5, color=colour)
        if len(cell.seeds) > 1:
            ticks = [place] * len(spread.values)
            axes.plot(spread.values, ticks, marker="|", markersize=7, color=colour, linestyle="", markeredgewidth=0.8)
    labels = [row.label for row in rows]
    axes.set_yticks(range(len(labels)), labels if names else [""] * len(labels))
    for tick, row in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_color(_colour(row))
        tick.set_fontsize(8)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlim(0, _widest(part, model) * 1.04)
    axes.grid(True, axis="x")
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_title(f"{column.title}, n = {column.n}", color=INK)
    axes.set_xlabel("conf-ECE")


def _colour(row: SuiteRow) -> str:
    return MUTED if row.method == BASE else _KINDS[row.kind][0]


def _widest(part: SettingPart, model: ModelPart) -> float:
    main = {row.label for row in part.rows if row.main}
    found = [
        max(cell.spreads["conf_ece"].estimate.high, cell.null_band.high)
        for (label, _), cell in model.cells.items()
        if label in main
    ]
    return max([value for value in found if value == value], default=1.0)
