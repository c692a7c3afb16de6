"""Every item in exactly one bin; equal confidences in the same one, however they were computed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from calmtune.metrics.bins import assign_bins, edge_tolerance

UNIT = st.floats(0.0, 1.0)


def ways_to_compute(k: int, m: int, dtype: type) -> list[float]:
    """k/m by division, by a product with 1/m, by adding 1/m up, as a complement, and through the other precisions."""
    one = dtype(1)
    step = one / dtype(m)
    added, taken = dtype(0), one
    for _ in range(k):
        added = dtype(added + step)
    for _ in range(m - k):
        taken = dtype(taken - step)
    values = [dtype(k) / dtype(m), step * dtype(k), added, one - dtype(m - k) / dtype(m), taken]
    if dtype is np.float64:
        values += [np.float64(np.float32(k / m)), np.mean([1.0] * k + [0.0] * (m - k))]
    return [min(max(float(v), 0.0), 1.0) for v in values]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_counted_confidences_lie_in_the_bin_of_the_exact_fraction(dtype):
    values, fractions = [], []
    for m in range(1, 101):
        for k in range(m + 1):
            computed = ways_to_compute(k, m, dtype)
            values += computed
            fractions += [(k, m)] * len(computed)
    confidence = np.array(values)
    for n_bins in (5, 10, 15, 20):
        found = assign_bins(confidence, edge_tolerance(np.dtype(dtype)), n_bins, "width").item
        exact = np.array([min(k * n_bins // m, n_bins - 1) for k, m in fractions])
        wrong = np.flatnonzero(found != exact)
        assert len(wrong) == 0, (n_bins, fractions[wrong[0]], values[wrong[0]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_mass_bins_keep_every_way_of_computing_a_fraction_together(dtype):
    for m in (3, 7, 10, 49, 100):
        values, groups = [], []
        for k in range(m + 1):
            computed = ways_to_compute(k, m, dtype)
            values += computed
            groups += [k] * len(computed)
        for n_bins in (2, 5, 10, 15):
            found = assign_bins(np.array(values), edge_tolerance(np.dtype(dtype)), n_bins, "mass").item
            assert all(len(set(found[np.array(groups) == k])) == 1 for k in range(m + 1)), (m, n_bins)


def test_half_precision_fractions():
    for m in range(1, 21):
        for k in range(m + 1):
            value = np.array([np.float16(k / m)], dtype=np.float64)
            found = assign_bins(value, edge_tolerance(np.dtype(np.float16)), 10, "width").item[0]
            assert found == min(k * 10 // m, 9), (k, m)


def test_values_clearly_below_an_edge_stay_below():
    below = np.arange(1, 10) / 10 - 2e-6
    assert assign_bins(below, edge_tolerance(np.dtype("float32")), 10, "width").item.tolist() == list(range(9))
    below = np.arange(1, 10) / 10 - 2e-7
    assert assign_bins(below, edge_tolerance(np.dtype("float64")), 10, "width").item.tolist() == list(range(9))


@given(arrays(np.float64, st.integers(1, 60), elements=UNIT), st.integers(1, 30), st.sampled_from(["width", "mass"]))
def test_each_item_has_one_bin_whose_edges_hold_it(confidence, n_bins, binning):
    bins = assign_bins(confidence, 2.0**-23, n_bins, binning)
    rows = len(bins.lower)
    assert rows == n_bins if binning == "width" else 1 <= rows <= min(n_bins, len(confidence))
    assert np.bincount(bins.item, minlength=rows).sum() == len(confidence)
    assert (confidence >= bins.lower[bins.item] - 2e-7).all()
    assert (confidence <= bins.upper[bins.item]).all()
    if binning == "mass":
        assert np.bincount(bins.item).min() >= 1
        assert (bins.lower[1:] > bins.upper[:-1]).all()


@given(st.lists(st.integers(0, 8), min_size=1, max_size=40), st.integers(1, 12), st.randoms(use_true_random=False))
def test_equal_mass_bins_follow_the_value_and_not_the_place(counts, n_bins, random):
    order = list(range(len(counts)))
    random.shuffle(order)
    confidence = np.array(counts) / 8
    bins = assign_bins(confidence, 2.0**-23, n_bins, "mass").item
    np.testing.assert_array_equal(assign_bins(confidence[order], 2.0**-23, n_bins, "mass").item, bins[order])
    for value in set(counts):
        assert len(set(bins[np.array(counts) == value])) == 1


def test_equal_mass_bins_are_equal_where_nothing_ties():
    rng = np.random.default_rng(0)
    counts = np.bincount(assign_bins(rng.random(1003), 2.0**-23, 10, "mass").item)
    assert counts.min() >= 100
    assert counts.max() <= 101
    assert len(counts) == 10


def test_dense_confidences_do_not_run_into_one_bin():
    confidence = np.linspace(0.4, 0.4001, 100_000)  # neighbours much nearer than the tolerance
    counts = np.bincount(assign_bins(confidence, 2.0**-19, 10, "mass").item)
    assert len(counts) == 10
    assert counts.min() > 5_000


def test_unknown_rule():
    with pytest.raises(ValueError, match="binning"):
        assign_bins(np.array([0.5]), 2.0**-23, 10, "quantile")
