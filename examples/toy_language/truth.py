"""The true calibration error: integrated over the known law of prompts and answers, so that no sampling noise is in it.

With c(x) the model's confidence in its answer and t(x) the true probability that this answer is right,

    conf-ECE = sum over bins |E[(c - t) 1{c in bin}]|          (10 equal-width bins, the package's own rule)
    pointwise = E |c - t|                                       (no bins: over- and underconfidence don't cancel)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from calmtune.metrics.bins import assign_bins, edge_tolerance
from toy_language.language import Domain

BINS = 10


class Truth(NamedTuple):
    """True figures of one model on one domain, fractions (``divergence`` in nats)."""

    ece: float
    pointwise: float
    gap: float  # mean confidence - accuracy; positive is overconfident
    accuracy: float
    divergence: float  # E KL(true answers || model)


def confidence_and_truth(logits: Tensor, domain: Domain) -> tuple[Tensor, Tensor]:
    """c(x) and t(x) [N] of logits [N, words] over all prompts of a domain."""
    confidence, answer = torch.softmax(logits.double(), -1).max(-1)
    return confidence, domain.answers.gather(-1, answer[:, None]).squeeze(-1)


def binned_gaps(confidence: Tensor, truth: Tensor, weight: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mass, mean confidence and accuracy of each bin; NaN where a bin is empty."""
    values = confidence.numpy()
    bins = assign_bins(values, edge_tolerance(values.dtype), BINS, "width")
    mass, sure, right = (
        np.bincount(bins.item, weights=(weight * factor).numpy(), minlength=BINS)
        for factor in (torch.ones_like(confidence), confidence, truth)
    )
    with np.errstate(invalid="ignore"):
        return mass, sure / mass, right / mass


def true_ece(confidence: Tensor, truth: Tensor, weight: Tensor) -> float:
    """conf-ECE with every prompt weighted by its probability.

    Example:
        >>> c = torch.tensor([0.9, 0.5], dtype=torch.float64)
        >>> round(true_ece(c, c - 0.1, torch.tensor([0.5, 0.5], dtype=torch.float64)), 12)
        0.1
    """
    mass, sure, right = binned_gaps(confidence, truth, weight)
    return float(np.nansum(mass * np.abs(sure - right)))


def true_figures(logits: Tensor, domain: Domain) -> Truth:
    """All figures of a model's logits [N, words] over all prompts of a domain, rows in the domain's order."""
    confidence, truth = confidence_and_truth(logits, domain)
    log_p, log_true = torch.log_softmax(logits.double(), -1), domain.answers.log()
    divergence = (domain.answers * (log_true - log_p)).sum(-1)
    return Truth(
        ece=true_ece(confidence, truth, domain.weight),
        pointwise=float(domain.weight @ (confidence - truth).abs()),
        gap=float(domain.weight @ (confidence - truth)),
        accuracy=float(domain.weight @ truth),
        divergence=float(domain.weight @ divergence),
    )
