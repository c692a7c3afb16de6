"""Small suites for the tests of their report: given probabilities or random ones, no model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from calmtune.predictions import Prediction, Predictions
from calmtune.report import Variant
from calmtune.report.suite import SuiteRun
from report.cases import fit, fit_vector, predictions

FITS: dict[str, Any] = {"fit_temperature": fit, "fit_vector": fit_vector}
RAW = {"distribution": "raw", "scaling": "none", "temperature": 1.0, "scale": None, "shift": None, "chosen_by": "test"}
ADJUSTED = RAW | {"distribution": "adjusted"}


def given(domain: str, p: Sequence[float], labels: Sequence[int]) -> Predictions:
    """Items of two options, the first of which has the probability p."""
    return Predictions(
        tuple(
            Prediction(f"{domain}-{index}", domain, label, (math.log(one), math.log(1 - one)))
            for index, (one, label) in enumerate(zip(p, labels, strict=True))
        )
    )


def given_run(
    method: str, seed: int, base: Sequence[float], tuned: Sequence[float], labels: Sequence[int], **changes: Any
) -> SuiteRun:
    """A run on one domain ``d`` of given items; its calibration split is two fixed items."""
    calibration = given("c", [0.8, 0.6], [0, 1])
    made: dict[str, Any] = {
        "setting": "s",
        "model": "m",
        "method": method,
        "seed": seed,
        "base": Variant("base", calibration, {"d": given("d", base, labels)}),
        "tuned": Variant("tuned", calibration, {"d": given("d", tuned, labels)}),
        "shifts": {"d": "OOD"},
        "settings": {"method": method, "seed": seed},
        "decision": RAW,
    }
    return SuiteRun(**(made | changes))


def random_run(
    method: str,
    seed: int,
    *,
    scale: float,
    adjusted: float | None = None,
    n: int = 40,
    shifts: Mapping[str, str] | None = None,
    **changes: Any,
) -> SuiteRun:
    """A run with random items; seeds differ in how confident they are, not in their answers."""
    shifts = {"near": "ID", "far": "OOD", "farther": "OOD"} if shifts is None else shifts

    def variant(name: str, scale: float, adjusted: float | None) -> Variant:
        tests = {d: predictions(d, n, scale=scale, adjusted=adjusted, seed=1 + i) for i, d in enumerate(shifts)}
        return Variant(name, predictions("calibration", n, scale=scale, adjusted=adjusted), tests)

    made: dict[str, Any] = {
        "setting": "s",
        "model": "m",
        "method": method,
        "seed": seed,
        "base": variant("base", 4.0, None),
        "tuned": variant("tuned", scale * (1 + 0.1 * seed), adjusted),
        "shifts": shifts,
        "settings": {"method": method, "seed": seed, "lora": {"r": 8}},
        "decision": RAW if adjusted is None else ADJUSTED,
    }
    return SuiteRun(**(made | changes))


def random_suite(seeds: int = 2, *, models: Sequence[str] = ("m",), settings: Sequence[str] = ("s",)) -> list[SuiteRun]:
    """sft and calm, in every model and setting."""
    return [
        random_run(method, seed, model=model, setting=setting, **how)
        for setting in settings
        for model in models
        for method, how in (("sft", {"scale": 3.0}), ("calm", {"scale": 3.0, "adjusted": 0.5}))
        for seed in range(seeds)
    ]
