"""Proper scores against scikit-learn and closed forms; decompositions that add up."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax as scipy_softmax

from calmtune.metrics import (
    brier_decomposition,
    brier_score,
    classwise_brier_decomposition,
    negative_log_likelihood,
    softmax,
)


def draw(seed, n=200, k=4):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(k), n), rng.integers(0, k, n)


@pytest.mark.parametrize("seed", range(3))
def test_scores_against_scikit_learn(seed):
    oracle = pytest.importorskip("sklearn.metrics")
    probabilities, labels = draw(seed)
    classes = list(range(4))
    found = negative_log_likelihood(probabilities, labels)
    assert found == pytest.approx(oracle.log_loss(labels, probabilities, labels=classes), rel=1e-12)
    one_hot = np.eye(4)[labels]
    by_class = [oracle.brier_score_loss(one_hot[:, k], probabilities[:, k]) for k in classes]
    assert brier_score(probabilities, labels) == pytest.approx(sum(by_class), rel=1e-12)


def test_extremes():
    assert brier_score([[1.0, 0.0]], [0]) == 0.0
    assert brier_score([[1.0, 0.0]], [1]) == 2.0
    assert negative_log_likelihood([[1.0, 0.0]], [0]) == 0.0
    assert negative_log_likelihood([[1.0, 0.0], [0.5, 0.5]], [1, 0]) == math.inf
    floored = negative_log_likelihood([[1.0, 0.0], [0.5, 0.5]], [1, 0], floor=1e-12)
    assert floored == pytest.approx((-math.log(1e-12) + math.log(2)) / 2)
    with pytest.raises(ValueError, match="floor"):
        negative_log_likelihood([[1.0, 0.0]], [0], floor=1.0)


def test_softmax_is_in_double_precision_and_knows_absent_options():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(50, 5)) * 300
    np.testing.assert_allclose(softmax(logits), scipy_softmax(logits, axis=1), atol=1e-15)
    half = softmax(np.array([[6.5, 0.0], [6.8, 0.0], [7.5, 0.0]], dtype=np.float16))
    expected = [1 / (1 + math.exp(-z)) for z in (6.5, float(np.float16(6.8)), 7.5)]
    np.testing.assert_allclose(half[:, 0], expected, atol=1e-12)  # three values, none of them 1
    assert len(set(half[:, 0])) == 3
    np.testing.assert_array_equal(softmax([[0.0, 0.0, -np.inf], [0.0, -np.inf, -np.inf]]), [[0.5, 0.5, 0], [1, 0, 0]])
    np.testing.assert_allclose(softmax([[1000.0, 999.0]]), softmax([[1.0, 0.0]]), atol=1e-15)


@pytest.mark.parametrize("binning", ["width", "mass"])
@given(seed=st.integers(0, 10_000), n=st.integers(1, 60), n_bins=st.integers(1, 15))
def test_parts_add_up_to_the_score(binning, seed, n, n_bins):
    rng = np.random.default_rng(seed)
    confidence, correct = rng.random(n), rng.random(n) < 0.5
    parts = brier_decomposition(confidence, correct, n_bins, binning)
    assert parts.brier == pytest.approx(np.square(confidence - correct).mean(), abs=1e-12)
    assert parts.reliability >= 0.0
    assert -1e-15 <= parts.resolution <= parts.uncertainty + 1e-12
    probabilities, labels = draw(seed, n, 3)
    classwise = classwise_brier_decomposition(probabilities, labels, n_bins, binning)
    assert classwise.brier == pytest.approx(brier_score(probabilities, labels), abs=1e-12)


def test_parts_by_hand():
    # bins {0.8, 0.8} with half right and {0.3, 0.3} with none right; overall frequency 1/4
    parts = brier_decomposition([0.8, 0.8, 0.3, 0.3], [1, 0, 0, 0])
    assert parts.reliability == pytest.approx((0.3**2 + 0.3**2) / 2)
    assert parts.resolution == pytest.approx((0.25**2 + 0.25**2) / 2)
    assert parts.uncertainty == pytest.approx(3 / 16)
    assert parts.within_bin == pytest.approx(0.0, abs=1e-15)


def test_within_bin_part_by_hand():
    # one bin, mean 0.6, half right: spread 0.1 each way, the more confident one is right
    parts = brier_decomposition([0.7, 0.5], [1, 0], n_bins=1)
    assert parts.within_bin == pytest.approx(0.01 - 2 * 0.1 * 0.5)


def test_two_classes_give_twice_the_parts_of_one():
    rng = np.random.default_rng(1)
    p, labels = rng.random(100), rng.integers(0, 2, 100)
    one = brier_decomposition(p, labels == 0, 10, "mass")
    both = classwise_brier_decomposition(np.column_stack([p, 1 - p]), labels, 10, "mass")
    assert both.brier == pytest.approx(2 * one.brier, abs=1e-12)
    assert both.uncertainty == pytest.approx(2 * one.uncertainty, abs=1e-12)
