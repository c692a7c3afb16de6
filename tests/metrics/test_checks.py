"""Wrong input is refused by index, in every metric alike."""

import numpy as np
import pytest

from calmtune import metrics
from calmtune.metrics.checks import check_logits

ON_CONFIDENCE = [
    metrics.expected_calibration_error,
    metrics.maximum_calibration_error,
    metrics.reliability_table,
    metrics.overconfidence_gap,
    metrics.debiased_ece,
    metrics.smooth_ece,
    metrics.auroc,
    metrics.aurc,
    metrics.brier_decomposition,
    lambda confidence, correct: metrics.risk_at_coverage(confidence, correct, 0.5),
    lambda confidence, correct: metrics.smooth_ece_at(confidence, correct, 0.1),
]
ON_PROBABILITIES = [
    metrics.classwise_ece,
    metrics.negative_log_likelihood,
    metrics.brier_score,
    metrics.classwise_brier_decomposition,
]


@pytest.mark.parametrize("metric", ON_CONFIDENCE)
@pytest.mark.parametrize(
    ("confidence", "correct", "message"),
    [
        ([0.8, np.nan], [1, 1], r"confidence\[1\] is nan"),
        ([0.8, np.inf], [1, 1], r"confidence\[1\] is inf"),
        ([], [], "empty"),
        ([1.2, 0.5], [1, 0], r"confidence\[0\] is 1\.2"),
        ([0.5, -0.001], [1, 0], r"confidence\[1\] is -0\.001"),
        ([0.5, 0.5], [1], "shape"),
        ([0.5], [1, 0], "shape"),
        ([[0.5], [0.5]], [[1], [0]], "1-D"),
        ([0.5, 0.5], [0, 2], r"correct\[1\] is 2"),
        ([0.5, 0.5], [0, 0.5], r"correct\[1\] is 0\.5"),
        ([0.5, 0.5], [np.nan, 1], r"correct\[0\] is nan"),
        ([0.5, 0.5], ["yes", "no"], "dtype"),
        ([True, False], [0.5, 0.7], "dtype bool"),
        ([0.5, None], [1, 0], "dtype object"),
        ([0.5 + 0j, 0.5], [1, 0], "dtype complex"),
    ],
)
def test_confidence_faults(metric, confidence, correct, message):
    with pytest.raises(ValueError, match=message):
        metric(confidence, correct)


@pytest.mark.parametrize("metric", ON_CONFIDENCE)
def test_rounding_noise_is_clipped(metric):
    noisy = metric([1.0000001, 1.0, 0.5, -0.0000001], [1, 0, 0, 0])
    exact = metric([1.0, 1.0, 0.5, 0.0], [1, 0, 0, 0])
    if isinstance(exact, metrics.ReliabilityTable):
        np.testing.assert_array_equal(noisy.mean_confidence, exact.mean_confidence)
    else:
        assert noisy == exact


def test_input_is_not_changed():
    confidence = np.array([1.0000001, 0.5])
    metrics.expected_calibration_error(confidence, [1, 0])
    assert confidence[0] == 1.0000001


@pytest.mark.parametrize("metric", ON_PROBABILITIES)
@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        ([[0.2, 0.93], [0.64, 0.1]], [1, 0], r"probabilities\[0\] sums to 1\.13.*softmax"),  # logits that lie in [0, 1]
        ([[0.5, 0.5], [0.5, 0.5002]], [1, 0], r"probabilities\[1\] sums"),
        ([[0.5, 0.5], [np.nan, 0.5]], [1, 0], r"probabilities\[1, 0\] is nan"),
        ([[0.5, 0.5], [1.3, -0.3]], [1, 0], r"probabilities\[1, 0\] is 1\.3"),
        (np.zeros((0, 3)), np.zeros(0, int), "empty"),
        ([0.5, 0.5], [1, 0], "shape"),
        ([[1.0], [1.0]], [0, 0], "K >= 2"),
        ([[0.5, 0.5], [0.5, 0.5]], [0], "shape"),
        ([[0.5, 0.5], [0.5, 0.5]], [0, 2], r"labels\[1\] is 2"),
        ([[0.5, 0.5], [0.5, 0.5]], [-1, 0], r"labels\[0\] is -1"),
        ([[0.5, 0.5], [0.5, 0.5]], [True, False], "dtype bool"),
        ([[0.5, 0.5], [0.5, 0.5]], [0.0, 1.0], "dtype float"),
    ],
)
def test_probability_faults(metric, probabilities, labels, message):
    with pytest.raises(ValueError, match=message):
        metric(probabilities, labels)


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([[0.0, np.nan]], r"logits\[0, 1\] is nan"),
        ([[0.0, 1.0], [np.inf, 0.0]], r"logits\[1, 0\] is inf"),
        ([[0.0, 1.0], [-np.inf, -np.inf]], r"logits\[1\] is -inf everywhere"),
        ([0.0, 1.0], "shape"),
        (np.zeros((0, 2)), "empty"),
    ],
)
def test_logit_faults(logits, message):
    with pytest.raises(ValueError, match=message):
        check_logits(logits)


@pytest.mark.parametrize("n_bins", [0, -1, 2.5, True, "10"])
def test_number_of_bins(n_bins):
    with pytest.raises(ValueError, match="n_bins"):
        metrics.expected_calibration_error([0.5], [1], n_bins=n_bins)


def test_accuracy_faults():
    with pytest.raises(ValueError, match=r"correct\[0\] is 3"):
        metrics.accuracy([3, 1])
    with pytest.raises(ValueError, match="empty"):
        metrics.accuracy([])
