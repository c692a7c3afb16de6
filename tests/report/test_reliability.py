"""The drawing shows the table and nothing else."""

import re

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from calmtune.metrics import reliability_table
from calmtune.report import save_reliability_pair
from calmtune.report.figures import report_style, to_svg
from calmtune.report.numbers import Estimate
from calmtune.report.reliability import describe, plot_reliability, plot_reliability_row

ECE = Estimate(0.05, 0.01, 0.2, 2)


@pytest.fixture
def sparse():
    return reliability_table([0.05, 0.95], [0, 1])


def test_an_empty_bin_has_no_bar_no_point_and_no_count(sparse):
    with report_style():
        upper, lower = plot_reliability(sparse, ECE, "base").axes
    assert [(round(bar.get_x(), 6), bar.get_height()) for bar in upper.patches] == [(0.0, 0.0), (0.9, 1.0)]
    assert [(round(bar.get_x(), 6), bar.get_height()) for bar in lower.patches] == [(0.0, 1), (0.9, 1)]
    diagonal, points = upper.lines
    assert points.get_xdata().tolist() == [0.05, 0.95]
    assert list(diagonal.get_xdata()) == [0, 1]


def test_no_bar_of_an_empty_bin_in_the_svg(sparse):
    with report_style():
        svg = to_svg(plot_reliability(sparse, ECE, "base"), name="x", description="d")
    assert sorted(re.findall(r'id="x-bar-([0-9.]+)"', svg)) == ["0.0", "0.9"]


def test_points_stand_at_the_mean_confidence_with_wilson_bands():
    table = reliability_table([0.91] * 10, [1] * 9 + [0])
    with report_style():
        upper, _ = plot_reliability(table, ECE, "base").axes
    points = upper.lines[1]
    np.testing.assert_allclose([points.get_xdata(), points.get_ydata()], [[0.91], [0.9]])
    segments = [line.get_segments()[0] for line in upper.collections if isinstance(line, LineCollection)]
    band = next(one for one in segments if one[1, 1] > 0.95)
    # Wilson interval of 9 in 10
    np.testing.assert_allclose(band, [[0.91, 0.595850], [0.91, 0.982124]], atol=1e-6)


def test_title_says_n_and_the_interval(sparse):
    assert describe(sparse, ECE) == "conf-ECE .050 [.010, .200], n = 2"
    with report_style():
        upper, _ = plot_reliability(sparse, ECE, "a $name$").axes
    assert [text.get_text() for text in upper.texts] == ["a $name$", describe(sparse, ECE)]


def test_nothing_to_draw_is_an_error():
    with pytest.raises(ValueError, match="at least one diagram"):
        plot_reliability_row([])


def test_a_pair_is_written_as_png(tmp_path, sparse):
    path = tmp_path / "new" / "pair.png"
    assert save_reliability_pair(path, ("before", sparse, ECE), ("after", sparse, ECE)) == path
    first = path.read_bytes()
    assert first.startswith(b"\x89PNG")
    save_reliability_pair(path, ("before", sparse, ECE), ("after", sparse, ECE))
    assert path.read_bytes() == first
