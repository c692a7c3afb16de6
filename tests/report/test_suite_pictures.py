"""The pictures hold the numbers of the summary."""

import pytest

from calmtune.report.figures import report_style
from calmtune.report.suite import summarise_suite
from calmtune.report.suite_pictures import plot_suite_column, plot_suite_intervals, plot_trade, shown_rows
from report.suite_cases import FITS, random_suite


@pytest.fixture(scope="module")
def part():
    return summarise_suite(random_suite(), title="t", n_bins=10, n_resamples=20, **FITS).settings[0]


def test_every_main_row_is_a_point_with_both_intervals(part):
    model = part.models[0]
    column = model.column("OOD")
    with report_style():
        axes = plot_trade(part, model, column).axes[0]
    cells = [model.cells[row.label, column.name] for row in shown_rows(part, model, column)]
    points = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines]
    assert points == [
        (cell.spreads["accuracy"].estimate.value, cell.spreads["conf_ece"].estimate.value) for cell in cells
    ]
    ends = [one.get_segments()[0].tolist() for one in axes.collections]
    for place, cell in enumerate(cells):
        x, y = cell.spreads["accuracy"].estimate, cell.spreads["conf_ece"].estimate
        assert ends[2 * place] == [[x.low, y.value], [x.high, y.value]]
        assert ends[2 * place + 1] == [[x.value, y.low], [x.value, y.high]]
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == [f"{place}  {row.label}" for place, row in enumerate(shown_rows(part, model, column), start=1)]
    numbers = sorted(int(n) for text in axes.texts for n in text.get_text().split(", "))
    assert numbers == list(range(1, len(names) + 1))


def test_points_are_within_the_picture(part):
    model = part.models[0]
    with report_style():
        axes = plot_trade(part, model, model.column("OOD")).axes[0]
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    assert all(left < line.get_xdata()[0] < right and low < line.get_ydata()[0] < high for line in axes.lines)


def test_intervals_seeds_and_bands(part):
    model = part.models[0]
    with report_style():
        axes = plot_suite_column(part, model, model.column("OOD")).axes[0]
    cells = [model.cells[row.label, "OOD (all)"] for row in part.rows if row.main]
    assert [bar.get_x() for bar in axes.patches] == [cell.null_band.low for cell in cells]
    drawn = [tuple(line.get_xdata()) for line in axes.lines]
    expected = []
    for cell in cells:
        expected.append((cell.spreads["conf_ece"].estimate.value,))
        if len(cell.seeds) > 1:
            expected.append(cell.spreads["conf_ece"].values)
    assert drawn == expected


def test_all_columns_have_one_scale(part):
    with report_style():
        figure = plot_suite_intervals(part, part.models[0])
    assert len(figure.axes) == 4
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
