"""How each method's settings were chosen: on languages of their own, by the trained and the dev domain alone.

Every method gets a grid over its own knobs and the learning rate; the setting with the lowest true divergence
E KL(truth || model), averaged over the two domains and the languages, is kept. Divergence is the expected NLL less a
constant, so accuracy and calibration both count. It is read on the adjusted distribution where there is one. The
domains and the languages of the report are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import torch

from toy_language.experiment import ROLES, Row, make_world, over_seeds, read
from toy_language.finetune import tune
from toy_language.recipe import Recipe, Seeds

LANGUAGES = range(100, 105)
LEARNING_RATES = (1e-3, 3e-3)
ETAS = (0.5, 1.0, 2.0, 4.0, 10.0, 30.0)
ALPHA_RATES = {"vector": (0.01, 0.03, 0.1), "scalar": (0.001, 0.003, 0.01)}  # a scalar's gradient sums over all classes
AUTO_ALPHA_RATES = {"vector": (0.1, 0.3, 0.9), "scalar": (0.003, 0.01, 0.03)}  # its direction is divided by 1 + lambda


def grid() -> Iterator[tuple[str, Recipe]]:
    """(row, candidate), every candidate of every row."""
    for rate in (3e-4, *LEARNING_RATES):
        yield "sft", Recipe("sft", learning_rate=rate)
    for rate, smoothing in product(LEARNING_RATES, (0.05, 0.1, 0.2)):
        yield "label smoothing", Recipe("label_smoothing", learning_rate=rate, smoothing=smoothing)
    for rate, weight in product(LEARNING_RATES, (0.1, 0.2, 0.4)):
        plain = Recipe("regularization", learning_rate=rate, weight=weight)
        yield "regularization, no alpha", replace(plain, adjustment="none")
        for alpha_rate in (0.1, 0.3, 1.0):
            yield "regularization", replace(plain, alpha_learning_rate=alpha_rate)
    for rate, alpha_rate in product(LEARNING_RATES, (0.003, 0.01, 0.03, 0.1)):
        yield "iterate", Recipe("iterate", learning_rate=rate, alpha_learning_rate=alpha_rate)
    for kind, rates in ALPHA_RATES.items():
        for eta, rate, alpha_rate in product(ETAS, LEARNING_RATES, rates):
            recipe = Recipe("calm", learning_rate=rate, alpha_learning_rate=alpha_rate, adjustment=kind, eta=eta)
            yield f"calm {kind}, eta {eta:g}", recipe
        for rate, alpha_rate in product(LEARNING_RATES, AUTO_ALPHA_RATES[kind]):
            recipe = Recipe("calm", learning_rate=rate, alpha_learning_rate=alpha_rate, adjustment=kind, eta="auto")
            yield f"calm {kind}, eta auto", recipe


def candidates_of(seed: int) -> list[Row]:
    """Every candidate's figures on one language."""
    torch.set_num_threads(1)
    world = make_world(seed)
    tuned = (tune(world.base, world.data, recipe, Seeds(seed, seed, seed)) for _, recipe in grid())
    return [read(one, world, adjusted=True) for one in tuned]


def choose(processes: int) -> None:
    """Print every candidate, then the choice of each row."""
    results = over_seeds(candidates_of, [(seed,) for seed in LANGUAGES], processes)

    def mean(index: int, name: str, role: str) -> float:
        return float(np.mean([rows[index].mean(role, name, ROLES) for rows in results]))

    best: dict[str, tuple[float, Recipe]] = {}
    for index, (row, recipe) in enumerate(grid()):
        score = (mean(index, "divergence", "id") + mean(index, "divergence", "dev")) / 2
        figures = "  ".join(
            f"{name} {mean(index, name, 'id'):.3f} {mean(index, name, 'dev'):.3f}" for name in ("ece", "accuracy")
        )
        print(f"{row:26s} lr {recipe.learning_rate:g}  alpha lr {recipe.alpha_learning_rate:g}  w {recipe.weight:g}  "
              f"eps {recipe.smoothing:g}  divergence {score:.3f}  {figures}")  # fmt: skip
        if row not in best or score < best[row][0]:
            best[row] = score, recipe
    print("\nchosen")
    for row, (score, recipe) in best.items():
        print(f"{row:26s} {score:.3f}  {recipe}")
