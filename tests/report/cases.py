"""Small comparisons for the tests of the report: random scores with a known overconfidence, no model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calmtune.predictions import Prediction, Predictions
from calmtune.report import Comparison, Variant


@dataclass
class Fit:
    """A temperature fit with a fixed answer."""

    temperature: float = 2.0
    identified: bool = True


def fit(logits: Any, labels: Any) -> Fit:
    """A fit that needs no optimiser: the report must use what it is given."""
    assert len(logits) == len(labels)
    return Fit()


@dataclass
class Vector:
    """A vector fit with a fixed answer, for items of up to four options."""

    scale: tuple[float, ...] = (0.5, 0.5, 0.25, 0.25)
    shift: tuple[float, ...] = (1.0, 0.0, 0.0, -1.0)
    identified: bool = True


def fit_vector(logits: Any, labels: Any) -> Vector:
    """The same for vector scaling."""
    assert len(logits) == len(labels)
    return Vector()


def predictions(
    domain: str, n: int, *, scale: float, skill: float = 1.0, adjusted: float | None = None, seed: int = 0
) -> Predictions:
    """``n`` items with 3 or 4 options; ``scale`` above 1 makes the same answers more confident."""
    rng = np.random.default_rng(seed)
    items = []
    for index in range(n):
        k = int(rng.integers(3, 5))
        label = int(rng.integers(k))
        z = scale * (rng.normal(size=k) + skill * (np.arange(k) == label))
        items.append(
            Prediction(
                f"{domain}-{index}",
                domain,
                label,
                tuple(z.tolist()),
                None if adjusted is None else tuple((adjusted * z).tolist()),
                option_mass=0.8,
            )
        )
    return Predictions(tuple(items))


def variant(name: str, domains: Sequence[str], n: int, *, scale: float, adjusted: float | None = None) -> Variant:
    """A variant on the same items as every other one of these domains."""
    return Variant(
        name,
        predictions("calibration", n, scale=scale, adjusted=adjusted),
        {
            domain: predictions(domain, n, scale=scale, adjusted=adjusted, seed=1 + i)
            for i, domain in enumerate(domains)
        },
    )


LOG = [
    {"step": 1, "loss": 2.0, "upper_entropy": 0.5, "tau_min": 0.9, "tau_mean": 1.0, "tau_max": 1.2},
    {"step": 2, "loss": 1.5, "upper_entropy": 0.6},
    {"train_runtime": 3.0},
]


def comparison(
    shifts: Mapping[str, str] | None = None, *, n: int = 40, adjusted: float | None = 0.5, **changes: Any
) -> Comparison:
    """Base at scale 4, tuned at scale 2, read raw and adjusted, in one domain each way unless told otherwise."""
    shifts = {"near": "ID", "far": "OOD"} if shifts is None else shifts
    settings: dict[str, Any] = {
        "variants": [
            variant("base", list(shifts), n, scale=4.0),
            variant("tuned", list(shifts), n, scale=2.0, adjusted=adjusted),
        ],
        "shifts": shifts,
        "fit_temperature": fit,
        "fit_vector": fit_vector,
        "training_log": LOG,
        "settings": {"method": "calm", "eta": 0.5},
    }
    return Comparison(**(settings | changes))


def one_variant(scores: Sequence[Sequence[float]], labels: Sequence[int], *, name: str = "base") -> Variant:
    """A variant with given scores on the domain ``d``, and a calibration split of two items."""
    items = tuple(
        Prediction(f"i{index}", "d", label, tuple(z))
        for index, (z, label) in enumerate(zip(scores, labels, strict=True))
    )
    calibration = Predictions((Prediction("c0", "c", 0, (1.0, 0.0)), Prediction("c1", "c", 1, (1.0, 0.0))))
    return Variant(name, calibration, {"d": Predictions(items)})
