"""Rows of the comparison: which recipe, read how; run over seeds, in as many processes as wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from calmtune.metrics import bootstrap_interval
from calmtune.posthoc import TemperatureScaler
from toy_language.finetune import tune
from toy_language.language import PLANS, Language, make_language
from toy_language.model import ToyModel, align, pretrained
from toy_language.recipe import CALIBRATION, Data, Recipe, Seeds, Tuned, draw_data
from toy_language.truth import Truth, true_figures

# settings as chosen by toy_language/tuning.py; steps, batches and the rest are the same for every method
VECTOR = Recipe("calm", alpha_learning_rate=0.03)
SCALAR = Recipe("calm", alpha_learning_rate=0.001, adjustment="scalar")
FIXED = {
    ("vector", 0.5): VECTOR,
    ("vector", 1.0): VECTOR,
    ("vector", 2.0): VECTOR,
    ("vector", 4.0): VECTOR,
    ("vector", 10.0): replace(VECTOR, learning_rate=3e-3),
    ("vector", 30.0): VECTOR,
    ("scalar", 0.5): replace(SCALAR, alpha_learning_rate=0.003),
    **{("scalar", eta): SCALAR for eta in (1.0, 2.0, 4.0, 10.0, 30.0)},
}
FIXED = {(kind, eta): replace(recipe, eta=eta) for (kind, eta), recipe in FIXED.items()}
TUNED_ETA = 30.0  # the best fixed eta there, for either kind; the grid ended there, and 10 was as good within .01
RECIPES: dict[str, Recipe] = {
    "sft": Recipe("sft"),
    "sft with alpha": Recipe("regularization", weight=0.0, alpha_learning_rate=0.3),
    "label smoothing": Recipe("label_smoothing", smoothing=0.1),
    "regularization, no alpha": Recipe("regularization", weight=0.2, adjustment="none"),
    "regularization": Recipe("regularization", weight=0.2, alpha_learning_rate=0.3),
    "iterate": Recipe("iterate", alpha_learning_rate=0.03),
    **{f"calm vector, eta {eta:g}": FIXED["vector", eta] for eta in (0.5, 1.0, 2.0, TUNED_ETA)},
    "calm vector, eta auto": Recipe("calm", eta="auto", alpha_learning_rate=0.3),
    **{f"calm scalar, eta {eta:g}": FIXED["scalar", eta] for eta in (1.0, TUNED_ETA)},
    "calm scalar, eta auto": Recipe("calm", eta="auto", alpha_learning_rate=0.01, adjustment="scalar"),
}


class World(NamedTuple):
    """One seed's language, its aligned model, and the fine-tuning data."""

    language: Language
    base: ToyModel
    data: Data


@lru_cache(maxsize=2)
def _start(seed: int) -> tuple[Language, ToyModel]:
    language = make_language(seed)
    return language, align(pretrained(language, seed), language, seed)


def make_world(seed: int, split: int | None = None, calibration_count: int = CALIBRATION) -> World:
    """The same seed gives the same world; ``split`` draws other fine-tuning data in it."""
    language, base = _start(seed)
    return World(language, base, draw_data(language.training, seed if split is None else split, calibration_count))


@dataclass(frozen=True)
class Row:
    """One row of the table for one seed: figures by domain, and the temperature where one was fitted."""

    figures: dict[str, Truth]
    temperature: float | None = None

    def mean(self, role: str, name: str, language_roles: Mapping[str, str]) -> float:
        """A figure averaged over the domains of a role."""
        return float(np.mean([getattr(t, name) for d, t in self.figures.items() if language_roles[d] == role]))


def read(tuned: Tuned, world: World, *, adjusted: bool, scaled: bool = False) -> Row:
    """The true figures of a model, raw or adjusted; ``scaled``: with a temperature fitted on the calibration split."""
    factor = None
    if scaled:
        prompts, answers = world.data.calibration
        z = tuned.logits(prompts, adjusted=adjusted)
        factor = TemperatureScaler().fit(z.numpy(), answers.numpy()).temperature

    def logits(prompts: Tensor) -> Tensor:
        z = tuned.logits(prompts, adjusted=adjusted)
        return z if factor is None else z / factor

    return Row({name: true_figures(logits(d.prompts), d) for name, d in world.language.domains.items()}, factor)


def run_seed(seed: int, names: Sequence[str]) -> dict[str, Row]:
    """All rows of one seed: every recipe raw and adjusted, and with temperature scaling on top."""
    world = make_world(seed)
    rows = readings("base", Tuned(world.base, None), world)
    for name in names:
        rows |= readings(name, tune(world.base, world.data, RECIPES[name], Seeds(seed, seed, seed)), world)
    return rows


def readings(name: str, tuned: Tuned, world: World) -> dict[str, Row]:
    """The rows of one model: raw (and adjusted where it has an adjustment), then the same with TS."""
    kinds = {"": False} if tuned.adjustment is None else {" raw": False, " adjusted": True}
    plain = {f"{name}{kind}": read(tuned, world, adjusted=value) for kind, value in kinds.items()}
    last, value = list(kinds.items())[-1]
    return plain | {f"{name}{last} + TS": read(tuned, world, adjusted=value, scaled=True)}


def over_seeds(function: Callable[..., Any], jobs: Iterable[tuple[Any, ...]], processes: int) -> list[Any]:
    """``function(*job)`` for every job, in order; one thread a process, since the models are tiny."""
    jobs = list(jobs)
    if processes <= 1:
        return [function(*job) for job in jobs]
    with ProcessPoolExecutor(processes, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        return list(pool.map(function, *zip(*jobs, strict=True)))


ROLES = {plan.name: plan.role for plan in PLANS}
COLUMNS = (
    ("ece", "id"),
    ("ece", "ood"),
    ("ece", "unseen"),
    ("accuracy", "id"),
    ("accuracy", "ood"),
    ("gap", "ood"),
    ("divergence", "ood"),
)


def column(results: Sequence[dict[str, Row]], row: str, name: str, role: str) -> np.ndarray:
    """One figure of one row by seed."""
    return np.array([result[row].mean(role, name, ROLES) for result in results])


def table(results: Sequence[dict[str, Row]]) -> list[str]:
    """Lines of a Markdown table: mean over seeds and its bootstrap interval over seeds."""
    heads = [f"{'true conf-ECE' if name == 'ece' else name} {role.upper()}" for name, role in COLUMNS]
    lines = ["| method | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    for row in results[0]:
        cells = []
        for name, role in COLUMNS:
            value = bootstrap_interval(np.mean, column(results, row, name, role))
            cells.append(f"{value.estimate:.3f} [{value.low:.3f}, {value.high:.3f}]")
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return lines
