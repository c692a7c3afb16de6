"""Vector scaling: a scale and a shift for each class, which can also undo a preference for an option letter."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from calmtune.metrics.checks import Floats, check_logits

from .likelihood import Items, log_softmax, mean_nll, prepare

PARAMETER_BOUND = 100.0
_MAX_ITERATIONS = 2000


class VectorScaler:
    """Fit scale w and shift b in R^K so that softmax(w * z + b) has the smallest penalised mean negative
    log-likelihood.

    Minimises NLL + l2 / 2 (||w - 1||^2 + ||b||^2), convex, from w = 1 and b = 0 by L-BFGS-B with the exact gradient
    and every parameter in [-100, 100]. Answers may change. Unlike temperature, w treats logits and log-probabilities
    differently, since a constant added to a row is scaled class by class: transform what was fitted.

    Args:
        l2: weight of the penalty, >= 0. With the default 0 separable data run to the bound.

    Attributes:
        scale, shift: float64 [K], the fitted w and b.
        at_bound: a parameter lies at its bound, so it is not identified.
        converged: the solver met its tolerance.
        nll_before, nll_after: mean nats without and with the fit, on the items fitted, without the penalty.
        n_clamped: labels that had logit -inf and were read as probability 1e-12.

    Example:
        >>> scaler = VectorScaler().fit([[0.0, 0.0]] * 4, [0, 0, 0, 1])
        >>> round(float(scaler.shift[0] - scaler.shift[1]), 4)
        1.0986

    Source: Guo et al. (2017), section 4.2.
    """

    scale: Floats
    shift: Floats
    at_bound: bool
    converged: bool
    nll_before: float
    nll_after: float
    n_clamped: int

    def __init__(self, l2: float = 0.0) -> None:
        if not 0.0 <= l2 < np.inf:
            raise ValueError(f"l2: expected a number >= 0, got {l2!r}")
        self.l2 = float(l2)

    def fit(self, logits: ArrayLike, labels: ArrayLike) -> VectorScaler:
        """Fit w and b on items that are neither trained nor tested on.

        Args:
            logits: real [N, K], logits or log-probabilities, never probabilities. -inf marks an absent option.
            labels: int [N].

        Returns:
            self.

        Raises:
            ValueError: wrong logits or labels; the message names the index.
        """
        items = prepare(logits, labels)
        k = items.logits.shape[1]
        result = minimize(
            penalised_nll,
            np.concatenate([np.ones(k), np.zeros(k)]),
            args=(items, self.l2),
            jac=True,
            method="L-BFGS-B",
            bounds=[(-PARAMETER_BOUND, PARAMETER_BOUND)] * (2 * k),
            options={"maxiter": _MAX_ITERATIONS, "maxfun": 2 * _MAX_ITERATIONS, "ftol": 1e-15, "gtol": 1e-9},
        )
        self.scale, self.shift = result.x[:k], result.x[k:]
        self.converged = bool(result.success)
        self.at_bound = bool((np.abs(result.x) >= PARAMETER_BOUND * (1 - 1e-9)).any())
        self.n_clamped = items.n_clamped
        self.nll_before = mean_nll(items.logits, items)
        self.nll_after = mean_nll(items.logits * self.scale + self.shift, items)
        return self

    def transform(self, logits: ArrayLike) -> Floats:
        """w * logits + b.

        Args:
            logits: real [N, K], K as fitted; -inf stays -inf.

        Returns:
            float64 [N, K].

        Raises:
            ValueError: before ``fit``, wrong logits, or another K.
        """
        if not hasattr(self, "scale"):
            raise ValueError("VectorScaler is not fitted; call fit(logits, labels) first")
        z = check_logits(logits)
        if z.shape[1] != len(self.scale):
            raise ValueError(f"logits: expected {len(self.scale)} columns as fitted, got {z.shape[1]}")
        present = np.isfinite(z)
        return np.where(present, np.where(present, z, 0.0) * self.scale + self.shift, -np.inf)


def penalised_nll(parameters: Floats, items: Items, l2: float) -> tuple[float, Floats]:
    """Objective and gradient: d/dw_k = mean (p_k - e_k) z_k + l2 (w_k - 1), d/db_k = mean (p_k - e_k) + l2 b_k.

    Args:
        parameters: float64 [2K], w then b.
        items: see :func:`calmtune.posthoc.likelihood.prepare`.
        l2: weight of the penalty.

    Returns:
        (nats, gradient [2K]).
    """
    n, k = items.logits.shape
    scale, shift = parameters[:k], parameters[k:]
    log_p = log_softmax(items.logits * scale + shift, items.present)
    rows = np.arange(n)
    residual = np.exp(log_p)
    residual[rows, items.labels] -= 1.0
    gradient = np.concatenate([(residual * items.logits).sum(axis=0), residual.sum(axis=0)]) / n
    away = np.concatenate([scale - 1.0, shift])
    value = -log_p[rows, items.labels].mean() + 0.5 * l2 * (away @ away)
    return float(value), gradient + l2 * away
