"""True reliability diagrams of one seed: base, plain fine-tuning and CALM, in and out of domain."""

from __future__ import annotations

from pathlib import Path

import torch

from calmtune.report.figures import ACCENT, INK, MUTED, new_figure, report_style, to_png
from toy_language.experiment import RECIPES, make_world
from toy_language.finetune import tune
from toy_language.recipe import Seeds, Tuned
from toy_language.truth import BINS, binned_gaps, confidence_and_truth, true_ece

MODELS = {"base": None, "sft": "sft", "CALM, eta auto": "calm vector, eta auto"}


def save_reliability(path: Path, seed: int = 0) -> Path:
    """Write a PNG: columns are models, rows are the trained domain and the OOD domains in equal parts.

    Every point is exact: the mean confidence of a bin and the true probability that its answers are right; the bars
    show how probable the bin is.
    """
    world = make_world(seed)
    language = world.language
    groups = {"in domain": language.role("id"), "out of domain": language.role("ood")}
    with report_style():
        figure = new_figure(2.5 * len(MODELS), 5.0)
        grid = figure.subplots(len(groups), len(MODELS), squeeze=False, sharex=True, sharey=True)
        for x, (title, name) in enumerate(MODELS.items()):
            seeds = Seeds(seed, seed, seed)
            tuned = Tuned(world.base, None) if name is None else tune(world.base, world.data, RECIPES[name], seeds)
            for y, (group, domains) in enumerate(groups.items()):
                pairs = [confidence_and_truth(tuned.logits(d.prompts, adjusted=True), d) for d in domains]
                confidence, truth = (torch.cat(side) for side in zip(*pairs, strict=True))
                weight = torch.cat([d.weight for d in domains]) / len(domains)
                mass, sure, right = binned_gaps(confidence, truth, weight)
                axes = grid[y, x]
                axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
                axes.bar([(b + 0.5) / BINS for b in range(BINS)], mass, width=0.09, color=ACCENT, alpha=0.25)
                axes.plot(sure, right, color=INK, marker="o", markersize=3.4, linewidth=1)
                axes.set(xlim=(0, 1), ylim=(0, 1))
                axes.set_title(f"{title}, {group}\ntrue conf-ECE {true_ece(confidence, truth, weight):.3f}")
                axes.set_xlabel("confidence" if y else "")
                axes.set_ylabel("true accuracy" if x == 0 else "")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(to_png(figure))
    return path
