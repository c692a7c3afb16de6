"""The statistics of a column against the metrics one by one."""

import itertools

import numpy as np
import pytest

from calmtune.metrics import expected_calibration_error, null_band
from calmtune.report.measures import MEASURES, arrays_of
from calmtune.report.readings import read
from calmtune.report.suite_column import ALL_MEASURES, RESAMPLED, ColumnStatistics, paired_keys, sums_of
from report.cases import predictions
from report.suite_cases import given


def reading(scale, n=40):
    return read(predictions("d", n, scale=scale), adjusted=False)


@pytest.mark.parametrize("measure", ALL_MEASURES)
def test_every_value_is_that_of_the_measure(measure):
    one = reading(3.0)
    statistics = ColumnStatistics({("a", 0): one}, n_bins=7, n_resamples=5, seed=0)
    expected = MEASURES[measure].function(*arrays_of(MEASURES[measure], one), 7)
    assert statistics.values[measure]["a", 0] == pytest.approx(expected, abs=1e-13)


def test_sums_of_an_impossible_label_are_infinite():
    one = read(predictions("d", 5, scale=1e6), adjusted=False)
    assert np.isinf(sums_of("nll", one, 10).value())


def test_all_rows_are_resampled_on_the_same_items():
    one = reading(3.0)
    statistics = ColumnStatistics({("a", 0): one, ("a", 1): one, ("b", 0): one}, n_bins=10, n_resamples=50, seed=0)
    pair = ((("a", 0), ("a", 1)), (("b", 0), ("b", 0)))
    statistics.resample({measure: [pair] for measure in RESAMPLED})
    for measure in RESAMPLED:
        found = statistics.difference(measure, pair)
        assert (found.value, found.low, found.high, found.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_exchanging_items_against_every_exchange():
    p_a, p_b, labels = [0.9, 0.3, 0.65], [0.7, 0.6, 0.8], [0, 1, 1]
    one, other, base = (read(given("d", p, labels), adjusted=False) for p in (p_a, p_b, [0.55, 0.85, 0.6]))
    keys = ("a", 0), ("a", 1), ("base", None)
    statistics = ColumnStatistics(dict(zip(keys, (one, other, base), strict=True)), n_bins=10, n_resamples=800, seed=0)
    pair = paired_keys({0: keys[0], 1: keys[1]}, {None: keys[2]})
    statistics.resample({"conf_ece": [pair]})

    def ece(first, second, swap):
        confidence = np.where(swap, second.confidence, first.confidence)
        return expected_calibration_error(confidence, np.where(swap, second.correct, first.correct))

    exchanges = [
        np.mean([ece(side, base, swap) - ece(base, side, swap) for side in (one, other)])
        for swap in map(np.array, itertools.product([False, True], repeat=3))
    ]
    drawn = statistics.swapped["conf_ece"][pair]
    assert {round(value, 9) for value in drawn} == {round(value, 9) for value in exchanges}
    share = np.mean(np.abs(exchanges) >= abs(exchanges[0]) - 1e-12)
    assert statistics.difference("conf_ece", pair).p_value == pytest.approx(share, abs=0.06)


def test_resampling_in_blocks_changes_nothing_but_memory(monkeypatch):
    found = []
    for block in (4_000_000, 200):
        monkeypatch.setattr("calmtune.report.suite_column._BLOCK", block)
        statistics = ColumnStatistics({("a", 0): reading(3.0)}, n_bins=10, n_resamples=23, seed=0)
        statistics.resample({})
        found.append(statistics.resampled["cw_ece"]["a", 0])
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-12)


def test_the_band_of_a_calibrated_model_is_that_of_the_metric():
    one = reading(3.0, n=300)
    statistics = ColumnStatistics({("a", 0): one}, n_bins=10, n_resamples=10000, seed=0)
    found, other = statistics.null_band((("a", 0),)), null_band(one.confidence, n_resamples=2000)
    assert (found.value, found.low, found.high) == pytest.approx((other.estimate, other.low, other.high), abs=0.004)


def test_seeds_that_both_have():
    a, b = {0: ("a", 0), 1: ("a", 1)}, {1: ("b", 1), 2: ("b", 2)}
    assert paired_keys(a, b) == ((("a", 1),), (("b", 1),))
    base = {None: ("base", None)}
    assert paired_keys(base, a) == ((("base", None), ("base", None)), (("a", 0), ("a", 1)))
    assert paired_keys(base, base) == ((("base", None),), (("base", None),))
