"""Smooth ECE against closed forms and against the definition summed over mirror images."""

import itertools

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from calmtune.metrics import overconfidence_gap, smooth_ece, smooth_ece_at


def by_definition(confidence, correct, sigma, points=20_001):
    """Integral of |1/N sum_i K(t, c_i)(y_i - c_i)|, K the Gaussian summed over the mirror images of c_i at 0 and 1."""
    t = np.linspace(0.0, 1.0, points)
    residual = np.zeros(points)
    for c, y in zip(confidence, correct, strict=True):
        for turn in range(-8, 9):
            residual += (norm.pdf(t, 2 * turn + c, sigma) + norm.pdf(t, 2 * turn - c, sigma)) * (y - c)
    return np.trapezoid(np.abs(residual), t) / len(confidence)


@pytest.mark.parametrize("c", [0.0, 1e-6, 0.3, 0.5, 0.77777, 0.9999, 1.0])
@pytest.mark.parametrize("right", [0, 3, 7, 10])
def test_one_confidence_gives_the_plain_gap(c, right):
    correct = np.arange(10) < right
    assert smooth_ece(np.full(10, c), correct) == pytest.approx(abs(right / 10 - c), abs=1e-9)
    for sigma in (1e-3, 0.1, 3.0):
        assert smooth_ece_at(np.full(10, c), correct, sigma) == pytest.approx(abs(right / 10 - c), abs=1e-9)


def test_two_opposite_errors_have_a_closed_form():
    # half the items at 0.4, half at 0.6, all half right: residual +0.05 and -0.05, far from the ends
    confidence, correct = np.repeat([0.4, 0.6], 10), np.tile([0, 1], 10)

    def at(sigma):
        return 2 * 0.05 * (2 * norm.cdf(0.1 / sigma) - 1)

    for sigma in (0.005, 0.02, 0.07):
        assert smooth_ece_at(confidence, correct, sigma) == pytest.approx(at(sigma), abs=1e-7)
    expected = brentq(lambda sigma: at(sigma) - sigma, 1e-3, 1.0)
    assert smooth_ece(confidence, correct) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sigma", [0.005, 0.03, 0.2, 1.0])
def test_against_the_definition(seed, sigma):
    rng = np.random.default_rng(seed)
    confidence = np.concatenate([rng.random(10), [0.0, 1.0, 1.0]])
    correct = rng.random(13) < 0.5
    expected = by_definition(confidence, correct, sigma)
    assert smooth_ece_at(confidence, correct, sigma) == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize("seed", range(4))
def test_the_value_is_the_fixed_point_of_the_definition(seed):
    rng = np.random.default_rng(seed)
    confidence, correct = rng.random(25), rng.random(25) < 0.6
    value = smooth_ece(confidence, correct)
    assert by_definition(confidence, correct, value) == pytest.approx(value, abs=2e-5)


def test_smoothing_only_shrinks_and_never_below_the_overall_gap():
    rng = np.random.default_rng(5)
    confidence, correct = rng.random(200), rng.random(200) < 0.4
    values = [smooth_ece_at(confidence, correct, sigma) for sigma in (1e-4, 1e-3, 0.01, 0.05, 0.2, 1.0, 10.0)]
    assert all(a >= b - 1e-12 for a, b in itertools.pairwise(values))
    assert values[-1] == pytest.approx(abs(overconfidence_gap(confidence, correct)), abs=1e-9)


def test_no_error_and_the_largest_error():
    assert smooth_ece([0.0, 1.0, 1.0], [0, 1, 1]) == 0.0
    assert smooth_ece([0.5, 0.5], [0, 1]) == pytest.approx(0.0, abs=1e-9)
    assert smooth_ece([1.0, 1.0], [0, 0]) == pytest.approx(1.0, abs=1e-9)
    assert smooth_ece([0.0], [1]) == pytest.approx(1.0, abs=1e-9)
    # errors at both ends cancel only as far as smoothing reaches
    assert 0.4 < smooth_ece([0.0, 1.0], [1, 0]) < 1.0


def test_calibrated_confidence_tends_to_zero():
    rng = np.random.default_rng(0)
    for n, bound in ((1_000, 0.06), (1_000_000, 0.005)):
        confidence = rng.random(n)
        assert smooth_ece(confidence, rng.random(n) < confidence) < bound


def test_known_distortion():
    # true frequency c^2 at confidence c: the residual has one sign, so the value is the integral of c - c^2, 1/6
    rng = np.random.default_rng(1)
    confidence = rng.random(1_000_000)
    assert smooth_ece(confidence, rng.random(1_000_000) < confidence**2) == pytest.approx(1 / 6, abs=3e-3)


def test_bandwidth_faults():
    for sigma in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="sigma"):
            smooth_ece_at([0.5], [1], sigma)
