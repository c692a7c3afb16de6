"""Vector scaling: finite differences, closed form, recovery, and a general minimiser as oracle."""

import math

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize
from scipy.special import log_softmax

from calmtune.metrics import negative_log_likelihood, softmax
from calmtune.posthoc import TemperatureScaler, VectorScaler
from calmtune.posthoc.likelihood import prepare
from calmtune.posthoc.vector import penalised_nll


def draw(seed, n, scale, shift):
    """Logits whose labels follow softmax(scale * log softmax(logits) + shift)."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, len(scale))) * 2
    p = softmax(log_softmax(logits, axis=1) * scale + shift)
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


def test_two_options_solved_by_hand():
    # three distinct p = (p1, 1 - p1) and three unknowns, so each log-odds w1 ln p1 - w2 ln(1 - p1) + b1 - b2 can be
    # that of its labels. With w = (2, 1), b1 = b2: p1 = 1/2 gives 1/2 (one label of 3), p1 = 1/4 gives
    # (1/16) / (3/4) = 1/12 (one of 13), p1 = 3/4 gives (9/16) / (1/4) = 9/4 (9 of 13)
    p1 = np.array([1 / 2] * 3 + [1 / 4] * 13 + [3 / 4] * 13)
    labels = [0, 1, 1, 0, *[1] * 12, *[0] * 9, *[1] * 4]
    logits = np.log(np.stack([p1, 1 - p1], axis=1))
    scaler = VectorScaler(l2=0.0).fit(logits, labels)
    np.testing.assert_allclose(scaler.scale, [2.0, 1.0], atol=1e-5)
    assert scaler.shift[0] - scaler.shift[1] == pytest.approx(0.0, abs=1e-5)
    assert (scaler.identified, scaler.converged, scaler.at_bound) == (True, True, False)
    entropy = -sum(m * math.log(m / n) for n, k in ((3, 1), (13, 1), (13, 9)) for m in (k, n - k)) / 29
    assert scaler.nll_after == pytest.approx(entropy, abs=1e-9)


def test_a_constant_added_to_an_item_changes_nothing():
    logits, labels = draw(4, 200, np.array([0.5, 1.0, 0.7]), np.array([0.3, 0.0, -0.3]))
    moved = logits + np.random.default_rng(1).normal(size=(200, 1)) * 30
    one, two = VectorScaler().fit(logits, labels), VectorScaler().fit(moved, labels)
    np.testing.assert_allclose(one.scale, two.scale, atol=1e-6)
    np.testing.assert_allclose(one.shift, two.shift, atol=1e-6)
    np.testing.assert_allclose(one.transform(logits), one.transform(moved), atol=1e-9)


@pytest.mark.parametrize("factor", [0.2, 1.0, 8.0])
def test_a_heavy_penalty_is_temperature_scaling(factor):
    logits, labels = draw(5, 300, np.array([0.5, 0.5, 0.5]) / factor, np.zeros(3))
    temperature = TemperatureScaler().fit(logits, labels).temperature
    scaler = VectorScaler(l2=1e9).fit(logits, labels)
    np.testing.assert_allclose(softmax(scaler.transform(logits)), softmax(logits / temperature), atol=1e-6)


def test_the_default_penalty_counts_as_ten_items():
    logits, labels = draw(6, 250, np.array([0.5, 1.0]), np.array([0.3, -0.3]))
    free, same = VectorScaler().fit(logits, labels), VectorScaler(l2=10 / 250).fit(logits, labels)
    np.testing.assert_array_equal(free.scale, same.scale)
    np.testing.assert_array_equal(free.shift, same.shift)


def test_without_signal_the_fit_is_the_log_ratio_of_labels():
    scaler = VectorScaler(l2=0.0).fit([[0.0, 0.0, 0.0]] * 6, [0, 0, 0, 1, 1, 2])
    assert scaler.converged
    first, second, third = scaler.transform([[0.0, 0.0, 0.0]])[0]
    assert first - third == pytest.approx(math.log(3), abs=1e-6)
    assert second - third == pytest.approx(math.log(2), abs=1e-6)


def test_recovers_scale_and_shift():
    scale, shift = np.array([0.4, 0.6, 0.5]), np.array([1.0, -0.5, -0.5])
    logits, labels = draw(0, 40_000, scale, shift)
    scaler = VectorScaler(l2=0.0).fit(logits, labels)
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
    # in units of the temperature, towards which the penalty pulls
    temperature = TemperatureScaler().fit(logits, labels).temperature
    items = prepare(log_softmax(logits, axis=1) / temperature, labels)
    found, gradient = penalised_nll(np.concatenate([scaler.scale * temperature, scaler.shift]), items, l2)
    oracle = minimize(lambda x: penalised_nll(x, items, l2)[0], np.zeros(6), method="Powell", options={"ftol": 1e-12})
    assert found <= oracle.fun + 1e-9
    assert np.abs(gradient).max() < 1e-5


def test_separable_data_are_flagged_also_when_penalised():
    logits, labels = np.array([[1.0, 0.0], [0.0, 1.0]] * 10), [0, 1] * 10
    free = VectorScaler(l2=0.0).fit(logits, labels)
    assert np.isfinite(free.nll_after)
    assert free.at_bound or free.nll_after < 1e-6
    assert not free.identified
    # the penalty has an optimum, but it is not the data that determine it
    tied = VectorScaler(l2=0.01).fit(logits, labels)
    assert (tied.converged, tied.at_bound, tied.identified) == (True, False, False)


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
    with pytest.raises(ValueError, match="at most the 2 columns that were fitted, got 3"):
        scaler.transform([[1.0, 0.0, 0.0]])
    with pytest.raises(ValueError, match="dtype bool"):
        VectorScaler().fit([[1.0, 0.0]], [True])


@pytest.mark.parametrize("scale", [-1.0, 0.0])
def test_absent_options_stay_absent_under_a_scale_that_is_not_positive(scale):
    scaler = VectorScaler(l2=0.1).fit([[1.0, 0.0], [0.0, 1.0]], [0, 0])
    scaler.scale = np.array([1.0, scale])
    assert np.isneginf(scaler.transform([[1.0, -np.inf]])[0, 1])


def test_items_with_fewer_options_than_were_fitted_are_read():
    logits, labels = draw(7, 100, np.array([0.5, 1.0, 0.7]), np.zeros(3))
    scaler = VectorScaler().fit(logits, labels)
    padded = np.concatenate([logits[:, :2], np.full((100, 1), -np.inf)], axis=1)
    np.testing.assert_array_equal(scaler.transform(logits[:, :2]), scaler.transform(padded)[:, :2])
