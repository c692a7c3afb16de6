"""Binned errors: closed forms by hand, a loop over exact fractions, and torchmetrics where its rule agrees."""

import itertools
import math
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from calmtune.metrics import (
    accuracy,
    classwise_ece,
    debiased_ece,
    expected_calibration_error,
    maximum_calibration_error,
    overconfidence_gap,
    reliability_table,
    softmax,
)


def ece_by_fractions(counts, m, correct, n_bins):
    """ECE of confidences k/m in exact arithmetic, [lo, hi) with the last bin closed."""
    total = Fraction(0)
    for b in range(n_bins):
        inside = [i for i, k in enumerate(counts) if min(k * n_bins // m, n_bins - 1) == b]
        total += abs(sum((Fraction(int(correct[i])) - Fraction(counts[i], m) for i in inside), Fraction(0)))
    return float(total / len(counts))


@pytest.mark.parametrize(
    ("confidence", "correct", "n_bins", "expected"),
    [
        ([0.92, 1.0, 1.0], [1, 1, 0], 10, 0.92 / 3),  # 1.0 belongs to the last bin, not to one of its own
        ([0.0, 0.45], [1, 0], 5, 0.725),  # 0.0 belongs to the first
        ([1.0] * 4, [1] * 4, 10, 0.0),  # the mean of the bin, not its centre
        ([0.91] * 10, [1] * 9 + [0], 10, 0.01),
        ([0.05, 0.95], [0, 1], 10, 0.05),
        ([1.0, 0.0], [1, 0], 10, 0.0),
        ([0.7], [1], 1, 0.3),
        ([1, 0], [0, 0], 10, 0.5),  # whole numbers are saturated confidences
    ],
)
def test_hand_cases(confidence, correct, n_bins, expected):
    assert expected_calibration_error(confidence, correct, n_bins) == pytest.approx(expected, abs=1e-12)
    as_bool = np.array(correct, dtype=bool)
    assert expected_calibration_error(confidence, as_bool, n_bins) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n_bins", [1, 2, 3, 5, 10, 100])
def test_equal_mass_with_all_confidences_equal(n_bins):
    value = expected_calibration_error([0.6] * 8, [1, 1, 1, 0, 0, 0, 0, 0], n_bins, "mass")
    assert value == pytest.approx(0.225, abs=1e-12)


def test_equal_mass_ignores_the_order_of_ties():
    for correct in set(itertools.permutations([1, 1, 0, 0])):
        assert expected_calibration_error([0.5] * 4, correct, 2, "mass") == 0.0


def test_equal_mass_keeps_the_last_bin_and_allows_more_bins_than_items():
    value = expected_calibration_error([0.1, 0.2, 0.3, 0.4, 0.9], [0, 0, 0, 1, 0], 2, "mass")
    assert value == pytest.approx(0.18, abs=1e-12)
    value = expected_calibration_error([0.2, 0.5, 0.9], [0, 1, 1], 10, "mass")
    assert value == pytest.approx(0.8 / 3, abs=1e-12)


def test_logits_go_through_softmax_first():
    probabilities = softmax([[0.2, 0.93], [0.64, 0.1]])
    correct = probabilities.argmax(axis=1) == [1, 0]
    value = expected_calibration_error(probabilities.max(axis=1), correct)
    assert value == pytest.approx(0.346691, abs=5e-7)


@given(st.integers(1, 100), st.sampled_from([5, 10, 15, 20]), st.sampled_from([np.float32, np.float64]), st.data())
def test_counted_confidences_against_exact_fractions(m, n_bins, dtype, data):
    items = data.draw(st.lists(st.tuples(st.integers(0, m), st.booleans()), min_size=1, max_size=50))
    counts, correct = [k for k, _ in items], [y for _, y in items]
    confidence = np.array([dtype(k) / dtype(m) for k in counts], dtype=dtype)
    found = expected_calibration_error(confidence, correct, n_bins)
    assert found == pytest.approx(ece_by_fractions(counts, m, correct, n_bins), abs=1e-7)


def test_the_three_tenths_share_a_bin():
    mixed = [0.3, 0.1 + 0.2, float(np.float32(0.3)), 3 * 0.1, 1 - 0.7, float(np.float32(1) - np.float32(0.7))]
    correct = [1, 0, 1, 0, 1, 0]
    assert expected_calibration_error(mixed, correct) == pytest.approx(0.2, abs=1e-7)
    seven = [0.7, float(np.float32(0.7)), 0.1 * 7, 1 - 0.3]  # float32(0.7) lies below the edge
    assert expected_calibration_error(seven, [1, 0, 1, 0]) == pytest.approx(0.2, abs=1e-7)
    assert expected_calibration_error(np.float32(seven), [1, 0, 1, 0]) == pytest.approx(0.2, abs=1e-7)


@pytest.mark.parametrize("n_bins", [5, 10, 15])
@pytest.mark.parametrize("norm", ["l1", "max"])
def test_against_torchmetrics_away_from_edges(n_bins, norm):
    torch = pytest.importorskip("torch")
    oracle = pytest.importorskip("torchmetrics.functional.classification").multiclass_calibration_error
    rng = np.random.default_rng(n_bins)
    probabilities = rng.dirichlet(np.ones(4) * 0.7, 500)
    labels = rng.integers(0, 4, 500)
    expected = oracle(torch.tensor(probabilities), torch.tensor(labels), num_classes=4, n_bins=n_bins, norm=norm)
    ours = {"l1": expected_calibration_error, "max": maximum_calibration_error}[norm]
    found = ours(probabilities.max(axis=1), probabilities.argmax(axis=1) == labels, n_bins)
    assert found == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize("binning", ["width", "mass"])
@given(seed=st.integers(0, 10_000), n=st.integers(1, 80), n_bins=st.integers(1, 20))
def test_table_and_error_say_the_same(binning, seed, n, n_bins):
    rng = np.random.default_rng(seed)
    confidence, correct = rng.integers(0, 21, n) / 20, rng.random(n) < 0.5
    table = reliability_table(confidence, correct, n_bins, binning)
    assert table.count.sum() == n
    full = table.count > 0
    weighted = (table.count[full] * np.abs(table.gap[full])).sum() / n
    ece = expected_calibration_error(confidence, correct, n_bins, binning)
    assert weighted == pytest.approx(ece, abs=1e-12)
    assert ece >= abs(overconfidence_gap(confidence, correct)) - 1e-12
    assert maximum_calibration_error(confidence, correct, n_bins, binning) >= ece - 1e-12
    assert maximum_calibration_error(confidence, correct, n_bins, binning) == np.abs(table.gap[full]).max()
    assert table.count[full] @ table.accuracy[full] / n == pytest.approx(accuracy(correct), abs=1e-12)


def test_table_invents_nothing_in_empty_bins():
    table = reliability_table([0.05, 0.95], [0, 1])
    assert len(table) == 10
    assert table.count.tolist() == [1] + [0] * 8 + [1]
    for column in (table.mean_confidence, table.accuracy, table.accuracy_low, table.accuracy_high, table.gap):
        assert np.isnan(column[1:9]).all()
        assert np.isfinite(column[[0, 9]]).all()
    np.testing.assert_allclose(table.lower, np.arange(10) / 10)
    np.testing.assert_allclose(table.upper, np.arange(1, 11) / 10)


def test_wilson_interval_against_scipy():
    confidence = np.repeat([0.15, 0.55, 0.95], [1, 20, 50])
    correct = np.concatenate([[0], np.arange(20) < 7, np.ones(50)])
    table = reliability_table(confidence, correct)
    for row, (k, n) in {1: (0, 1), 5: (7, 20), 9: (50, 50)}.items():
        interval = binomtest(k, n).proportion_ci(0.95, method="wilson")
        assert table.accuracy_low[row] == pytest.approx(interval.low, abs=1e-12)
        assert table.accuracy_high[row] == pytest.approx(interval.high, abs=1e-12)


def test_classwise_counts_every_class_over_all_items():
    probabilities, labels = np.array([[0.75, 0.14, 0.11], [0.15, 0.68, 0.17]]), np.array([0, 1])
    assert classwise_ece(probabilities, labels) == pytest.approx(0.19, abs=1e-12)
    confidence = expected_calibration_error(probabilities.max(axis=1), [1, 1])
    assert confidence == pytest.approx(0.285, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_classwise_is_the_mean_of_one_error_a_class(seed):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(5), 60)
    probabilities[:5] = np.eye(5)  # exact zeros and ones
    labels = rng.integers(0, 4, 60)  # class 4 never occurs
    errors = [expected_calibration_error(probabilities[:, k], labels == k) for k in range(5)]
    assert classwise_ece(probabilities, labels) == pytest.approx(np.mean(errors), abs=1e-12)


def test_classwise_with_ragged_options():
    probabilities = np.array([[0.75, 0.25, 0.0], [0.2, 0.3, 0.5], [0.05, 0.95, 0.0]])
    labels, options = np.array([0, 2, 1]), np.array([2, 3, 2])
    k0 = (0.25 + 0.2 + 0.05) / 3
    k1 = (0.25 + 0.3 + 0.05) / 3
    k2 = 0.5 / 1  # one item has a third option
    assert classwise_ece(probabilities, labels, n_options=options) == pytest.approx((k0 + k1 + k2) / 3, abs=1e-12)
    assert classwise_ece(probabilities, labels) == pytest.approx((k0 + k1 + 0.5 / 3) / 3, abs=1e-12)
    two = classwise_ece(probabilities[[0, 2]], labels[[0, 2]], n_options=options[[0, 2]])
    assert two == pytest.approx((0.15 + 0.15) / 2, abs=1e-12)  # no item has a third option: K is 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([2, 4], r"n_options\[1\] is 4"),
        ([0, 2], r"n_options\[0\] is 0"),
        ([2, 2], r"n_options\[1\] is 2: its label"),
        ([1, 3], r"n_options\[0\] is 1: an option"),
        ([2.0, 3.0], "integers"),
        ([2], "shape"),
    ],
)
def test_ragged_faults(options, message):
    with pytest.raises(ValueError, match=message):
        classwise_ece([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]], [0, 2], n_options=options)


@pytest.mark.parametrize(("n", "p"), [(2, 0.5), (5, 0.4), (30, 0.9), (3, 0.0)])
def test_debiased_error_has_no_bias(n, p):
    confidence = np.full(n, 0.7)
    mean = plain = 0.0
    for k in range(n + 1):
        correct = np.arange(n) < k
        mean += binom.pmf(k, n, p) * debiased_ece(confidence, correct, squared=True)
        plain += binom.pmf(k, n, p) * expected_calibration_error(confidence, correct) ** 2
    assert mean == pytest.approx((0.7 - p) ** 2, abs=1e-12)
    assert plain == pytest.approx((0.7 - p) ** 2 + p * (1 - p) / n, abs=1e-12)  # what it takes away


def test_debiased_error_weighs_bins_and_leaves_single_items_out():
    confidence, correct = [0.25] * 3 + [0.85] * 2 + [0.55], [1, 1, 1, 0, 0, 1]
    expected = (3 * 0.75**2 + 2 * 0.85**2) / 5
    assert debiased_ece(confidence, correct, squared=True) == pytest.approx(expected, abs=1e-12)
    assert debiased_ece(confidence, correct) == pytest.approx(math.sqrt(expected), abs=1e-12)
    assert debiased_ece([0.5, 0.5], [0, 1]) == 0.0
    assert debiased_ece([0.5, 0.5], [0, 1], squared=True) == pytest.approx(-0.25)
    with pytest.raises(ValueError, match="single item"):
        debiased_ece([0.1, 0.9], [0, 1])


def test_accuracy_and_gap():
    assert accuracy([1, 0, 1, 1]) == 0.75
    assert overconfidence_gap([0.9, 0.9, 0.9, 0.9], [1, 0, 1, 1]) == pytest.approx(0.15, abs=1e-12)
    assert overconfidence_gap([0.1], [1]) == pytest.approx(-0.9)


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_a_million_rows_take_well_under_a_second_or_two(binning):
    rng = np.random.default_rng(0)
    confidence = rng.random(1_000_000)
    correct = rng.random(1_000_000) < confidence
    started = time.perf_counter()
    assert expected_calibration_error(confidence, correct, binning=binning) < 0.003
    assert time.perf_counter() - started < 5.0
