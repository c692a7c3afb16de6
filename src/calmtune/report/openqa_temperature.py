"""Two temperatures of open questions: one that calibrates the reported confidence, one that calibrates the sampler.

*Class temperature* T_c. The stored classes of a question have shares n_k / n; the confidence read from them becomes
n_1^(1/T) / sum_k n_k^(1/T). T_c is the T that gives the lowest Brier score of that confidence against the grade of the
modal class, on the calibration questions. It needs no model and changes what is reported, never what is sampled;
answers and accuracy stay. Classes that were not sampled are taken to have no probability, so no T brings the confidence
below 1 / (classes seen).

*Sampler temperature* T_s. The T at which the model's own samples, drawn anew with every token's logits divided by T,
have a mean confidence equal to their accuracy: the zero of the overconfidence gap, on the calibration questions. It
cannot be computed from samples at T = 1: a temperature acts on each token's whole distribution, of which a sample keeps
one number. So the calibration questions are sampled at a few temperatures, and between the two whose gaps differ in
sign the zero is taken on a straight line over ln T. Confidence is that of Sem2, whose mean is not pushed up by looking
for the largest class. Equal means are less than calibration in every bin; the test figures are those of T = 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.optimize import minimize_scalar

from calmtune.graded import GradedAnswers
from calmtune.metrics.semantic import modal_grades, modal_places
from calmtune.report.openqa_readings import class_confidence, pools_of, read_open

LOWEST, HIGHEST = 0.05, 20.0
_AT_BOUND = 1e-3


@dataclass(frozen=True)
class ClassTemperature:
    """T_c of one model.

    Args:
        temperature: in [0.05, 20]. identified: False at a bound: the calibration questions do not determine it.
        brier, brier_before: on the calibration questions, with it and with T = 1. n: calibration questions.
    """

    temperature: float
    identified: bool
    brier: float
    brier_before: float
    n: int


@dataclass(frozen=True)
class GridPoint:
    """The calibration questions sampled at one temperature: Sem2 confidence and accuracy, means over n questions."""

    temperature: float
    confidence: float
    accuracy: float
    n: int

    @property
    def gap(self) -> float:
        """Mean confidence minus accuracy."""
        return self.confidence - self.accuracy


@dataclass(frozen=True)
class SamplerTemperature:
    """T_s of one model.

    Args:
        points: by rising temperature. temperature: the zero of the gap, or None where all gaps have one sign.
        told: which side it lies on, in words, where it was not found.
    """

    points: tuple[GridPoint, ...]
    temperature: float | None
    told: str


def fit_class_temperature(calibration: GradedAnswers, *, seed: int = 0) -> ClassTemperature:
    """Fit T_c; see the head of this file.

    Args:
        calibration: questions that are in no test.
        seed: of ties among the modal classes.
    """
    pools = pools_of(calibration)
    right = modal_grades(pools, modal_places(pools, seed)[0])
    assert right is not None, "graded answers have grades"

    def brier(log_temperature: float) -> float:
        return float(((class_confidence(pools, float(np.exp(log_temperature))) - right) ** 2).mean())

    low, high = np.log([LOWEST, HIGHEST])
    # the score need not have a single valley: look at a grid, then within the cells beside its lowest point
    grid = np.linspace(low, high, 121)
    best = int(np.argmin([brier(one) for one in grid]))
    ends = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found = minimize_scalar(brier, bounds=ends, method="bounded", options={"xatol": 1e-6})
    log_t = float(found.x) if found.fun <= brier(grid[best]) else float(grid[best])
    inside = low + _AT_BOUND < log_t < high - _AT_BOUND
    before = brier(0.0)
    # a flat score (every pool of one class) says nothing of T
    flat = before - brier(log_t) < 1e-12
    if flat:
        return ClassTemperature(1.0, False, before, before, len(calibration))
    return ClassTemperature(float(np.exp(log_t)), bool(inside), brier(log_t), before, len(calibration))


def find_sampler_temperature(sampled: Mapping[float, GradedAnswers], *, seed: int = 0) -> SamplerTemperature:
    """Find T_s among samples of the same questions at several temperatures; see the head of this file.

    Args:
        sampled: graded answers by temperature; at least one.
        seed: of ties and half splits.

    Raises:
        ValueError: other questions at another temperature.
    """
    ids = {frozenset(graded.ids) for graded in sampled.values()}
    if len(ids) > 1:
        raise ValueError("the sampler's temperature needs the same questions at every temperature")
    points = []
    for temperature in sorted(sampled):
        reading = read_open(sampled[temperature], seed=seed)
        points.append(GridPoint(temperature, float(reading.sem2.mean()), float(reading.correct.mean()), len(reading)))
    return _zero(tuple(points))


def _zero(points: tuple[GridPoint, ...]) -> SamplerTemperature:
    """Where the gap crosses zero, from too confident at a low T to too little at a high one."""
    for low, high in pairwise(points):
        if low.gap >= 0 >= high.gap and low.gap > high.gap:
            part = low.gap / (low.gap - high.gap)
            log_t = (1 - part) * np.log(low.temperature) + part * np.log(high.temperature)
            return SamplerTemperature(points, float(np.exp(log_t)), "")
    if all(point.gap > 0 for point in points):
        return SamplerTemperature(points, None, f"above {points[-1].temperature:g}: too confident at every temperature")
    if all(point.gap < 0 for point in points):
        return SamplerTemperature(points, None, f"below {points[0].temperature:g}: too little confident at every one")
    return SamplerTemperature(points, None, "not found: the gap does not fall with the temperature")
