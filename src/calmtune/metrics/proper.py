"""Proper scores of whole distributions, and the parts a Brier score falls into."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .bins import Binning, assign_bins, edge_tolerance
from .checks import Floats, check_confidence_and_correct, check_labels, check_logits, check_probabilities


class BrierDecomposition(NamedTuple):
    """brier = reliability - resolution + uncertainty + within_bin, up to rounding.

    Args:
        reliability: weighted squared gap between mean confidence and frequency of the bins; 0 for a calibrated model.
        resolution: weighted squared distance of the bins' frequencies from the overall one; larger is better.
        uncertainty: variance of the outcome, which no forecast changes.
        within_bin: what confidences that differ inside a bin add; of either sign, and 0 when a bin holds one value
            only.
    """

    reliability: float
    resolution: float
    uncertainty: float
    within_bin: float

    @property
    def brier(self) -> float:
        """The score that the parts add up to."""
        return self.reliability - self.resolution + self.uncertainty + self.within_bin


def softmax(logits: ArrayLike) -> Floats:
    """Probabilities from logits or log-probabilities, p_k = exp(z_k) / sum_j exp(z_j), in float64 whatever the input's
    dtype.

    Args:
        logits: real [N, K]; -inf marks an absent option and gets probability 0.

    Returns:
        float64 [N, K], rows summing to 1.

    Raises:
        ValueError: NaN, +inf, or a row without a finite logit.

    Example:
        >>> softmax([[0.2, 0.93], [0.64, 0.1]]).max(axis=1).round(6).tolist()
        [0.674805, 0.631812]
    """
    z = check_logits(logits)
    z = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(z / z.sum(axis=1, keepdims=True))


def negative_log_likelihood(probabilities: ArrayLike, labels: ArrayLike, floor: float = 0.0) -> float:
    """Mean of -ln p(label).

    Args:
        probabilities: float [N, K], rows summing to 1.
        labels: int [N], class ids.
        floor: probabilities of labels below it are raised to it, in [0, 1). With the default 0 a label of probability
            0 gives inf, which is its true score.

    Returns:
        Nats, >= 0, or inf.

    Raises:
        ValueError: wrong probabilities, labels or floor.

    Example:
        >>> round(negative_log_likelihood([[0.5, 0.5], [0.25, 0.75]], [0, 0]), 6)
        1.039721
    """
    probabilities = check_probabilities(probabilities)
    labels = check_labels(labels, *probabilities.shape)
    if not 0.0 <= floor < 1.0:
        raise ValueError(f"floor: expected a probability in [0, 1), got {floor!r}")
    gold = np.maximum(probabilities[np.arange(len(labels)), labels], floor)
    if (gold == 0).any():
        return float("inf")
    return float(-np.log(gold).mean())


def brier_score(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Mean over items of sum_k (p_k - 1[k = label])^2.

    Args:
        probabilities: float [N, K], rows summing to 1.
        labels: int [N], class ids.

    Returns:
        A number in [0, 2]: the sum over classes, so twice the one-class score when K = 2.

    Raises:
        ValueError: wrong probabilities or labels.

    Example:
        >>> round(brier_score([[0.8, 0.2], [0.4, 0.6]], [0, 0]), 6)
        0.4

    Source: Brier (1950).
    """
    probabilities = check_probabilities(probabilities)
    labels = check_labels(labels, *probabilities.shape)
    residual = probabilities.copy()
    residual[np.arange(len(labels)), labels] -= 1.0
    return float(np.square(residual).sum() / len(labels))


def brier_decomposition(
    confidence: ArrayLike, correct: ArrayLike, n_bins: int = 10, binning: Binning = "width"
) -> BrierDecomposition:
    """Parts of the Brier score of the confidence, mean (confidence - correct)^2.

    With bins b, frequencies o_b, mean confidences c_b and overall frequency o:
    reliability = sum_b n_b/N (c_b - o_b)^2, resolution = sum_b n_b/N (o_b - o)^2, uncertainty = o (1 - o),
    within_bin = mean (c - c_b)^2 - 2 mean (c - c_b)(y - o_b).

    Args:
        confidence: float [N] in [0, 1].
        correct: bool or 0/1 [N].
        n_bins: number of bins.
        binning: ``"width"`` or ``"mass"``.

    Returns:
        The four parts; their ``brier`` is the score.

    Raises:
        ValueError: see :func:`check_confidence_and_correct`.

    Example:
        >>> parts = brier_decomposition([0.8, 0.8, 0.3, 0.3], [1, 0, 0, 0])
        >>> [round(part, 4) for part in parts], round(parts.brier, 4)
        ([0.09, 0.0625, 0.1875, 0.0], 0.215)

    Source: Murphy (1973); Stephenson, Coelho and Jolliffe (2008) for the within-bin terms.
    """
    tolerance = edge_tolerance(np.asarray(confidence).dtype)
    confidence, correct = check_confidence_and_correct(confidence, correct)
    return _decompose(confidence, correct, tolerance, n_bins, binning)


def classwise_brier_decomposition(
    probabilities: ArrayLike, labels: ArrayLike, n_bins: int = 10, binning: Binning = "width"
) -> BrierDecomposition:
    """Parts of :func:`brier_score`: each class against the rest as in :func:`brier_decomposition`, summed over classes.

    Args:
        probabilities: float [N, K], rows summing to 1.
        labels: int [N], class ids.
        n_bins: number of bins, of each class.
        binning: ``"width"`` or ``"mass"``.

    Returns:
        The four parts; their ``brier`` is ``brier_score(probabilities, labels)``.

    Raises:
        ValueError: wrong probabilities or labels.

    Example:
        >>> round(classwise_brier_decomposition([[0.8, 0.2], [0.4, 0.6]], [0, 0]).brier, 6)
        0.4
    """
    tolerance = edge_tolerance(np.asarray(probabilities).dtype)
    probabilities = check_probabilities(probabilities)
    labels = check_labels(labels, *probabilities.shape)
    parts = [
        _decompose(probabilities[:, k].copy(), (labels == k).astype(np.float64), tolerance, n_bins, binning)
        for k in range(probabilities.shape[1])
    ]
    return BrierDecomposition(*(float(total) for total in np.sum(parts, axis=0)))


def _decompose(
    confidence: Floats, target: Floats, tolerance: float, n_bins: int, binning: Binning
) -> BrierDecomposition:
    index = assign_bins(confidence, tolerance, n_bins, binning).item
    n = len(confidence)
    count = np.maximum(np.bincount(index), 1)  # an empty bin has no item that would read its mean
    mean = (np.bincount(index, weights=confidence) / count)[index]
    frequency = (np.bincount(index, weights=target) / count)[index]
    overall = target.mean()
    spread = confidence - mean
    return BrierDecomposition(
        reliability=float(np.square(mean - frequency).sum() / n),
        resolution=float(np.square(frequency - overall).sum() / n),
        uncertainty=float(overall * (1.0 - overall)),
        within_bin=float((spread * (spread - 2.0 * (target - frequency))).sum() / n),
    )
