"""Metrics as sums, against the metrics themselves on every resample."""

import numpy as np
import pytest

from calmtune.metrics import classwise_ece, expected_calibration_error, negative_log_likelihood
from calmtune.metrics.resampled import class_sums, confidence_sums, draw_counts, draw_swaps, mean_sums


def drawn_rows(counts):
    """The resamples as row numbers, as the reference takes them."""
    return [np.repeat(np.arange(len(row)), row.astype(int)) for row in counts]


def options_table(rng, n, widest=5):
    """Probabilities of items with 2 to ``widest`` options, labels and option counts."""
    k = rng.integers(2, widest + 1, n)
    p = rng.dirichlet(np.full(widest, 0.5), n) * (np.arange(widest) < k[:, None])
    return p / p.sum(axis=1, keepdims=True), (rng.random(n) * k).astype(int), k


@pytest.mark.parametrize("n_bins", [1, 7, 10, 15])
def test_conf_ece_of_every_resample_is_the_metric_on_it(n_bins):
    rng = np.random.default_rng(0)
    # ties on bin edges, and the sums that end beside them
    confidence = np.concatenate([np.arange(11) / 10, [0.1 + 0.2, 1 - 0.9, 0.7 - 1e-8, 0.7 + 1e-8], rng.random(40)])
    correct = rng.random(len(confidence)) < 0.5
    sums, counts = confidence_sums(confidence, correct, n_bins), draw_counts(len(confidence), 30, rng)
    reference = [expected_calibration_error(confidence[rows], correct[rows], n_bins) for rows in drawn_rows(counts)]
    np.testing.assert_allclose(sums.of_counts(counts), reference, rtol=0, atol=1e-12)
    assert sums.value() == pytest.approx(expected_calibration_error(confidence, correct, n_bins), abs=1e-14)


def test_float32_confidences_have_the_bins_of_their_own_rounding():
    confidence = np.array([0.3, 0.7, 0.29999998], dtype=np.float32)
    correct = np.array([1, 0, 0])
    assert confidence_sums(confidence, correct).value() == pytest.approx(
        expected_calibration_error(confidence, correct), abs=1e-14
    )


@pytest.mark.parametrize("n_bins", [1, 10])
def test_classwise_ece_of_every_resample_is_the_metric_on_it(n_bins):
    rng = np.random.default_rng(1)
    p, labels, k = options_table(rng, 25)
    k[0], p[0], labels[0] = 6, 0, 5  # the only item with a sixth option: resamples without it have five classes
    p = np.pad(p, ((0, 0), (0, 1)))
    p[0] = [0.1, 0.2, 0.3, 0.1, 0.1, 0.2]
    sums, counts = class_sums(p, labels, n_bins, k), draw_counts(25, 40, rng)
    assert (counts[:, 0] == 0).any(), "the case of a class that is not drawn must occur"
    reference = [classwise_ece(p[rows], labels[rows], n_bins, k[rows]) for rows in drawn_rows(counts)]
    np.testing.assert_allclose(sums.of_counts(counts), reference, rtol=0, atol=1e-12)


def test_classwise_ece_without_option_counts():
    rng = np.random.default_rng(2)
    p, labels = rng.dirichlet(np.ones(3), 20), rng.integers(0, 3, 20)
    assert class_sums(p, labels).value() == pytest.approx(classwise_ece(p, labels), abs=1e-14)
    with pytest.raises(ValueError, match="an option it does not have has probability above 0"):
        class_sums(p, np.zeros(20, dtype=int), n_options=np.full(20, 2))


def test_leaving_an_item_out_is_the_metric_without_it():
    rng = np.random.default_rng(3)
    confidence, correct = rng.random(15), rng.random(15) < 0.5
    reference = [
        expected_calibration_error(np.delete(confidence, place), np.delete(correct, place)) for place in range(15)
    ]
    np.testing.assert_allclose(confidence_sums(confidence, correct).left_out(), reference, rtol=0, atol=1e-14)


def test_means_and_an_infinite_item():
    rng = np.random.default_rng(4)
    p, labels, _ = options_table(rng, 12)
    p[5], labels[5] = [0, 1, 0, 0, 0], 0
    with np.errstate(divide="ignore"):
        values = -np.log(p[np.arange(12), labels])
    counts = draw_counts(12, 20, rng)
    found = mean_sums(values).of_counts(counts)
    reference = [negative_log_likelihood(p[rows], labels[rows]) for rows in drawn_rows(counts)]
    np.testing.assert_allclose(found, reference)
    assert np.isinf(found).any()
    assert np.isfinite(found).any()
    with pytest.raises(ValueError, match="without NaN"):
        mean_sums([0.0, np.nan])


def test_counts_and_swaps_are_seeded_and_right_in_the_mean():
    counts = draw_counts(50, 400, np.random.default_rng(5))
    assert (counts.sum(axis=1) == 50).all()
    # a count is binomial(50, 1/50): mean 1, variance .98
    assert counts.mean() == 1.0
    assert counts.var() == pytest.approx(0.98, abs=0.05)
    swaps = draw_swaps(50, 400, np.random.default_rng(5))
    assert set(np.unique(swaps)) == {0.0, 1.0}
    assert swaps.mean() == pytest.approx(0.5, abs=0.02)
    np.testing.assert_array_equal(swaps, draw_swaps(50, 400, np.random.default_rng(5)))
