"""Ranking measures against scikit-learn, against all orders of tied items, and by hand."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calmtune.metrics import aurc, auroc, risk_at_coverage

ITEMS = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=7)


def risks_over_all_orders(confidence, correct):
    """Mean error rate at k = 1 .. N over every order that sorts by confidence, by enumeration."""
    orders = [
        order
        for order in itertools.permutations(range(len(confidence)))
        if all(confidence[i] >= confidence[j] for i, j in itertools.pairwise(order))
    ]
    curves = [np.cumsum([not correct[i] for i in order]) / np.arange(1, len(order) + 1) for order in orders]
    return np.mean(curves, axis=0)


@given(st.integers(0, 10_000), st.integers(2, 200), st.sampled_from([1, 3, 10, 10**6]))
def test_auroc_against_scikit_learn(seed, n, levels):
    oracle = pytest.importorskip("sklearn.metrics").roc_auc_score
    rng = np.random.default_rng(seed)
    confidence = rng.integers(0, levels + 1, n) / levels
    correct = rng.random(n) < 0.5
    correct[:2] = [True, False]
    assert auroc(confidence, correct) == pytest.approx(oracle(correct, confidence), abs=1e-12)


def test_auroc_by_hand_and_where_it_is_undefined():
    assert auroc([0.9, 0.1], [1, 0]) == 1.0
    assert auroc([0.1, 0.9], [1, 0]) == 0.0
    assert auroc([0.5] * 6, [1, 0, 1, 0, 0, 0]) == 0.5
    for outcome in (0, 1):
        with pytest.raises(ValueError, match="right and wrong"):
            auroc([0.5, 0.6], [outcome] * 2)
        assert math.isnan(auroc([0.5, 0.6], [outcome] * 2, undefined="nan"))
    with pytest.raises(ValueError, match="undefined"):
        auroc([0.5, 0.6], [1, 0], undefined="zero")


@given(ITEMS)
def test_risk_is_the_mean_over_orders_of_ties(items):
    confidence, correct = [k / 4 for k, _ in items], [y for _, y in items]
    expected = risks_over_all_orders(confidence, correct)
    assert aurc(confidence, correct) == pytest.approx(expected.mean(), abs=1e-12)
    for k in range(1, len(items) + 1):
        found = risk_at_coverage(confidence, correct, k / len(items))
        assert found == pytest.approx(expected[k - 1], abs=1e-12)


def test_risk_by_hand():
    assert aurc([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 0]) == pytest.approx((0 + 0 + 1 / 3 + 1 / 2) / 4)
    assert aurc([0.5] * 4, [1, 0, 0, 0]) == pytest.approx(0.75)
    assert risk_at_coverage([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 0], 1.0) == 0.5
    assert risk_at_coverage([0.9, 0.8, 0.7, 0.6], [0, 1, 1, 1], 1e-9) == 1.0  # at least one answer
    assert risk_at_coverage([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 0], 0.51) == pytest.approx(1 / 3)  # rounds up


@pytest.mark.parametrize("n", [10, 30, 100, 1000])
def test_coverage_in_tenths_counts_exactly(n):
    confidence = np.linspace(1, 0, n)
    for tenth in range(1, 11):
        kept = tenth * n // 10
        correct = np.arange(n) < kept  # the first wrong answer comes right after the share
        assert risk_at_coverage(confidence, correct, tenth * 0.1 if tenth < 10 else 1.0) == 0.0


@pytest.mark.parametrize("coverage", [0.0, -0.1, 1.1, math.nan])
def test_coverage_faults(coverage):
    with pytest.raises(ValueError, match="coverage"):
        risk_at_coverage([0.5], [1], coverage)
