"""Pictures of open questions: the curve over the number of samples, and risk against coverage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calmtune.report.figures import ACCENT, INK, MUTED, WARM, new_figure
from calmtune.report.openqa_records import OpenSummary
from calmtune.report.summary import Column

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = (MUTED, ACCENT, WARM, INK)


def draw_curve(axes: Axes, summary: OpenSummary, column: Column, estimator: str) -> None:
    """Semantic ECE against the number of samples, a line a method with its 95 % band."""
    for colour, row in zip(_COLOURS, _plain(summary), strict=False):
        points = summary.cells[row, column.name].curve[estimator]
        n = [point.n_samples for point in points]
        axes.fill_between(
            n, [p.ece.low for p in points], [p.ece.high for p in points], color=colour, alpha=0.14, linewidth=0
        )
        axes.plot(n, [p.ece.estimate for p in points], color=colour, linewidth=1.3, marker="o", markersize=3, label=row)
    axes.set(xlabel="samples a question", ylabel=f"{estimator.capitalize()}-ECE")
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="x", integer=True)
    axes.grid(True, axis="y")
    axes.set_title(f"{estimator.capitalize()}-ECE, {column.title}", pad=16)
    _legend(axes)


def draw_risk(axes: Axes, summary: OpenSummary, column: Column) -> None:
    """Share of wrong answers among the most confident questions."""
    for colour, row in zip(_COLOURS, _plain(summary), strict=False):
        cell = summary.cells[row, column.name]
        axes.plot(
            cell.coverage, cell.risk, color=colour, linewidth=1.3, marker="o", markersize=2.4, label=row, clip_on=False
        )
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="share of questions answered, most confident first", ylabel="share wrong")
    axes.grid(True, axis="y")
    axes.set_title(f"Risk and coverage, {column.title}", pad=16)
    _legend(axes)


def plot_open_column(summary: OpenSummary, column: Column) -> list[tuple[str, Figure]]:
    """(name, figure) of one column; call it inside :func:`calmtune.report.figures.report_style`."""
    found = []
    for name in ("risk", "sem1", "sem2"):
        figure = new_figure(3.6, 2.7)
        if name == "risk":
            draw_risk(figure.subplots(), summary, column)
        else:
            draw_curve(figure.subplots(), summary, column, name)
        found.append((name, figure))
    return found


def _plain(summary: OpenSummary) -> list[str]:
    return [row.label for row in summary.rows if not row.tempered]


def _legend(axes: Axes) -> None:
    # above the axes: inside it would lie on a curve sooner or later
    axes.legend(
        frameon=False, fontsize=7, labelcolor=INK, handlelength=1.2, ncols=4, columnspacing=1.2, loc="lower left",
        bbox_to_anchor=(0.0, 1.0), borderpad=0, borderaxespad=0.3,
    )  # fmt: skip
