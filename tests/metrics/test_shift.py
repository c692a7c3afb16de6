"""The two-sample tests: statistics against scipy, p-values by enumeration, their size under no shift, and power."""

import itertools

import numpy as np
import pytest
from scipy.stats import energy_distance, ks_2samp

from calmtune.metrics.shift import two_sample_test


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("levels", [4, 10**6])
def test_the_statistics_are_scipy_s(seed, levels):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, levels, 37) / levels, rng.integers(0, levels, 23) / levels
    assert two_sample_test(a, b, n_permutations=1).statistic == pytest.approx(ks_2samp(a, b).statistic)
    energy = two_sample_test(a, b, "energy", n_permutations=1).statistic
    assert energy == pytest.approx(energy_distance(a, b) ** 2 / 2)


def test_the_p_value_comes_near_the_one_over_all_relabellings():
    a, b = np.array([0.1, 0.2, 0.3, 0.5]), np.array([0.3, 0.6, 0.7, 0.9])
    pooled = np.concatenate([a, b])
    observed = ks_2samp(a, b).statistic
    every = [
        ks_2samp(pooled[list(part)], np.delete(pooled, part)).statistic for part in itertools.combinations(range(8), 4)
    ]
    exact = np.mean(np.array(every) >= observed - 1e-12)
    assert two_sample_test(a, b, n_permutations=20_000).p_value == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize("statistic", ["ks", "energy"])
def test_without_a_shift_it_warns_at_the_stated_rate_and_with_one_it_does(statistic):
    rng = np.random.default_rng(7)
    options = {"statistic": statistic, "n_permutations": 99}
    # ten distinct confidences, so that ties are the rule
    alike = [two_sample_test(np.round(rng.random(60), 1), np.round(rng.random(40), 1), **options) for _ in range(400)]
    size = np.mean([found.p_value <= 0.1 for found in alike])
    assert 0.05 < size < 0.15
    moved = [two_sample_test(rng.random(60), rng.random(60) ** 2, **options) for _ in range(50)]
    assert np.mean([found.p_value <= 0.1 for found in moved]) > 0.8


def test_it_is_repeatable_and_refuses_what_is_no_confidence():
    a, b = np.linspace(0, 1, 30), np.linspace(0.1, 1, 25)
    assert two_sample_test(a, b, seed=3) == two_sample_test(a, b, seed=3)
    with pytest.raises(ValueError, match=r"new\[0\] is 2"):
        two_sample_test(a, [2.0])
    with pytest.raises(ValueError, match="statistic: expected 'ks' or 'energy'"):
        two_sample_test(a, b, "mmd")
