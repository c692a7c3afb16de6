"""The mean negative log-likelihood that the post-hoc fits minimise, on items with different numbers of options."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calmtune.metrics.checks import Floats, Ints, check_labels, check_logits

ZERO_PROBABILITY = 1e-12
"""A label whose logit is -inf is read as this probability, relative to the row's most likely option."""


class Items(NamedTuple):
    """Checked items of a fit; absent options hold logit 0 and ``present`` False, so that products stay finite."""

    logits: Floats
    present: NDArray[np.bool_]
    labels: Ints
    n_clamped: int


def prepare(logits: ArrayLike, labels: ArrayLike) -> Items:
    """Check a fit's input and give labels of probability zero a finite logit.

    An option at -inf is absent from its item, which is the limit of a probability of zero. A label at -inf would make
    the likelihood infinite whatever the fit, so it is raised to the row's largest logit plus ln ``ZERO_PROBABILITY``
    and counted.

    Args:
        logits: real [N, K], logits or log-probabilities; -inf for absent options.
        labels: int [N].

    Returns:
        The items, with the number of raised labels.

    Raises:
        ValueError: wrong logits or labels; the message names the index.
    """
    z = check_logits(logits)
    y = check_labels(labels, *z.shape)
    rows = np.flatnonzero(np.isneginf(z[np.arange(len(y)), y]))
    z[rows, y[rows]] = z[rows].max(axis=1) + np.log(ZERO_PROBABILITY)
    present = np.isfinite(z)
    return Items(np.where(present, z, 0.0), present, y, len(rows))


def log_softmax(logits: Floats, present: NDArray[np.bool_]) -> Floats:
    """log p over the present options of each row; -inf elsewhere."""
    z = np.where(present, logits, -np.inf)
    z = z - z.max(axis=1, keepdims=True)
    return np.asarray(z - np.log(np.exp(z).sum(axis=1, keepdims=True)))


def mean_nll(logits: Floats, items: Items) -> float:
    """Mean -ln p(label) in nats of the items under changed logits."""
    return float(-log_softmax(logits, items.present)[np.arange(len(items.labels)), items.labels].mean())
