"""Vector scaling: finite differences, closed form, recovery, and a general minimiser as oracle."""

import math

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize

from calmtune.metrics import negative_log_likelihood, softmax
from calmtune.posthoc import TemperatureScaler, VectorScaler
from calmtune.posthoc.likelihood import prepare
from calmtune.posthoc.vector import penalised_nll


def draw(seed, n, scale, shift):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, len(scale))) * 2
    p = softmax(logits * scale + shift)
    return logits, (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)


@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_gradient_against_finite_differences(l2):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20, 3))
    logits[::4, 2] = -np.inf
    items = prepare(logits, rng.integers(0, 2, 20))
    for _ in range(5):
        error = check_grad(
            lambda x: penalised_nll(x, items, l2)[0], lambda x: penalised_nll(x, items, l2)[1], rng.normal(size=6)
        )
        assert error < 1e-6


def test_without_signal_the_shift_is_the_log_ratio_of_labels():
    scaler = VectorScaler().fit([[0.0, 0.0, 0.0]] * 6, [0, 0, 0, 1, 1, 2])
    assert scaler.converged
    assert scaler.shift[0] - scaler.shift[2] == pytest.approx(math.log(3), abs=1e-6)
    assert scaler.shift[1] - scaler.shift[2] == pytest.approx(math.log(2), abs=1e-6)


def test_recovers_scale_and_shift():
    scale, shift = np.array([0.4, 0.6, 0.5]), np.array([1.0, -0.5, -0.5])
    logits, labels = draw(0, 40_000, scale, shift)
    scaler = VectorScaler().fit(logits, labels)
    np.testing.assert_allclose(scaler.scale, scale, atol=0.03)
    np.testing.assert_allclose(scaler.shift - scaler.shift.mean(), shift, atol=0.05)
    assert (scaler.converged, scaler.at_bound) == (True, False)
    scaled = negative_log_likelihood(softmax(scaler.transform(logits)), labels)
    assert scaled == pytest.approx(scaler.nll_after, abs=1e-12)
    assert scaler.nll_after < TemperatureScaler().fit(logits, labels).nll_after < scaler.nll_before


@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_optimum_against_a_general_minimiser(l2):
    logits, labels = draw(1, 200, np.array([0.5, 1.0, 0.7]), np.array([0.3, 0.0, -0.3]))
    scaler = VectorScaler(l2=l2).fit(logits, labels)
    items = prepare(logits, labels)
    found, gradient = penalised_nll(np.concatenate([scaler.scale, scaler.shift]), items, l2)
    oracle = minimize(lambda x: penalised_nll(x, items, l2)[0], np.zeros(6), method="Powell", options={"ftol": 1e-12})
    assert found <= oracle.fun + 1e-9
    assert np.abs(gradient).max() < 1e-5


def test_a_heavy_penalty_changes_nothing():
    logits, labels = draw(2, 100, np.array([0.2, 0.2]), np.array([1.0, -1.0]))
    scaler = VectorScaler(l2=1e9).fit(logits, labels)
    np.testing.assert_allclose(scaler.transform(logits), logits, atol=1e-6)


def test_separable_data_are_flagged_unless_penalised():
    logits, labels = np.array([[1.0, 0.0], [0.0, 1.0]] * 10), [0, 1] * 10
    free = VectorScaler().fit(logits, labels)
    assert np.isfinite(free.nll_after)
    assert free.at_bound or free.nll_after < 1e-6
    tied = VectorScaler(l2=0.01).fit(logits, labels)
    assert (tied.converged, tied.at_bound) == (True, False)


def test_repeated_fits_are_the_same():
    logits, labels = draw(3, 100, np.array([0.5, 0.5]), np.zeros(2))
    scaler = VectorScaler().fit(logits, labels)
    first = scaler.scale.copy()
    np.testing.assert_array_equal(scaler.fit(logits, labels).scale, first)


def test_absent_options_stay_absent():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(50, 3))
    logits[:25, 2] = -np.inf
    labels = rng.integers(0, 2, 50)
    scaler = VectorScaler(l2=0.1).fit(logits, labels)
    moved = scaler.transform(logits)
    assert np.isneginf(moved[:25, 2]).all()
    assert not np.isnan(moved).any()
    clamped = VectorScaler(l2=0.1).fit(logits, np.concatenate([[2], labels[1:]]))
    assert clamped.n_clamped == 1
    assert np.isfinite(clamped.nll_after)


def test_faults():
    with pytest.raises(ValueError, match="l2"):
        VectorScaler(l2=-1.0)
    with pytest.raises(ValueError, match="not fitted"):
        VectorScaler().transform([[1.0, 0.0]])
    scaler = VectorScaler(l2=0.1).fit([[1.0, 0.0], [0.0, 1.0]], [0, 0])
    with pytest.raises(ValueError, match="2 columns"):
        scaler.transform([[1.0, 0.0, 0.0]])
    with pytest.raises(ValueError, match="dtype bool"):
        VectorScaler().fit([[1.0, 0.0]], [True])


@pytest.mark.parametrize("scale", [-1.0, 0.0])
def test_absent_options_stay_absent_under_a_scale_that_is_not_positive(scale):
    scaler = VectorScaler(l2=0.1).fit([[1.0, 0.0], [0.0, 1.0]], [0, 0])
    scaler.scale = np.array([1.0, scale])
    assert np.isneginf(scaler.transform([[1.0, -np.inf]])[0, 1])
