"""The trainer's log as panels."""

import math

import pytest

from calmtune.report.curves import curve_panels, plot_curves, plot_panel
from calmtune.report.figures import report_style
from report.cases import LOG


def test_panels_hold_what_the_log_holds():
    panels = {panel.title: panel for panel in curve_panels(LOG)}
    assert list(panels) == ["Training loss", "Held-out entropy", "Temperature τ"]
    assert panels["Training loss"].lines == {"loss": ((1.0, 2.0), (2.0, 1.5))}
    # the second record lacks tau
    assert panels["Temperature τ"].band == ((1.0,), (0.9,), (1.0,), (1.2,))


@pytest.mark.parametrize(
    "log", [[], [{"step": 1}], [{"loss": 1.0}], [{"step": 1, "loss": math.nan}], [{"step": 1, "loss": None}]]
)
def test_a_log_without_values_has_no_panels(log):
    assert curve_panels(log) == ()


def test_a_step_logged_again_after_a_resume_counts_as_logged_last():
    (panel,) = curve_panels([{"step": 2, "loss": 9.0}, {"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}])
    assert panel.lines["loss"] == ((1.0, 2.0), (2.0, 1.0))


def test_drawing_shows_the_values():
    entropy = curve_panels(LOG)[1]
    with report_style():
        axes = plot_panel(entropy).axes[0]
    assert axes.lines[0].get_ydata().tolist() == [0.5, 0.6]
    assert axes.get_title(loc="left") == "Held-out entropy (nats)"


def test_all_panels_in_one_figure():
    panels = curve_panels([*LOG, {"step": 3, "multiplier": 1.0}])
    with report_style():
        figure = plot_curves(panels)
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.axison] == [
        "Training loss (nats)",
        "Held-out entropy (nats)",
        "Multiplier λ",
        "Temperature τ",
    ]
    with pytest.raises(ValueError, match="at least one panel"):
        plot_curves([])
