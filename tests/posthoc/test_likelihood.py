"""The likelihood under the fits: ragged rows, labels of probability zero."""

import math

import numpy as np
import pytest
from scipy.special import log_softmax as scipy_log_softmax

from calmtune.posthoc.likelihood import ZERO_PROBABILITY, log_softmax, mean_nll, prepare


def test_against_scipy():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(30, 4)) * 50, rng.integers(0, 4, 30)
    expected = scipy_log_softmax(logits, axis=1)
    items = prepare(logits, labels)
    np.testing.assert_allclose(log_softmax(items.logits, items.present), expected, atol=1e-12)
    assert mean_nll(items.logits, items) == pytest.approx(-expected[np.arange(30), labels].mean())


def test_absent_options_are_as_if_the_row_were_shorter():
    items = prepare([[1.0, 2.0, -np.inf], [0.5, 0.0, 1.0]], [0, 2])
    expected = -(scipy_log_softmax([1.0, 2.0])[0] + scipy_log_softmax([0.5, 0.0, 1.0])[2]) / 2
    assert items.n_clamped == 0
    assert mean_nll(items.logits, items) == pytest.approx(expected)


def test_a_label_of_probability_zero_is_raised_and_counted():
    given = np.array([[0.0, -np.inf], [math.log(0.7), math.log(0.3)]])
    items = prepare(given, [1, 0])
    assert items.n_clamped == 1
    assert items.logits[0, 1] == pytest.approx(math.log(ZERO_PROBABILITY))
    assert mean_nll(items.logits, items) == pytest.approx((math.log1p(1e-12) - math.log(1e-12) - math.log(0.7)) / 2)
    assert np.isneginf(given[0, 1])  # the caller's array is left alone
