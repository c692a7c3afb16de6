"""Vector scaling: a scale and a shift for each class, which can also undo a preference for an option letter."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from calmtune.metrics.checks import Floats, check_logits

from .likelihood import Items, log_softmax, mean_nll, prepare
from .temperature import TemperatureScaler

PARAMETER_BOUND = 100.0
PRIOR_ITEMS = 10.0
"""The default penalty is l2 = 10 / N, the prior of a normal with standard deviation 0.32 on T w - 1 and on b."""
_MAX_ITERATIONS = 2000
_GRADIENT_TOLERANCE = 1e-6


class VectorScaler:
    """Fit scale w and shift b in R^K so that softmax(w * log p + b) has the smallest penalised mean negative
    log-likelihood, where p = softmax(z) over the item's own options.

    Rows are centred by that log-softmax first: w would scale a constant added to a row class by class, so that logits
    and log-probabilities would have different fits. With the temperature T of :class:`TemperatureScaler` on the same
    items, the fit minimises NLL + l2 / 2 (||T w - 1||^2 + ||b||^2), convex, from w = 1 / T and b = 0 by L-BFGS-B with
    the exact gradient and T w and b in [-100, 100]. So little data give temperature scaling, not an uncalibrated
    model. Where T is not identified, T = 1 is used. Answers may change.

    Args:
        l2: weight of the penalty beside a mean, >= 0; None for 10 / N. With 0 separable data run to the bound.

    Attributes:
        scale, shift: float64 [K], the fitted w and b.
        at_bound: a parameter lies at its bound.
        identified: the data determine the fit. False where a parameter or T lies at a bound, or without convergence.
        converged: the solver met its tolerance, or the gradient of what is not at a bound is below 1e-6.
        nll_before, nll_after: mean nats without and with the fit, on the items fitted, without the penalty.
        n_clamped: labels that had logit -inf and were read as probability 1e-12.

    Example:
        >>> scaler = VectorScaler(l2=0.0).fit([[0.0, 0.0]] * 4, [0, 0, 0, 1])
        >>> first, second = scaler.transform([[0.0, 0.0]])[0]
        >>> round(float(first - second), 4)  # ln 3
        1.0986

    Source: Guo et al. (2017), section 4.2; Kull et al. (2019), diagonal Dirichlet calibration, for log p.
    """

    scale: Floats
    shift: Floats
    at_bound: bool
    identified: bool
    converged: bool
    nll_before: float
    nll_after: float
    n_clamped: int

    def __init__(self, l2: float | None = None) -> None:
        if l2 is not None and not 0.0 <= l2 < np.inf:
            raise ValueError(f"l2: expected a number >= 0, or None for {PRIOR_ITEMS:g} / N, got {l2!r}")
        self.l2 = None if l2 is None else float(l2)

    def fit(self, logits: ArrayLike, labels: ArrayLike) -> VectorScaler:
        """Fit w and b on items that are neither trained nor tested on.

        Args:
            logits: real [N, K], logits or log-probabilities (which give the same fit), never probabilities. -inf marks
                an absent option.
            labels: int [N].

        Returns:
            self.

        Raises:
            ValueError: wrong logits or labels; the message names the index.
        """
        items = prepare(logits, labels)
        items = items._replace(logits=_centred(items.logits, items.present))
        n, k = items.logits.shape
        anchor = TemperatureScaler().fit(np.where(items.present, items.logits, -np.inf), items.labels)
        temperature = anchor.temperature if anchor.identified else 1.0
        result = minimize(
            penalised_nll,
            np.concatenate([np.ones(k), np.zeros(k)]),
            args=(items._replace(logits=items.logits / temperature), PRIOR_ITEMS / n if self.l2 is None else self.l2),
            jac=True,
            method="L-BFGS-B",
            bounds=[(-PARAMETER_BOUND, PARAMETER_BOUND)] * (2 * k),
            options={"maxiter": _MAX_ITERATIONS, "maxfun": 2 * _MAX_ITERATIONS, "ftol": 1e-15, "gtol": 1e-9},
        )
        self.scale, self.shift = result.x[:k] / temperature, result.x[k:]
        bound = np.abs(result.x) >= PARAMETER_BOUND * (1 - 1e-9)
        self.at_bound = bool(bound.any())
        # a line search that cannot improve on the optimum ends as a failure
        self.converged = bool(result.success or np.abs(result.jac[~bound]).max(initial=0.0) < _GRADIENT_TOLERANCE)
        self.identified = self.converged and not self.at_bound and not anchor.at_bound
        self.n_clamped = items.n_clamped
        self.nll_before = mean_nll(items.logits, items)
        self.nll_after = mean_nll(items.logits * self.scale + self.shift, items)
        return self

    def transform(self, logits: ArrayLike) -> Floats:
        """w * log softmax(logits) + b.

        Args:
            logits: real [N, K'], K' at most the K that was fitted; -inf stays -inf.

        Returns:
            float64 [N, K'].

        Raises:
            ValueError: before ``fit``, wrong logits, or more options than were fitted.
        """
        if not hasattr(self, "scale"):
            raise ValueError("VectorScaler is not fitted; call fit(logits, labels) first")
        z = check_logits(logits)
        k = z.shape[1]
        if k > len(self.scale):
            raise ValueError(
                f"logits: expected at most the {len(self.scale)} columns that were fitted, got {k}; there is no scale "
                "for an option that no fitted item has"
            )
        present = np.isfinite(z)
        moved = _centred(np.where(present, z, 0.0), present) * self.scale[:k] + self.shift[:k]
        return np.where(present, moved, -np.inf)


def _centred(logits: Floats, present: NDArray[np.bool_]) -> Floats:
    """log p of the present options, 0 elsewhere, so that products stay finite."""
    return np.where(present, log_softmax(logits, present), 0.0)


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
