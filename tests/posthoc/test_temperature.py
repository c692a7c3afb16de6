"""Temperature: closed forms, a numerical minimiser as oracle, and what data can not decide."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from calmtune.metrics import negative_log_likelihood, softmax
from calmtune.posthoc import TemperatureScaler


def nll(logits, labels, temperature):
    return -log_softmax(np.asarray(logits) / temperature, axis=1)[np.arange(len(labels)), labels].mean()


def draw(seed, n=300, k=4, temperature=2.5):
    """Logits whose labels follow softmax(logits / temperature)."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, k)) * 3
    p = softmax(logits / temperature)
    return logits, np.array([rng.choice(k, p=row) for row in p])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_two_options_closed_form(dtype):
    logits = np.array([[2.0, 0.0]] * 4, dtype=dtype)
    scaler = TemperatureScaler().fit(logits, [0, 0, 0, 1])
    assert scaler.temperature == pytest.approx(2 / math.log(3), rel=1e-12)
    assert (scaler.at_bound, scaler.identified, scaler.converged) == (False, True, True)
    shifted = TemperatureScaler().fit(log_softmax(logits.astype(np.float64), axis=1), [0, 0, 0, 1])
    assert shifted.temperature == pytest.approx(2 / math.log(3), rel=1e-12)


def test_far_optimum_is_reached_and_reached_again():
    logits, labels = [[60.0, 0.0]] * 10, [0] * 9 + [1]
    scaler = TemperatureScaler().fit(logits, labels)
    assert scaler.temperature == pytest.approx(60 / math.log(9), rel=1e-10)
    assert scaler.nll_after == pytest.approx(0.325083, abs=5e-7)
    assert scaler.nll_before == pytest.approx(6.0, abs=1e-9)
    first = scaler.temperature
    draw_logits, draw_labels = draw(0)
    scaler.fit(draw_logits, draw_labels)  # a fit in between leaves nothing behind
    assert scaler.fit(logits, labels).temperature == first


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from([0.3, 1.0, 4.0]), st.sampled_from([2, 4, 26]))
def test_against_a_numerical_minimiser(seed, temperature, k):
    logits, labels = draw(seed, n=80, k=k, temperature=temperature)
    scaler = TemperatureScaler().fit(logits, labels)
    oracle = minimize_scalar(
        lambda u: nll(logits, labels, math.exp(u)), bounds=(math.log(0.01), math.log(100)), method="bounded"
    )
    assert scaler.nll_after <= oracle.fun + 1e-12
    assert scaler.nll_after == pytest.approx(nll(logits, labels, scaler.temperature), abs=1e-12)
    if not scaler.at_bound:
        assert math.log(scaler.temperature) == pytest.approx(oracle.x, abs=1e-3)
        for factor in (0.999, 1.001):
            assert nll(logits, labels, scaler.temperature * factor) >= scaler.nll_after


def test_recovers_the_temperature_that_made_the_labels():
    logits, labels = draw(1, n=20_000)
    scaler = TemperatureScaler().fit(logits, labels)
    assert scaler.temperature == pytest.approx(2.5, rel=0.03)
    scaled = negative_log_likelihood(softmax(scaler.transform(logits)), labels)
    assert scaled == pytest.approx(scaler.nll_after, abs=1e-12)
    assert scaled < scaler.nll_before


def test_scale_of_the_logits_goes_into_the_temperature():
    logits, labels = draw(2)
    base = TemperatureScaler().fit(logits, labels).temperature
    assert TemperatureScaler().fit(10 * logits, labels).temperature == pytest.approx(10 * base, rel=1e-9)
    assert TemperatureScaler().fit(logits + 1e4, labels).temperature == pytest.approx(base, rel=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_bounds_are_flagged(scale):
    logits = scale * np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 1.0]])
    right = TemperatureScaler().fit(logits, [0, 1, 0])
    assert (right.temperature, right.at_bound, right.identified) == (1e-2, True, False)
    wrong = TemperatureScaler().fit(logits, [1, 0, 1])
    assert (wrong.temperature, wrong.at_bound, wrong.identified) == (1e2, True, False)
    assert math.isfinite(wrong.nll_after)


def test_equal_logits_say_nothing():
    scaler = TemperatureScaler().fit([[1.0, 1.0], [2.0, 2.0]], [0, 1])
    assert (scaler.temperature, scaler.at_bound, scaler.identified) == (1.0, False, False)


@pytest.mark.parametrize("labels", [[0, 0], [1, 0]])
def test_probabilities_of_zero_give_finite_numbers(labels):
    with np.errstate(divide="ignore"):
        log_probabilities = np.log(np.array([[1.0, 0.0], [0.7, 0.3]]))
    with np.errstate(all="raise", under="ignore"):
        scaler = TemperatureScaler().fit(log_probabilities, labels)
    assert scaler.n_clamped == labels[0]
    for value in (scaler.temperature, scaler.nll_before, scaler.nll_after):
        assert math.isfinite(value)
    assert not np.isnan(scaler.transform(log_probabilities)).any()
    assert not np.isnan(softmax(scaler.transform(log_probabilities))).any()


def test_ragged_rows_count_their_own_options_only():
    logits, labels = draw(3, n=200, k=3)
    padded = np.concatenate([logits, np.full((200, 2), -np.inf)], axis=1)
    scaler, plain = TemperatureScaler().fit(padded, labels), TemperatureScaler().fit(logits, labels)
    assert scaler.temperature == pytest.approx(plain.temperature, rel=1e-12)
    moved = scaler.transform(padded)
    assert np.isneginf(moved[:, 3:]).all()
    np.testing.assert_allclose(moved[:, :3], logits / plain.temperature)


def test_answers_do_not_change():
    logits, labels = draw(4, n=2000)
    logits = logits.astype(np.float32)
    scaler = TemperatureScaler().fit(logits, labels)
    moved = scaler.transform(logits)
    assert moved.dtype == np.float64
    np.testing.assert_array_equal(moved.argmax(axis=1), logits.argmax(axis=1))


def test_faults():
    with pytest.raises(ValueError, match="not fitted"):
        TemperatureScaler().transform([[1.0, 0.0]])
    with pytest.raises(ValueError, match=r"logits\[1, 0\] is nan"):
        TemperatureScaler().fit([[1.0, 0.0], [np.nan, 0.0]], [0, 1])
    with pytest.raises(ValueError, match="dtype bool"):
        TemperatureScaler().fit([[1.0, 0.0]], [True])
    with pytest.raises(ValueError, match=r"labels\[0\] is 2"):
        TemperatureScaler().fit([[1.0, 0.0]], [2])
    with pytest.raises(ValueError, match="empty"):
        TemperatureScaler().fit(np.zeros((0, 2)), np.zeros(0, int))
