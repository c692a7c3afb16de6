"""One optimizer step of each method: the passes it needs over the step's batches, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from calmtune.bilevel import EtaController, LogitAdjustment
from calmtune.methods.calm import CalmStep, calm_step
from calmtune.methods.iterate import iterate_step
from calmtune.methods.passes import Direction, Pass, PassResult
from calmtune.methods.regularization import regularization_step
from calmtune.methods.sft import plain_step
from calmtune.training.answer_levels import RegularisedAnswerLevel
from calmtune.training.arguments import CalmConfig
from calmtune.training.levels import Level, LowerLevel, Sums
from calmtune.training.passes import BatchPass
from calmtune.training.streams import batch_at, micro_batches

Batches = Sequence[Any]


@dataclass
class MethodStep:
    """Computes the direction of one step.

    Args:
        args: the method and its settings.
        model, adjustment, level: what is trained, and where it is read.
        lower: where the lower loss is read; the level itself but for CFT and RCFT.
        upper_examples: S_V, encoded.
        prepare: a list of examples to a batch on the device. autocast: the trainer's.
        task_update: lets theta's optimizer take a step at once (``iterate``).
        controller: of eta, or None where eta is a number.
    """

    args: CalmConfig
    model: nn.Module
    adjustment: LogitAdjustment | None
    level: Level
    lower: LowerLevel
    upper_examples: Sequence[Any]
    prepare: Callable[[list[Any]], Any]
    autocast: Callable[[], AbstractContextManager[Any]]
    task_update: Callable[[tuple[Tensor, ...]], None]
    controller: EtaController | None = None
    sums: Sums | None = field(default=None, init=False)

    def __call__(self, batches: Batches, step: int, *, logs: bool) -> Direction | CalmStep:
        """The direction at this step; ``sums`` then holds the entropies to be logged, or None.

        Args:
            batches: the micro-batches of B_T. step: steps taken so far. logs: whether to measure the entropies.
        """
        args, theta = self.args, self.theta
        if isinstance(self.lower, RegularisedAnswerLevel):
            self.lower.parts = {}  # a step that was refused has left its sums
        lower, self.sums = self.lower_pass(batches, step), None
        if not args.has_upper_level:
            direction = plain_step(lower)
            if isinstance(self.lower, RegularisedAnswerLevel):
                direction = replace(direction, logs=self.lower.take_logs(lower.count))
            return direction
        self.sums = {} if logs else None
        upper: Pass = self.upper_pass(self.upper_batches(step), step)
        if step == 0 and args.entropy_target is None:
            upper = partial(_probed, upper)
        if args.method == "regularization":
            return regularization_step(lower, upper, weight=args.entropy_weight)
        if args.method == "iterate":
            return iterate_step(lower, upper, task_update=self.task_update)
        return calm_step(
            theta,
            lower,
            upper,
            eta=self.eta,
            barrier=args.barrier,
            inner_steps=args.inner_steps,
            inner_learning_rate=args.inner_learning_rate,
            upper_gradient=args.upper_gradient,
            normalise=self.controller is not None,
        )

    @property
    def theta(self) -> list[Tensor]:
        """The trainable parameters of the model."""
        return [p for p in self.model.parameters() if p.requires_grad]

    @property
    def eta(self) -> float:
        """The barrier's strength at this step."""
        return self.controller.eta if self.controller is not None else float(self.args.eta)

    def _pass(self, name: str, batches: Batches, loss: Callable[..., Tensor], count: int, place: int) -> BatchPass:
        alpha = [] if self.adjustment is None else list(self.adjustment.parameters())

        def total(batch: Any, theta_gradient: bool) -> Tensor:
            with self.autocast():
                return loss(self.model, batch, self.adjustment, theta=theta_gradient)

        seed = (self.args.seed * 1_000_003 + place) % 2**63
        return BatchPass(name, batches, total, count, self.theta, alpha, seed, self.args.device)

    def lower_pass(self, batches: Batches, step: int) -> BatchPass:
        """g over these micro-batches."""
        return self._pass("lower", batches, self.lower.lower, sum(map(self.lower.lower_count, batches)), 2 * step)

    def upper_pass(self, batches: Batches, step: int) -> BatchPass:
        """f over these micro-batches; fills ``sums`` where it is not None."""
        loss = partial(self.level.upper, logs=self.sums)
        return self._pass("upper", batches, loss, sum(map(self.level.upper_count, batches)), 2 * step + 1)

    def upper_batches(self, step: int) -> list[Any]:
        """The micro-batches of B_V at this step."""
        args = self.args
        size = args.upper_batch_size or args.per_device_train_batch_size * args.gradient_accumulation_steps
        indices = batch_at(step, size, len(self.upper_examples), args.seed)
        most = args.upper_micro_batch_size or args.per_device_train_batch_size
        return [self.prepare(piece) for piece in micro_batches([self.upper_examples[i] for i in indices], most)]


def _probed(run: Pass, *, theta_gradient: bool) -> PassResult:
    """The pass, refused where nothing would follow the entropy."""
    result = run(theta_gradient=theta_gradient)
    if not any(bool(torch.any(gradient)) for gradient in (*result.alpha, *result.theta)):
        raise ValueError(
            "the entropy has no gradient at the first step, so nothing would be calibrated; does anything that it "
            "depends on require gradients (adapters on, adjustment other than none)?"
        )
    return result
