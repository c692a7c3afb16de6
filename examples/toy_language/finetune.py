"""Fine-tuning the aligned model by any of the methods, with the package's own steps, losses and controller."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from calmtune.bilevel import LogitAdjustment, adjusted_cross_entropy, negative_entropy
from calmtune.bilevel.self_tuning import EtaController
from calmtune.methods.calm import CalmStep, calm_step
from calmtune.methods.iterate import iterate_step
from calmtune.methods.passes import Direction, PassResult
from calmtune.methods.regularization import regularization_step
from calmtune.methods.sft import plain_step
from calmtune.posthoc import TemperatureScaler
from toy_language.governor import CalibrationGap, GapSource, Governor
from toy_language.language import WORDS
from toy_language.model import ToyModel
from toy_language.recipe import Data, Recipe, Seeds, Tuned


@dataclass(frozen=True)
class BatchPass:
    """The package's ``Pass``: one loss over one batch at whatever theta and alpha hold."""

    model: ToyModel
    theta: Sequence[Tensor]
    adjustment: LogitAdjustment | None
    prompts: Tensor
    answers: Tensor | None  # None: the upper loss, minus the entropy
    smoothing: float = 0.0
    factor: float = 1.0  # of the upper loss

    def __call__(self, *, theta_gradient: bool) -> PassResult:
        """Value and gradients."""
        alpha = [] if self.adjustment is None else list(self.adjustment.parameters())
        with torch.set_grad_enabled(theta_gradient):
            z = self.model(self.prompts)
        with torch.enable_grad():
            if self.answers is None:
                loss = self.factor * negative_entropy(z, self.adjustment)
            else:
                loss = adjusted_cross_entropy(z, self.answers, self.adjustment, label_smoothing=self.smoothing)
        wanted = [*(self.theta if theta_gradient else ()), *alpha]
        gradients = torch.autograd.grad(loss, wanted) if wanted else ()
        split = len(wanted) - len(alpha)
        return PassResult(loss.item(), gradients[:split], gradients[split:])


def batches(data: Data, recipe: Recipe, seed: int) -> Iterator[tuple[tuple[Tensor, Tensor], Tensor]]:
    """Lower batches epoch by epoch; upper batches from a stream of their own, so their size changes nothing below."""
    below, above = (torch.Generator().manual_seed(2 * seed + side) for side in (0, 1))
    prompts, answers = data.train

    def stream(count: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
        left = torch.empty(0, dtype=torch.long)
        while True:
            while len(left) < size:
                left = torch.cat([left, torch.randperm(count, generator=generator)])
            yield left[:size]
            left = left[size:]

    lower, upper = stream(len(prompts), recipe.batch, below), stream(len(data.upper), recipe.upper_batch, above)
    for _ in range(recipe.steps):
        rows = next(lower)
        yield (prompts[rows], answers[rows]), data.upper[next(upper)]


def tune(
    base: ToyModel,
    data: Data,
    recipe: Recipe,
    seeds: Seeds,
    *,
    controller: EtaController | None = None,
    gap: GapSource | None = None,
) -> Tuned:
    """Fine-tune a copy of ``base``.

    ``controller`` and ``gap`` are for experiments with ``eta="auto"``; the defaults are the package's.
    """
    run = _Run(base, data, recipe, seeds)
    governor = Governor(
        recipe, gap or CalibrationGap(data.calibration), controller or EtaController(start=recipe.eta_start)
    )
    for step, (lower, upper) in enumerate(batches(data, recipe, seeds.order)):
        governor.before(run.tuned, lower, upper)
        direction = _direction(run, governor, lower, upper)
        run.take(direction)
        looked = governor.after(step, run.tuned)
        run.tuned.history.append({"step": step, "lower_loss": direction.lower, **direction.logs, **looked})
        run.average(step)
    return run.tuned


class _Run:
    """The model, its adjustment and their optimizers: AdamW and SGD, decaying linearly, as in the package's trainer."""

    def __init__(self, base: ToyModel, data: Data, recipe: Recipe, seeds: Seeds) -> None:
        self.recipe = recipe
        model = copy.deepcopy(base)
        self.theta = model.adapt(torch.Generator().manual_seed(seeds.adapter))
        self.tuned = Tuned(model, _adjustment(model, data, recipe))
        alpha = [] if self.tuned.adjustment is None else list(self.tuned.adjustment.parameters())
        self.parameters = [*self.theta, *alpha]
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(self.theta, lr=recipe.learning_rate, weight_decay=0.0)
        ]
        if alpha:
            self.optimizers.append(torch.optim.SGD(alpha, lr=recipe.alpha_learning_rate))
        self.decay = [torch.optim.lr_scheduler.LambdaLR(o, lambda s: 1 - s / recipe.steps) for o in self.optimizers]
        self.mean = [torch.zeros_like(p) for p in self.parameters]

    def task_update(self, gradients: tuple[Tensor, ...]) -> None:
        """A step of theta's optimizer at once."""
        for parameter, gradient in zip(self.theta, gradients, strict=True):
            parameter.grad = gradient
        self.optimizers[0].step()

    def take(self, direction: Direction | CalmStep) -> None:
        """A step of both optimizers along the direction, and alpha brought back into its bounds."""
        for parameter, gradient in zip(self.parameters, [*direction.theta, *direction.alpha], strict=True):
            parameter.grad = gradient
        for optimizer, schedule in zip(self.optimizers, self.decay, strict=True):
            optimizer.step()
            schedule.step()
        if self.tuned.adjustment is not None:
            self.tuned.adjustment.project_()

    def average(self, step: int) -> None:
        """Add to the mean over the last steps; at the last one, put it in place."""
        last = self.recipe.average
        if not last or step < self.recipe.steps - last:
            return
        for mean, parameter in zip(self.mean, self.parameters, strict=True):
            mean += parameter.detach() / last
        if step == self.recipe.steps - 1:
            for mean, parameter in zip(self.mean, self.parameters, strict=True):
                parameter.data.copy_(mean)


def _adjustment(model: ToyModel, data: Data, recipe: Recipe) -> LogitAdjustment | None:
    if recipe.method not in ("regularization", "iterate", "calm") or recipe.adjustment == "none":
        return None
    adjustment = LogitAdjustment(WORDS, recipe.adjustment)
    if recipe.warm:
        prompts, answers = data.calibration
        fit = TemperatureScaler().fit(model(prompts).detach().numpy(), answers.numpy())
        adjustment.temperature_parameter.data.fill_(math.log(fit.temperature))
        adjustment.project_()
    return adjustment


def _direction(
    run: _Run, governor: Governor, lower_batch: tuple[Tensor, Tensor], upper_batch: Tensor
) -> Direction | CalmStep:
    """What the method hands to the optimizers."""
    recipe, tuned, theta = run.recipe, run.tuned, run.theta
    smoothing = recipe.smoothing if recipe.method == "label_smoothing" else 0.0
    lower = BatchPass(tuned.model, theta, tuned.adjustment, *lower_batch, smoothing=smoothing)
    upper = BatchPass(tuned.model, theta, tuned.adjustment, upper_batch, None, factor=governor.pull)
    if recipe.method == "regularization":
        return regularization_step(lower, upper, weight=recipe.weight)
    if recipe.method == "iterate":
        return iterate_step(lower, upper, task_update=run.task_update)
    if recipe.method == "calm":
        return calm_step(
            theta,
            lower,
            upper,
            eta=governor.eta,
            inner_steps=recipe.inner_steps,
            inner_learning_rate=recipe.inner_learning_rate,
            normalise=governor.automatic if recipe.normalise is None else recipe.normalise,
        )
    return plain_step(lower)
