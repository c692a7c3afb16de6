"""Intervals over items and seeds: by hand, against the interval over items alone, and by simulation."""

import numpy as np
import pytest
from scipy import stats

from calmtune.metrics import bootstrap_interval, expected_calibration_error
from calmtune.metrics.resampled import confidence_sums, draw_counts, mean_sums
from calmtune.metrics.seeds import seed_difference, seed_interval, seed_spread


def test_one_seed_is_the_interval_over_items():
    draws = np.random.default_rng(0).normal(size=(1, 1000))
    found = seed_interval([0.0], draws)
    assert found.low == np.quantile(draws, 0.025, method="lower")
    assert found.high == np.quantile(draws, 0.975, method="higher")


def test_items_that_do_not_matter_leave_the_interval_of_student():
    # every resample gives the same, so that only the seeds are left: 0.2 +- t_2 s / sqrt(3)
    values = np.array([0.1, 0.2, 0.3])
    found = seed_interval(values, np.repeat(values[:, None], 4000, axis=1))
    low, high = stats.t.interval(0.95, 2, loc=0.2, scale=0.1 / np.sqrt(3))
    assert found.estimate == pytest.approx(0.2)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.01)


def test_equal_seeds_add_nothing():
    draws = np.random.default_rng(1).random((1, 200))
    one, three = seed_interval([0.5], draws), seed_interval([0.5] * 3, np.repeat(draws, 3, axis=0))
    assert three == pytest.approx(one)


def test_bca_of_one_seed_is_that_of_the_bootstrap():
    rng = np.random.default_rng(2)
    confidence = rng.beta(8, 2, 300)
    correct = rng.random(300) < confidence  # calibrated, so that resampling pushes the error up
    sums = confidence_sums(confidence, correct)
    draws = sums.of_counts(draw_counts(300, 4000, rng))
    found = seed_interval([sums.value()], [draws], [sums.left_out()])
    other = bootstrap_interval(expected_calibration_error, confidence, correct, n_resamples=4000, method="bca")
    plain = seed_interval([sums.value()], [draws])
    assert found.low == pytest.approx(other.low, abs=0.004)
    assert found.high == pytest.approx(other.high, abs=0.004)
    assert plain.high - found.high > 0.01, "the correction must matter here"


def coverage(n_seeds, item_sd, seed_sd, noise_sd, *, trials, paired=False):
    """How often the interval holds the true mean 0."""
    rng = np.random.default_rng(3)
    hits = 0
    for trial in range(trials):
        items, seeds = rng.normal(0, item_sd, 60), rng.normal(0, seed_sd, (2, n_seeds, 1))
        x = [items + one + rng.normal(0, noise_sd, (n_seeds, 60)) for one in seeds]
        counts = draw_counts(60, 200, rng)
        values, draws = (
            [[mean_sums(row).value() for row in side] for side in x],
            [np.array([mean_sums(row).of_counts(counts) for row in side]) for side in x],
        )
        if paired:
            found = seed_difference(*values, *draws, [0.0], seed=trial)
        else:
            found = seed_interval(values[0], draws[0], seed=trial)
        hits += found.low <= 0 <= found.high
    return hits / trials


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("n_seeds", [2, 3, 5])
def test_the_interval_covers_at_its_rate_when_seeds_differ(n_seeds, paired):
    # 300 trials: a rate of .95 has a standard error of .013; drawing 2 seeds with replacement would give .7
    assert 0.91 <= coverage(n_seeds, 1.0, 0.4, 0.3, trials=300, paired=paired) <= 0.99


def test_the_interval_covers_when_only_items_differ():
    assert 0.91 <= coverage(3, 1.0, 0.0, 0.0, trials=300) <= 0.99


def test_difference_by_hand():
    # seeds differ by -.1 and .3: mean .1, spread .2828; the same on every resample
    a, b = [0.4, 0.6], [0.5, 0.3]
    found = seed_difference(
        a, b, np.repeat(np.array(a)[:, None], 2000, axis=1), np.repeat(np.array(b)[:, None], 2000, axis=1),
        [0.1, -0.1, 0.05, 0.2],
    )  # fmt: skip
    half = stats.t.ppf(0.975, 1) * 0.4 / np.sqrt(2) / np.sqrt(2)
    assert found.estimate == pytest.approx(0.1)
    assert found.high == pytest.approx(0.1 + half, rel=0.05)
    assert found.low == pytest.approx(0.1 - half, rel=0.05)
    assert found.p_value == pytest.approx(4 / 5)


def test_a_difference_is_paired_seed_by_seed():
    # both move together from seed to seed, so their difference is sure although each is not
    a, b = np.array([0.1, 0.5, 0.9]), np.array([0.0, 0.4, 0.8])
    draws = [np.repeat(one[:, None], 500, axis=1) for one in (a, b)]
    found = seed_difference(a, b, *draws, [0.0])
    assert (found.low, found.high) == pytest.approx((0.1, 0.1))


def test_spread_and_faults():
    assert seed_spread([1.0, 3.0]) == pytest.approx(np.sqrt(2))
    assert np.isnan(seed_spread([1.0]))
    assert np.isnan(seed_difference([np.inf], [1.0], [[np.inf]], [[1.0]], [np.nan]).p_value)
    with pytest.raises(ValueError, match=r"\[S\] values and \[S, R\] resampled"):
        seed_interval([0.1, 0.2], [[0.1]])
    with pytest.raises(ValueError, match="same seeds and resamples"):
        seed_difference([0.1], [0.1, 0.2], [[0.1]], [[0.1], [0.2]], [0.0])
