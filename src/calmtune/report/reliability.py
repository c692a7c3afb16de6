"""Reliability diagrams: accuracy against confidence, bin by bin, drawn from a table that was computed elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calmtune.metrics import ReliabilityTable
from calmtune.report.figures import ACCENT, INK, MUTED, WARM, new_figure, report_style, to_png
from calmtune.report.numbers import Estimate, compact, with_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def describe(table: ReliabilityTable, ece: Estimate, name: str = "conf-ECE") -> str:
    """The line under a diagram's title: number of items and the error of that name with its interval."""
    return f"{name} {compact(with_interval(ece))}, n = {int(np.sum(table.count))}"


def draw_reliability(
    upper: Axes, lower: Axes, table: ReliabilityTable, ece: Estimate, title: str, name: str = "conf-ECE"
) -> None:
    """Draw one diagram: bars of accuracy with Wilson bands at the bin's mean confidence, counts beneath.

    A bin without items has no bar, no point and no band: there is nothing known about it.
    """
    filled = np.asarray(table.count) > 0
    low, high = np.asarray(table.lower)[filled], np.asarray(table.upper)[filled]
    x, y = np.asarray(table.mean_confidence)[filled], np.asarray(table.accuracy)[filled]
    band_low, band_high = np.asarray(table.accuracy_low)[filled], np.asarray(table.accuracy_high)[filled]
    upper.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    bars = upper.bar(low, y, width=high - low, align="edge", color=ACCENT, alpha=0.22, linewidth=0, zorder=2)
    for bar in bars:
        bar.set_gid(f"bar-{round(bar.get_x(), 6)}")
    upper.hlines(y, low, high, color=ACCENT, linewidth=1.2, zorder=3)
    # the distance from the diagonal is what ECE averages
    upper.vlines(x, np.minimum(x, y), np.maximum(x, y), color=WARM, linewidth=2.2, alpha=0.55, zorder=3)
    upper.vlines(x, band_low, band_high, color=INK, linewidth=0.8, zorder=4, clip_on=False)
    upper.plot(x, y, linestyle="", marker="o", markersize=3.4, color=INK, zorder=5, clip_on=False)
    upper.set(xlim=(0, 1), ylim=(0, 1), xticks=np.linspace(0, 1, 6), yticks=np.linspace(0, 1, 6), ylabel="accuracy")
    upper.tick_params(labelbottom=False)
    # both lines start over the axis labels: beside the axes alone there is no room for an interval
    for text, up, style in (
        (title, 15, {"fontsize": 9, "fontweight": "bold"}),
        (describe(table, ece, name), 5, {"color": MUTED}),
    ):
        options: dict[str, Any] = {"fontsize": 7.5, **style}
        upper.annotate(text, (0, 1), (-24, up), xycoords="axes fraction", textcoords="offset points", **options)
    counts = np.asarray(table.count)[filled]
    lower.bar(low, counts, width=(high - low) * 0.92, align="edge", color=MUTED, alpha=0.55, linewidth=0)
    lower.set(xlim=(0, 1), xticks=np.linspace(0, 1, 6), xlabel="confidence", ylabel="items")
    lower.set_ylim(0, max(int(counts.max(initial=1)), 1) * 1.08)
    lower.locator_params(axis="y", nbins=2, integer=True)


def plot_reliability(table: ReliabilityTable, ece: Estimate, title: str, name: str = "conf-ECE") -> Figure:
    """One diagram as its own figure; call it inside :func:`calmtune.report.figures.report_style`.

    Args:
        table: what :func:`calmtune.metrics.reliability_table` returned.
        ece: the conf-ECE that belongs to it, with its interval.
        title: usually the row's name.
        name: of the error.
    """
    return plot_reliability_row([(title, table, ece)], name)


def plot_reliability_row(panels: Sequence[tuple[str, ReliabilityTable, Estimate]], name: str = "conf-ECE") -> Figure:
    """Diagrams side by side, each (title, table, conf-ECE).

    Raises:
        ValueError: no panels.
    """
    if not panels:
        raise ValueError("expected at least one diagram to draw, got none")
    figure = new_figure(2.5 * len(panels), 3.1)
    grid = figure.subplots(2, len(panels), squeeze=False, height_ratios=(4, 1), sharex="col")
    for column, (title, table, ece) in enumerate(panels):
        draw_reliability(grid[0, column], grid[1, column], table, ece, title, name)
        if column:
            grid[0, column].set_ylabel("")
            grid[1, column].set_ylabel("")
    figure.align_ylabels()
    return figure


def save_reliability_pair(
    path: Path,
    before: tuple[str, ReliabilityTable, Estimate],
    after: tuple[str, ReliabilityTable, Estimate],
    *,
    dpi: int = 160,
) -> Path:
    """Write a PNG with two diagrams, before on the left and after on the right.

    Args:
        path: where to write; folders are made.
        before: (title, table, conf-ECE with interval).
        after: the same for the other model.
        dpi: pixels per inch; the picture is 5 x 3.1 inches.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with report_style():
        path.write_bytes(to_png(plot_reliability_row([before, after]), dpi=dpi))
    return path
