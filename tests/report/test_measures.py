"""Every measure against the metrics library, and the rule for the best row."""

import numpy as np
import pytest

from calmtune import metrics
from calmtune.report.measures import MEASURES, best_row, difference, estimate
from calmtune.report.readings import Reading, read
from report.cases import predictions

OPTIONS = {"n_bins": 10, "seed": 3, "n_resamples": 40}


@pytest.fixture(scope="module")
def reading() -> Reading:
    return read(predictions("d", 60, scale=3.0), adjusted=False, temperature=1.0)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("conf_ece", lambda r: metrics.expected_calibration_error(r.confidence, r.correct, 10)),
        ("cw_ece", lambda r: metrics.classwise_ece(r.probabilities, r.labels, 10, r.n_options)),
        ("accuracy", lambda r: r.correct.mean()),
        ("nll", lambda r: -np.log(r.probabilities[np.arange(len(r)), r.labels]).mean()),
        ("confidence", lambda r: r.probabilities.max(axis=1).mean()),
        ("gap", lambda r: r.probabilities.max(axis=1).mean() - r.correct.mean()),
        ("smooth_ece", lambda r: metrics.smooth_ece(r.confidence, r.correct)),
        ("mce", lambda r: metrics.maximum_calibration_error(r.confidence, r.correct, 10)),
        ("brier", lambda r: metrics.brier_score(r.probabilities, r.labels)),
        ("auroc", lambda r: metrics.auroc(r.confidence, r.correct)),
    ],
)
def test_a_measure_is_the_metric(reading, key, expected):
    found = estimate(MEASURES[key], reading, **OPTIONS)
    assert found.value == pytest.approx(float(expected(reading)), abs=1e-12)
    assert found.n == 60
    assert found.low < found.high


def test_brier_parts_add_up(reading):
    parts = {key: estimate(MEASURES[f"brier_{key}"], reading, **OPTIONS).value for key in ("reliability", "resolution")}
    whole = metrics.classwise_brier_decomposition(reading.probabilities, reading.labels, 10)
    assert parts == {"reliability": whole.reliability, "resolution": whole.resolution}


def test_intervals_are_those_of_the_metrics_library(reading):
    ours = estimate(MEASURES["accuracy"], reading, **OPTIONS)
    theirs = metrics.bootstrap_interval(np.mean, reading.correct, seed=3, n_resamples=40)
    assert (ours.low, ours.high) == (theirs.low, theirs.high)


def test_auroc_of_a_model_that_is_always_right_is_not_defined():
    right = Reading(
        np.array([[0.9, 0.1], [0.8, 0.2]]), np.zeros(2, int), np.full(2, 2), np.zeros(2, int), np.ones(2), 0
    )
    assert np.isnan(estimate(MEASURES["auroc"], right, **OPTIONS).value)


def _row(correct: list[int], confidence: float) -> Reading:
    """Items with two options, chosen option 0, right where ``correct``."""
    n = len(correct)
    p = np.tile([confidence, 1 - confidence], (n, 1))
    return Reading(p, 1 - np.array(correct), np.full(n, 2), np.zeros(n, int), np.ones(n), 0)


def _best(rows: dict[str, Reading], key: str) -> str | None:
    measure = MEASURES[key]
    values = {label: estimate(measure, reading, **OPTIONS).value for label, reading in rows.items()}
    return best_row(measure, rows, values, **OPTIONS)


def test_best_needs_a_clear_difference_from_every_other_row():
    half = [1, 0] * 50
    good, fair, bad = _row(half, 0.55), _row(half, 0.75), _row(half, 0.95)
    # at equal answers the gap differs by exactly 0.2 on every resample
    assert _best({"bad": bad, "good": good, "fair": fair}, "conf_ece") == "good"
    # an equal rival: the difference is 0 on every resample, so neither is best
    assert _best({"bad": bad, "good": good, "twin": good}, "conf_ece") is None
    # accuracy is the same in all three
    assert _best({"bad": bad, "good": good, "fair": fair}, "accuracy") is None
    assert _best({"good": good}, "conf_ece") is None


def test_best_of_a_measure_where_higher_is_better():
    assert _best({"a": _row([1] * 90 + [0] * 10, 0.9), "b": _row([1] * 50 + [0] * 50, 0.9)}, "accuracy") == "a"


def test_a_lead_inside_the_noise_is_no_best():
    # b is right on one item more of a hundred, on other items than a
    a, b = [1] * 50 + [0] * 50, [0] * 49 + [1] * 51
    assert _best({"a": _row(a, 0.9), "b": _row(b, 0.9)}, "accuracy") is None


def test_a_difference_is_a_minus_b():
    half = [1, 0] * 50
    found = difference(MEASURES["conf_ece"], _row(half, 0.75), _row(half, 0.95), **OPTIONS)
    assert found.value == pytest.approx(-0.2)
    assert found.shown
    # exchanging single items mixes 0.75 with 0.95: no exchange of 100 items comes near -0.2
    assert found.p_value == pytest.approx(1 / 41)
