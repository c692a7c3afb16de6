"""The barrier that tunes itself, on the toy language of example 02: where it ends, does it oscillate, what beats it.

    python benchmarks/toy_eta.py fixed          # fixed eta against eta auto from several starts
    python benchmarks/toy_eta.py gains          # gains and the lower bound of the controller
    python benchmarks/toy_eta.py signed         # the entropy's pull follows the gap, with its sign
    python benchmarks/toy_eta.py warm           # tau starts at the base's fitted temperature; a second labelled domain
    python benchmarks/toy_eta.py label_free     # gaps estimated without the calibration split's labels
    python benchmarks/toy_eta.py fixed --picture curves.png

Cells are means over languages with their standard deviation. Languages 200 and up, which neither the settings nor the
table of the example have seen. conf-ECE is the true one, on the adjusted distribution.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from toy_language.experiment import FIXED, RECIPES, ROLES, World, make_world, over_seeds, read
from toy_language.finetune import tune
from toy_language.governor import CalibrationGap, GapSource, gaps_of, mean_and_error
from toy_language.recipe import Recipe, Seeds, Tuned

from calmtune.bilevel.self_tuning import EtaController

LANGUAGES = range(200, 208)
STARTS = (0.5, 1.0, 4.0, 16.0, 64.0)
ETAS = (0.25, 0.5, 1.0, 2.0, 4.0, 10.0, 30.0)
AUTO = {kind: RECIPES[f"calm {kind}, eta auto"] for kind in ("vector", "scalar")}
Figures = dict[str, float]
SIDES = ("id", "ood")


# ---- gaps without the calibration split ---------------------------------------------------------------------------


class Prequential:
    """The gap on each training batch before the step that trains on it: labels of S_T alone.

    Honest in the first epoch; from the second on the items were trained on before, so that accuracy looks too good.
    """

    def __init__(self, batches: int = 5) -> None:
        self.batches, self.seen = batches, list[Tensor]()

    def before(self, tuned: Tuned, lower: tuple[Tensor, Tensor], upper: Tensor) -> None:
        self.seen = [*self.seen, gaps_of(tuned, *lower)][-self.batches :]

    def __call__(self, tuned: Tuned) -> tuple[float, float]:
        return mean_and_error(torch.cat(self.seen))


class Surprise:
    """NLL of a training batch before its step, minus the entropy on S_V: zero on average when calibrated."""

    def __init__(self, batches: int = 5) -> None:
        self.batches, self.seen = batches, list[tuple[Tensor, Tensor]]()

    def before(self, tuned: Tuned, lower: tuple[Tensor, Tensor], upper: Tensor) -> None:
        prompts, answers = lower
        log_p = torch.log_softmax(tuned.logits(prompts, adjusted=True), -1)
        log_v = torch.log_softmax(tuned.logits(upper, adjusted=True), -1)
        pair = -log_p.gather(-1, answers[:, None]).squeeze(-1), -(log_v.exp() * log_v).sum(-1)
        self.seen = [*self.seen, pair][-self.batches :]

    def __call__(self, tuned: Tuned) -> tuple[float, float]:
        surprise, entropy = (torch.cat(side) for side in zip(*self.seen, strict=True))
        error = math.hypot(*(side.std().item() / math.sqrt(len(side)) for side in (surprise, entropy)))
        return (surprise.mean() - entropy.mean()).item() / 4, error / 4  # a nat is about a quarter of a confidence here


class Perturbed:
    """Accuracy estimated on S_V as the rate at which the answer survives noise of relative size ``noise`` on theta."""

    def __init__(self, prompts: Tensor, noise: float) -> None:
        self.prompts, self.noise = prompts, noise
        self.generator = torch.Generator().manual_seed(0)

    def before(self, tuned: Tuned, lower: tuple[Tensor, Tensor], upper: Tensor) -> None:
        pass

    def __call__(self, tuned: Tuned) -> tuple[float, float]:
        theta = [p for p in tuned.model.parameters() if p.requires_grad]
        kept = [p.detach().clone() for p in theta]
        confidence, answer = torch.softmax(tuned.logits(self.prompts, adjusted=True), -1).max(-1)
        for p in theta:
            p.data += self.noise * p.std() * torch.randn(p.shape, generator=self.generator)
        other = tuned.logits(self.prompts, adjusted=True).argmax(-1)
        for p, old in zip(theta, kept, strict=True):
            p.data.copy_(old)
        return mean_and_error(confidence - (answer == other).float())


class Twin:
    """Accuracy estimated on S_V as the rate at which a plain run (other adapters and order) answers the same."""

    def __init__(self, prompts: Tensor, answers: Tensor) -> None:
        self.prompts, self.answers = prompts, answers

    def before(self, tuned: Tuned, lower: tuple[Tensor, Tensor], upper: Tensor) -> None:
        pass

    def __call__(self, tuned: Tuned) -> tuple[float, float]:
        return mean_and_error(gaps_of(tuned, self.prompts, self.answers))


class Worst:
    """The most overconfident of several labelled splits, here the trained and the dev domain's."""

    def __init__(self, parts: list[CalibrationGap]) -> None:
        self.parts = parts

    def before(self, tuned: Tuned, lower: tuple[Tensor, Tensor], upper: Tensor) -> None:
        pass

    def __call__(self, tuned: Tuned) -> tuple[float, float]:
        return max(part(tuned) for part in self.parts)


# ---- one run -------------------------------------------------------------------------------------------------------


def source_of(name: str | None, world: World, seed: int) -> GapSource | None:
    """Where the controller looks; None is the package's choice, the calibration split."""
    data = world.data
    if name is None:
        return None
    if name == "prequential":
        return Prequential()
    if name == "surprise":
        return Surprise()
    if name.startswith("perturbed"):
        return Perturbed(data.upper, float(name.split()[1]))
    if name == "twin":
        other = tune(world.base, data, RECIPES["sft"], Seeds(seed, seed + 1, seed + 1))
        return Twin(data.upper, other.logits(data.upper, adjusted=False).argmax(-1))
    assert name == "two domains"
    labelled = world.language.domains["dev"].sample(400, torch.Generator().manual_seed(seed))
    return Worst([CalibrationGap(data.calibration), CalibrationGap(labelled)])


def run(seed: int, recipe: Recipe, controller: EtaController | None = None, source: str | None = None) -> Figures:
    """Figures of one fine-tuning on one language."""
    torch.set_num_threads(1)
    world = make_world(seed)
    gap = source_of(source, world, seed)
    tuned = tune(world.base, world.data, recipe, Seeds(seed, seed, seed), controller=controller, gap=gap)
    row = read(tuned, world, adjusted=True)
    found = {f"{name} {role}": row.mean(role, name, ROLES) for name in ("ece", "gap", "accuracy") for role in SIDES}
    etas = np.log([h["eta"] for h in tuned.history if "eta" in h] or [1.0 if recipe.eta == "auto" else recipe.eta])
    half = etas[len(etas) // 2 :]
    path = np.abs(np.diff(half)).sum()
    # oscillation: how much of the path of log eta is undone again, in the second half (0: it only drifts)
    found["undone"] = 1 - abs(half[-1] - half[0]) / path if path > 0 else 0.0
    found["eta end"] = float(np.exp(etas[-1]))
    found["tau"] = 1.0 if tuned.adjustment is None else tuned.adjustment.summary()["tau_mean"]
    if gap is not None:
        found["gap as measured"] = float(np.mean([h["gap"] for h in tuned.history[-50:] if "gap" in h]))
    return found


def run_all(seed: int, jobs: tuple[Callable[[int], Figures], ...]) -> list[Figures]:
    """Every variant on one language, so that its model is made once."""
    return [job(seed) for job in jobs]


def show(variants: dict[str, Callable[[int], Figures]], processes: int) -> None:
    """One line a variant: mean (standard deviation over languages)."""
    jobs = tuple(variants.values())
    results = over_seeds(run_all, [(seed, jobs) for seed in LANGUAGES], processes)
    names = list(max(results[0], key=len))
    print("| variant | " + " | ".join(names) + " |\n| --- |" + " ---: |" * len(names))
    for index, title in enumerate(variants):
        cells = []
        for name in names:
            values = np.array([result[index].get(name, math.nan) for result in results])
            cells.append(f"{values.mean():.3f} ({values.std(ddof=1):.3f})" if np.isfinite(values).all() else "")
        print(f"| {title} | " + " | ".join(cells) + " |")


def fixed(kind: str) -> dict[str, Callable[[int], Figures]]:
    """Fixed eta with the alpha learning rate chosen for it, and auto from several starts."""
    found: dict[str, Callable[[int], Figures]] = {}
    for eta in ETAS:
        tuned_for = max(eta, 0.5)
        found[f"{kind} eta {eta:g}"] = partial(run, recipe=replace(FIXED[kind, tuned_for], eta=eta))
        same = replace(AUTO[kind], eta=eta, normalise=True)
        found[f"{kind} eta {eta:g}, normalised"] = partial(run, recipe=same)
    for start in STARTS:
        found[f"{kind} auto from {start:g}"] = partial(run, recipe=replace(AUTO[kind], eta_start=start))
    return found


def gains(kind: str) -> dict[str, Callable[[int], Figures]]:
    """The controller's gains, drift and lower bound, one at a time around the defaults."""
    changes = [{}]
    changes += [{"proportional": p} for p in (0.0, 2.0, 5.0, 20.0, 40.0)]
    changes += [{"integral": i} for i in (0.1, 0.3, 3.0, 10.0)]
    changes += [{"drift": d} for d in (0.01, 0.02, 0.2)]
    changes += [{"low": low, "start": max(1.0, low)} for low in (0.1, 1.0, 2.0, 4.0)]
    changes += [{"proportional": 0.0, "integral": 5.0}]
    return {
        f"{kind} {change or 'default'}": partial(controlled, recipe=AUTO[kind], change=change) for change in changes
    }


def controlled(seed: int, recipe: Recipe, change: dict[str, float]) -> Figures:
    """A run under a controller made anew for it."""
    return run(seed, recipe, controller=EtaController(**change))


def label_free(kind: str) -> dict[str, Callable[[int], Figures]]:
    """Other sources of the gap."""
    sources = (None, "prequential", "surprise", "perturbed 0.1", "perturbed 0.3", "perturbed 1.0", "twin")
    return {
        f"{kind} {source or 'calibration split'}": partial(run, recipe=AUTO[kind], source=source) for source in sources
    }


def signed(kind: str) -> dict[str, Callable[[int], Figures]]:
    """Instead of eta the entropy's pull follows the gap, with its sign: underconfident, entropy falls."""
    rate = {"vector": 1.0, "scalar": 0.03}[kind]
    found: dict[str, Callable[[int], Figures]] = {f"{kind} eta auto": partial(run, recipe=AUTO[kind])}
    for gain in (3.0, 10.0, 30.0):
        for eta in (1.0, 4.0):
            for share in (0.1, 0.3):
                recipe = replace(FIXED[kind, eta], signed=gain, alpha_learning_rate=rate * share)
                found[f"{kind} signed {gain:g}, eta {eta:g}, alpha lr {rate * share:g}"] = partial(run, recipe=recipe)
    return found


def warm(kind: str) -> dict[str, Callable[[int], Figures]]:
    """tau starts at the base's fitted temperature, so that theta finds no overconfidence to unlearn in domain."""
    rate = {"vector": 1.0, "scalar": 0.03}[kind]
    joint = replace(RECIPES["sft with alpha"], adjustment=kind, alpha_learning_rate=0.3 * rate)
    pulled = replace(FIXED[kind, 1.0], signed=10.0, alpha_learning_rate=0.3 * rate)
    found: dict[str, Callable[[int], Figures]] = {}
    for start in (False, True):
        name = f"{kind} {'warm' if start else 'cold'}"
        found[f"{name} sft with alpha"] = partial(run, recipe=replace(joint, warm=start))
        found[f"{name} sft, alpha kept"] = partial(run, recipe=replace(joint, warm=start, alpha_learning_rate=0.0))
        found[f"{name} regularization .2"] = partial(run, recipe=replace(joint, warm=start, weight=0.2))
        found[f"{name} eta 30"] = partial(run, recipe=replace(FIXED[kind, 30.0], warm=start))
        found[f"{name} eta 30, alpha lr / 10"] = partial(
            run, recipe=replace(FIXED[kind, 30.0], warm=start, alpha_learning_rate=0.003 * rate)
        )
        found[f"{name} eta auto"] = partial(run, recipe=replace(AUTO[kind], warm=start))
        found[f"{name} eta auto, P 40"] = partial(
            controlled, recipe=replace(AUTO[kind], warm=start), change={"proportional": 40.0}
        )
        found[f"{name} signed"] = partial(run, recipe=replace(pulled, warm=start))
        two = {"source": "two domains"}
        found[f"{name} eta auto, two domains"] = partial(run, recipe=replace(AUTO[kind], warm=start), **two)
        found[f"{name} signed, two domains"] = partial(run, recipe=replace(pulled, warm=start), **two)
    return found


STUDIES = {"warm": warm, "signed": signed, "fixed": fixed, "gains": gains, "label_free": label_free}


def main() -> None:
    """Run a study and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=list(STUDIES))
    parser.add_argument("--kind", choices=["vector", "scalar"], default="vector")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--picture", type=Path, help="with fixed: draw log eta and the gap of one language from each start"
    )
    options = parser.parse_args()
    show(STUDIES[options.study](options.kind), options.processes)
    if options.picture is not None:
        draw(options.picture, options.kind)


def draw(path: Path, kind: str) -> None:
    """eta, the measured gap, and tau's level over training from every start."""
    from calmtune.report.figures import new_figure, report_style, to_png

    world = make_world(LANGUAGES[0])
    with report_style():
        figure = new_figure(7.5, 3.0)
        left, right = figure.subplots(1, 2)
        for start in STARTS:
            tuned = tune(world.base, world.data, replace(AUTO[kind], eta_start=start), Seeds(200, 200, 200))
            looks = [h for h in tuned.history if "eta" in h]
            steps = [h["step"] for h in looks]
            left.plot(steps, [h["eta"] for h in looks], linewidth=1, label=f"start {start:g}")
            right.plot(steps, [h["gap"] for h in looks], linewidth=1)
        left.set(yscale="log", title="eta", xlabel="step")
        right.set(title="gap on the calibration split", xlabel="step")
        right.axhline(0, linewidth=0.6, color="black")
        left.yaxis.set_major_formatter("{x:g}")
        left.legend(frameon=False)
        path.write_bytes(to_png(figure))


if __name__ == "__main__":
    main()
