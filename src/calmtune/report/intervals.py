"""conf-ECE of every method with its interval, a column a test domain: the whole result at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calmtune.report.figures import ACCENT, INK, MUTED, new_figure
from calmtune.report.summary import Column, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_intervals(axes: Axes, summary: Summary, column: Column, *, names: bool = True) -> None:
    """Draw one column: a point and an interval a method, and in grey what a perfectly calibrated model would score."""
    labels = [row.label for row in summary.rows]
    for place, label in enumerate(labels):
        cell = summary.cells[label, column.name]
        found, band = cell.estimates["conf_ece"], cell.null_band
        chosen = label == summary.choice.row
        axes.barh(place, band.high - band.low, left=band.low, height=0.56, color=MUTED, alpha=0.25, linewidth=0)
        axes.hlines(place, found.low, found.high, color=ACCENT if chosen else INK, linewidth=1.4)
        axes.plot([found.value], [place], marker="o", markersize=4.5, color=ACCENT if chosen else INK)
    axes.set_yticks(range(len(labels)), labels if names else [""] * len(labels))
    for tick, label in zip(axes.get_yticklabels(), labels, strict=True):
        tick.set_color(ACCENT if label == summary.choice.row else INK)
        tick.set_fontsize(8)
    axes.invert_yaxis()
    axes.set_xlim(0, _widest(summary) * 1.04)
    axes.margins(y=0.04)
    axes.grid(True, axis="x")
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_title(f"{column.title}, n = {column.n}", color=INK)
    axes.set_xlabel("conf-ECE")


def plot_intervals(summary: Summary, column: Column) -> Figure:
    """One column as its own figure."""
    figure = new_figure(3.1, 0.8 + 0.2 * len(summary.rows))
    draw_intervals(figure.subplots(), summary, column)
    return figure


def plot_all_intervals(summary: Summary) -> Figure:
    """All columns side by side on one scale."""
    n = len(summary.columns)
    figure = new_figure(1.4 + 2.2 * n, 0.9 + 0.22 * len(summary.rows))
    grid = figure.subplots(1, n, squeeze=False, sharex=True)[0]
    for place, (axes, column) in enumerate(zip(grid, summary.columns, strict=True)):
        draw_intervals(axes, summary, column, names=place == 0)
    return figure


def _widest(summary: Summary) -> float:
    """The largest number drawn, so that all columns have one scale."""
    cells = summary.cells.values()
    return max(
        max(cell.estimates["conf_ece"].high, cell.estimates["conf_ece"].value, cell.null_band.high, 0.01)
        for cell in cells
    )
