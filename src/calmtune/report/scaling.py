"""Post-hoc fits as a report uses them: which there are, what a fitted one does, and where one is not defined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from calmtune.predictions import Predictions

Scaling = Literal["none", "TS", "VS"]
SCALINGS: tuple[Scaling, ...] = ("none", "TS", "VS")


class FittedTemperature(Protocol):
    """What a temperature fit must tell: the temperature, and whether the data determine it."""

    temperature: float
    identified: bool


class FittedVector(Protocol):
    """What a vector fit must tell: scale and shift [K] of log-probabilities, and whether the data determine them."""

    scale: Sequence[float] | NDArray[np.float64]
    shift: Sequence[float] | NDArray[np.float64]
    identified: bool


TemperatureFit = Callable[[NDArray[np.float64], NDArray[np.int64]], FittedTemperature]
VectorFit = Callable[[NDArray[np.float64], NDArray[np.int64]], FittedVector]


@dataclass(frozen=True)
class Vector:
    """Fitted vector scaling: scores z of an item become w_k log p_k + b_k, with p = softmax(z) over its own options.

    Args:
        scale: w by option index.
        shift: b by option index.
    """

    scale: tuple[float, ...]
    shift: tuple[float, ...]

    def apply(self, predictions: Predictions, *, adjusted: bool) -> Predictions:
        """The same items with the scaled scores in the place of the raw ones, and without adjusted ones.

        Raises:
            ValueError: an item has more options than were fitted.

        >>> from calmtune.predictions import Prediction
        >>> one = Predictions((Prediction("a", "d", 0, (0.0, 0.0)),))
        >>> [round(z, 3) for z in Vector((1.0, 2.0), (0.0, 1.0)).apply(one, adjusted=False)[0].scores]
        [-0.693, -0.386]
        """
        k = widest(predictions)
        if k > len(self.scale):
            raise ValueError(f"vector scaling: fitted for up to {len(self.scale)} options, but an item has {k}")
        z = predictions.logits(adjusted=adjusted)
        z = z - z.max(axis=1, keepdims=True)
        log_p = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
        present = np.isfinite(log_p)
        moved = np.where(present, log_p, 0.0) * np.array(self.scale[:k]) + np.array(self.shift[:k])
        items = tuple(
            replace(item, scores=tuple(row[: len(item.scores)].tolist()), adjusted=None)
            for item, row in zip(predictions, moved, strict=True)
        )
        return replace(predictions, items=items)


@dataclass(frozen=True)
class Fitted:
    """What one of the scalings became on a calibration split.

    Args:
        temperature: divides the scores; 1 without a scaling and beside a vector.
        vector: scale and shift, for vector scaling alone.
        identified: False where the data do not determine the fit.
    """

    temperature: float = 1.0
    vector: Vector | None = None
    identified: bool = True

    def to_record(self) -> dict[str, Any]:
        """``temperature``, and ``scale`` and ``shift`` as lists or None, JSON values only."""
        vector = self.vector
        return {
            "temperature": self.temperature,
            "scale": None if vector is None else list(vector.scale),
            "shift": None if vector is None else list(vector.shift),
        }


def fit_scaling(
    scaling: Scaling,
    calibration: Predictions,
    *,
    adjusted: bool,
    fit_temperature: TemperatureFit,
    fit_vector: VectorFit | None = None,
) -> Fitted:
    """Fit one scaling on a calibration split.

    Args:
        scaling: ``"none"`` needs no fit.
        calibration: the items to fit on.
        adjusted: whether their adjusted scores are scaled, or the raw ones.
        fit_temperature, fit_vector: take logits [N, K] (absent options -inf) and labels [N]. What they return is read
            at once, so that one object may be fitted again and again.

    Raises:
        ValueError: vector scaling without a fit for it.
    """
    if scaling == "none":
        return Fitted()
    logits, labels = calibration.logits(adjusted=adjusted), calibration.labels
    if scaling == "TS":
        temperature = fit_temperature(logits, labels)
        return Fitted(float(temperature.temperature), identified=bool(temperature.identified))
    if fit_vector is None:
        raise ValueError("vector scaling: expected fit_vector, got None; VectorScaler().fit is meant")
    vector = fit_vector(logits, labels)
    scale, shift = (tuple(float(value) for value in values) for values in (vector.scale, vector.shift))
    return Fitted(vector=Vector(scale, shift), identified=bool(vector.identified))


def widest(predictions: Predictions) -> int:
    """The largest number of options of an item."""
    return max((len(item.scores) for item in predictions), default=0)


def vector_fault(calibration: Predictions, others: Iterable[tuple[str, int]]) -> str:
    """Why vector scaling is not defined, or nothing.

    Args:
        calibration: the split that it is fitted on.
        others: (name, largest number of options) of the sets it is to be used on.

    >>> from calmtune.predictions import Prediction
    >>> vector_fault(Predictions((Prediction("a", "d", 0, (0.0, 0.0)),)), [("near", 2), ("far", 5)])
    'far has items with 5 options, the calibration split at most 2: there is no scale for the rest'
    """
    known = widest(calibration)
    return "; ".join(
        f"{name} has items with {k} options, the calibration split at most {known}: there is no scale for the rest"
        for name, k in others
        if k > known
    )
