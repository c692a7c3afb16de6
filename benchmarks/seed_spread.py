"""Where the spread over seeds comes from on the toy language of example 02, and what reduces it.

    python benchmarks/seed_spread.py factors        # one source of chance at a time
    python benchmarks/seed_spread.py remedies       # weight averaging, larger upper batch, ...; all sources at once

The language and the aligned model are fixed; a source is the order of the batches, the fine-tuning data (split), the
start of the adapters, or all three. Cells: standard deviation over runs of the true OOD conf-ECE and accuracy
(adjusted where there is an adjustment), times 1000, as the root mean square over the languages; with a 95 % interval
by bootstrap over the runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from toy_language.experiment import RECIPES, ROLES, make_world, over_seeds, read
from toy_language.finetune import tune
from toy_language.recipe import CALIBRATION, Recipe, Seeds

LANGUAGES = (300, 301)
RUNS = 8
LARGE = 1600
METHODS = ("sft", "calm vector, eta 30", "calm vector, eta auto")
FACTORS = {
    "order": lambda i: Seeds(0, i, 0),
    "split": lambda i: Seeds(i, 0, 0),
    "adapter": lambda i: Seeds(0, 0, i),
    "all": lambda i: Seeds(i, i, i),
}


def remedies() -> dict[str, Recipe]:
    """Variants of eta auto, of a fixed eta and of plain fine-tuning."""
    found: dict[str, Recipe] = {}
    for name in METHODS:
        plain = RECIPES[name]
        found[name] = plain
        for last in (50, 250):
            found[f"{name}, mean of the last {last} steps"] = replace(plain, average=last)
        if plain.method == "calm":
            found[f"{name}, upper batch 256"] = replace(plain, upper_batch=256)
        found[f"{name}, lower batch 128"] = replace(plain, batch=128)
    found[f"{METHODS[-1]}, {LARGE} calibration items"] = RECIPES[METHODS[-1]]
    return found


def figures(language: int, recipe: Recipe, seeds: Seeds, calibration: int) -> tuple[float, ...]:
    """True conf-ECE, accuracy and gap, OOD; then conf-ECE and accuracy ID."""
    torch.set_num_threads(1)
    world = make_world(language, seeds.split, calibration)
    row = read(tune(world.base, world.data, recipe, seeds), world, adjusted=True)
    wanted = (("ece", "ood"), ("accuracy", "ood"), ("gap", "ood"), ("ece", "id"), ("accuracy", "id"))
    return tuple(row.mean(role, name, ROLES) for name, role in wanted)


def deviation(values: np.ndarray) -> float:
    """Root mean square over languages of the standard deviation over runs, times 1000; [runs, languages]."""
    return 1000 * float(np.sqrt(values.var(0, ddof=1).mean()))


def runs_of(language: int, jobs: tuple[tuple[Recipe, str, int], ...]) -> list[list[tuple[float, ...]]]:
    """All runs of all rows on one language, so that its model is made once: [row][run]."""
    torch.set_num_threads(1)
    return [[figures(language, recipe, FACTORS[f](i), count) for i in range(RUNS)] for recipe, f, count in jobs]


def line(title: str, factor: str, found: np.ndarray) -> str:
    """One row from [runs, languages, figures]: standard deviations with intervals, then means."""
    cells = []
    for index in range(found.shape[-1]):
        value = found[..., index]
        rows = np.random.default_rng(0).integers(0, RUNS, (1000, RUNS))
        low, high = np.quantile([deviation(value[r]) for r in rows], [0.025, 0.975])
        cells.append(f"{deviation(value):.1f} [{low:.1f}, {high:.1f}]")
    means = [f"{value:.3f}" for value in found.mean((0, 1))]
    return f"| {title} | {factor} | " + " | ".join([*cells, *means]) + " |"


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=["factors", "remedies"])
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    names = ["conf-ECE OOD", "accuracy OOD", "gap OOD", "conf-ECE ID", "accuracy ID"]
    heads = ["method", "varied", *(f"sd {name} x 1000" for name in names), *(f"mean {name}" for name in names)]
    print("| " + " | ".join(heads) + " |\n| --- | --- |" + " ---: |" * 2 * len(names))
    recipes = remedies() if options.study == "remedies" else {name: RECIPES[name] for name in METHODS}
    factors = ["all"] if options.study == "remedies" else list(FACTORS)
    rows = [(title, factor) for title in recipes for factor in factors]
    sizes = {title: LARGE if f"{LARGE} calibration" in title else CALIBRATION for title in recipes}
    jobs = tuple((recipes[title], factor, sizes[title]) for title, factor in rows)
    results = over_seeds(runs_of, [(language, jobs) for language in LANGUAGES], options.processes)
    for index, (title, factor) in enumerate(rows):
        print(line(title, factor, np.array([result[index] for result in results]).swapaxes(0, 1)))


if __name__ == "__main__":
    main()
