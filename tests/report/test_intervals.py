"""The overview picture."""

import pytest
from matplotlib.collections import LineCollection

from calmtune.report import summarise
from calmtune.report.figures import report_style
from calmtune.report.intervals import plot_all_intervals, plot_intervals
from report.cases import comparison


@pytest.fixture(scope="module")
def summary():
    return summarise(comparison(n=20), n_resamples=10)


def test_points_bands_and_intervals_are_those_of_the_summary(summary):
    column = summary.columns[1]
    with report_style():
        axes = plot_intervals(summary, column).axes[0]
    cells = [summary.cells[row.label, column.name] for row in summary.rows]
    assert [line.get_xdata()[0] for line in axes.lines] == [cell.estimates["conf_ece"].value for cell in cells]
    assert [bar.get_x() for bar in axes.patches] == [cell.null_band.low for cell in cells]
    ends = [line.get_segments()[0][:, 0].tolist() for line in axes.collections if isinstance(line, LineCollection)]
    assert ends == [[cell.estimates["conf_ece"].low, cell.estimates["conf_ece"].high] for cell in cells]


def test_all_columns_have_one_scale(summary):
    with report_style():
        figure = plot_all_intervals(summary)
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [row.label for row in summary.rows]
