"""Intervals against scipy, p-values against enumeration, and coverage by simulation."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from calmtune.metrics import (
    Interval,
    accuracy,
    auroc,
    bootstrap_interval,
    brier_score,
    expected_calibration_error,
    negative_log_likelihood,
    null_band,
    paired_difference,
)


def mean(values):
    return float(values.mean())


@pytest.mark.parametrize(("method", "scipy_method"), [("percentile", "percentile"), ("bca", "BCa")])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_interval_against_scipy(method, scipy_method, level):
    sample = np.random.default_rng(3).exponential(size=60)  # skewed, so that the corrections matter
    found = bootstrap_interval(mean, sample, seed=5, level=level, n_resamples=4000, method=method)
    oracle = stats.bootstrap(
        (sample,),
        lambda x, axis: x.mean(axis=axis),
        n_resamples=4000,
        confidence_level=level,
        method=scipy_method,
        rng=np.random.default_rng(5),
    ).confidence_interval
    width = oracle.high - oracle.low
    assert found.estimate == sample.mean()
    assert found.low == pytest.approx(oracle.low, abs=0.02 * width)
    assert found.high == pytest.approx(oracle.high, abs=0.02 * width)


def test_the_two_methods_differ_on_a_skewed_sample():
    sample = np.random.default_rng(3).exponential(size=60)
    percentile = bootstrap_interval(mean, sample, n_resamples=4000)
    bca = bootstrap_interval(mean, sample, n_resamples=4000, method="bca")
    assert bca.low > percentile.low
    assert bca.high > percentile.high + 0.01


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_coverage(method):
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(200):
        sample = rng.random(100) < 0.7
        interval = bootstrap_interval(accuracy, sample, seed=trial, n_resamples=200, method=method)
        hits += interval.low <= 0.7 <= interval.high
    assert 0.89 <= hits / 200 <= 0.99


def test_rows_stay_together_and_seeds_decide():
    rng = np.random.default_rng(0)
    probabilities, labels = rng.dirichlet(np.ones(3), 50), rng.integers(0, 3, 50)
    first = bootstrap_interval(brier_score, probabilities, labels, seed=1, n_resamples=100)
    assert first == bootstrap_interval(brier_score, probabilities, labels, seed=1, n_resamples=100)
    assert first != bootstrap_interval(brier_score, probabilities, labels, seed=2, n_resamples=100)
    x = np.arange(30.0)
    together = bootstrap_interval(lambda a, b: float(np.abs(a - b).max()), x, x, n_resamples=50)
    assert together == Interval(0.0, 0.0, 0.0)


def test_many_items_leave_groups_out():
    sample = np.random.default_rng(3).exponential(size=2500)
    interval = bootstrap_interval(mean, sample, n_resamples=300, method="bca")
    half = 1.96 * sample.std() / 50
    assert interval.low == pytest.approx(sample.mean() - half, abs=0.4 * half)
    assert interval.high == pytest.approx(sample.mean() + half, abs=0.4 * half)


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_constant_data_give_a_point(method):
    assert bootstrap_interval(accuracy, np.ones(20), method=method, n_resamples=50) == Interval(1.0, 1.0, 1.0)


def test_undefined_and_infinite_values_are_not_hidden():
    confidence, correct = np.array([0.9, 0.8, 0.7]), np.array([1, 1, 0])  # many resamples hold no wrong answer
    interval = bootstrap_interval(lambda c, y: auroc(c, y, undefined="nan"), confidence, correct)
    assert interval.estimate == 1.0
    assert math.isnan(interval.low)
    assert math.isnan(interval.high)
    with pytest.raises(ValueError, match="right and wrong"):
        bootstrap_interval(auroc, confidence, correct)
    certain = np.array([[1.0, 0.0]] * 3)
    interval = bootstrap_interval(negative_log_likelihood, certain, np.array([0, 0, 1]))
    assert interval == Interval(math.inf, 0.0, math.inf)


@pytest.mark.parametrize(
    ("arrays", "settings", "message"),
    [
        ((), {}, "at least one array"),
        (([],), {}, "at least one item"),
        ((1.0,), {}, "at least one item"),
        (([1.0, 2.0], [1.0]), {}, "array 1 has 1 items"),
        (([1.0],), {"level": 1.0}, "level"),
        (([1.0],), {"level": 95}, "level"),
        (([1.0],), {"n_resamples": 0}, "n_resamples"),
        (([1.0],), {"method": "basic"}, "method"),
        (([1.0],), {"method": "bca"}, "two items"),
    ],
)
def test_interval_faults(arrays, settings, message):
    with pytest.raises(ValueError, match=message):
        bootstrap_interval(lambda *a: 0.0, *arrays, **settings)


def test_permutation_p_value_against_enumeration():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=8) + 0.6, rng.normal(size=8)
    differences = [np.mean(signs * (a - b)) for signs in itertools.product([1.0, -1.0], repeat=8)]
    exact = np.mean(np.abs(differences) >= abs(np.mean(a - b)) - 1e-12)
    found = paired_difference(mean, (a,), (b,), n_resamples=5000)
    assert found.estimate == pytest.approx(np.mean(a - b))
    assert found.p_value == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 5000) + 1 / 5001)
    assert 0.02 < exact < 0.5


def test_paired_interval_is_the_interval_of_the_differences():
    rng = np.random.default_rng(2)
    a = rng.normal(size=100)
    b = a + rng.normal(size=100) * 0.01 + 0.05  # almost the same on each item, so pairing is what shows it
    found = paired_difference(mean, (a,), (b,), n_resamples=2000)
    half = 1.96 * (a - b).std() / 10
    assert found.low == pytest.approx((a - b).mean() - half, abs=0.2 * half)
    assert found.high == pytest.approx((a - b).mean() + half, abs=0.2 * half)
    assert found.high < 0.0
    assert found.p_value == pytest.approx(1 / 2001)


def test_paired_difference_swaps_whole_rows():
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 40)
    a, b = rng.dirichlet(np.ones(3), 40), rng.dirichlet(np.ones(3), 40)
    # half-swapped rows would not sum to 1 and the score would refuse them
    forward = paired_difference(brier_score, (a, labels), (b, labels), n_resamples=200)
    backward = paired_difference(brier_score, (b, labels), (a, labels), n_resamples=200)
    assert forward.estimate == -backward.estimate
    assert forward.p_value == backward.p_value
    assert forward.low < forward.estimate < forward.high


def test_false_alarms_are_as_rare_as_said():
    rng = np.random.default_rng(0)
    p_values = [
        paired_difference(mean, (rng.random(30),), (rng.random(30),), seed=i, n_resamples=99).p_value
        for i in range(200)
    ]
    assert np.mean(np.array(p_values) <= 0.1) == pytest.approx(0.1, abs=0.065)


def test_paired_faults():
    with pytest.raises(ValueError, match="same shapes"):
        paired_difference(mean, ([1.0, 2.0],), ([1.0, 2.0, 3.0],))
    with pytest.raises(ValueError, match="same shapes"):
        paired_difference(mean, ([1.0],), ([1.0], [1.0]))


def test_null_band_against_the_binomial():
    n, c = 50, 0.6
    k = np.arange(n + 1)
    error, weight = np.abs(k / n - c), stats.binom.pmf(k, n, c)
    band = null_band(np.full(n, c), n_resamples=4000, seed=1)
    spread = math.sqrt(weight @ error**2 - (weight @ error) ** 2)
    assert band.estimate == pytest.approx(weight @ error, abs=4 * spread / math.sqrt(4000))
    inside = weight[(error >= band.low - 1e-9) & (error <= band.high + 1e-9)].sum()
    assert inside == pytest.approx(0.96, abs=0.04)


def test_null_band_holds_a_calibrated_model_and_not_an_overconfident_one():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1.0, 300)
    band = null_band(confidence)
    assert band == null_band(confidence)
    inside = [
        band.low <= expected_calibration_error(confidence, rng.random(300) < confidence) <= band.high
        for _ in range(200)
    ]
    assert 0.89 <= np.mean(inside) <= 0.99
    assert expected_calibration_error(confidence, rng.random(300) < confidence - 0.2) > band.high
    with pytest.raises(ValueError, match=r"confidence\[1\]"):
        null_band([0.5, 1.5])
    assert null_band([0.0, 1.0], metric=lambda c, y: accuracy(y), n_resamples=5) == Interval(0.5, 0.5, 0.5)
