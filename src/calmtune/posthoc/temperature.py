"""Temperature scaling: one number that softens or sharpens every distribution and changes no answer."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from calmtune.metrics.checks import Floats, check_logits

from .likelihood import Items, log_softmax, mean_nll, prepare

MIN_TEMPERATURE = 1e-2
MAX_TEMPERATURE = 1e2


class TemperatureScaler:
    """Fit T in [1e-2, 1e2] so that softmax(z / T) has the smallest mean negative log-likelihood.

    The likelihood is convex in 1/T, so its slope changes sign at most once: the root is bracketed on log T and found
    to full precision, from no starting point and with no random number.

    Attributes:
        temperature: the fitted T; 1 when the data say nothing about it.
        at_bound: the best T lies at or beyond a bound, so it is not identified: all items right (T at 1e-2), or no
            signal at all (T at 1e2).
        identified: the data determine T. False at a bound, and where every item's logits are equal.
        converged: the root was found to tolerance; also True when there is none to find.
        nll_before, nll_after: mean nats at T = 1 and at the fitted T, on the items fitted.
        n_clamped: labels that had logit -inf and were read as probability 1e-12.

    Example:
        >>> scaler = TemperatureScaler().fit([[2.0, 0.0]] * 4, [0, 0, 0, 1])
        >>> round(scaler.temperature, 6), scaler.at_bound
        (1.820478, False)

    Source: Guo et al. (2017), section 4.2.
    """

    temperature: float
    at_bound: bool
    identified: bool
    converged: bool
    nll_before: float
    nll_after: float
    n_clamped: int

    def fit(self, logits: ArrayLike, labels: ArrayLike) -> TemperatureScaler:
        """Fit T on items that are neither trained nor tested on.

        Args:
            logits: real [N, K], logits or log-probabilities (which give the same T), never probabilities: a softmax of
                probabilities is another model. -inf marks an absent option.
            labels: int [N].

        Returns:
            self.

        Raises:
            ValueError: wrong logits or labels; the message names the index.
        """
        items = prepare(logits, labels)
        self.n_clamped = items.n_clamped
        self._solve(items)
        self.nll_before = mean_nll(items.logits, items)
        self.nll_after = mean_nll(items.logits / self.temperature, items)
        return self

    def transform(self, logits: ArrayLike) -> Floats:
        """logits / T.

        Args:
            logits: real [N, K]; -inf stays -inf.

        Returns:
            float64 [N, K], in the same order within each row.

        Raises:
            ValueError: before ``fit``, or wrong logits.
        """
        if not hasattr(self, "temperature"):
            raise ValueError("TemperatureScaler is not fitted; call fit(logits, labels) first")
        return check_logits(logits) / self.temperature

    def _solve(self, items: Items) -> None:
        self.converged, self.at_bound, self.identified = True, False, True
        # relative to the row's largest logit: the likelihood is the same, and nothing overflows at small T
        top = np.where(items.present, items.logits, -np.inf).max(axis=1, keepdims=True)
        z = np.where(items.present, items.logits - top, 0.0)
        items = items._replace(logits=z)
        if not z.any():
            self.temperature, self.identified = 1.0, False
        elif _slope(1.0 / MIN_TEMPERATURE, items) <= 0.0:
            self.temperature, self.at_bound, self.identified = MIN_TEMPERATURE, True, False
        elif _slope(1.0 / MAX_TEMPERATURE, items) >= 0.0:
            self.temperature, self.at_bound, self.identified = MAX_TEMPERATURE, True, False
        else:
            log_t, result = brentq(
                lambda u: _slope(float(np.exp(-u)), items),
                np.log(MIN_TEMPERATURE),
                np.log(MAX_TEMPERATURE),
                xtol=1e-14,
                full_output=True,
                disp=False,
            )
            self.temperature, self.converged = float(np.exp(log_t)), bool(result.converged)


def _slope(inverse_temperature: float, items: Items) -> float:
    """d NLL / d(1/T) = mean( sum_k p_k z_k - z_label ), non-decreasing in 1/T."""
    p = np.exp(log_softmax(inverse_temperature * items.logits, items.present))
    gold = items.logits[np.arange(len(items.labels)), items.labels]
    return float(((p * items.logits).sum(axis=1) - gold).mean())
