"""One optimizer step of each method: the passes it needs over the step's batches, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from calmtune.bilevel import EtaController, LogitAdjustment, PullController
from calmtune.methods.calm import CalmStep, calm_step
from calmtune.methods.iterate import iterate_step
from calmtune.methods.passes import Direction, Pass, PassResult
from calmtune.methods.regularization import regularization_step
from calmtune.methods.sft import plain_step
from calmtune.modeling.frozen_trunk import FrozenTrunk
from calmtune.training.answer_levels import RegularisedAnswerLevel
from calmtune.training.arguments import CalmConfig
from calmtune.training.levels import Level, LowerLevel, Sums
from calmtune.training.own_answers import OwnAnswers
from calmtune.training.passes import BatchPass
from calmtune.training.processes import ALONE, Processes
from calmtune.training.streams import batch_at, lower_batch_size, micro_batches

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
        controller: of eta or of the entropy's pull, or None where eta is a number.
        processes: those that share each batch.
        spare: an example of S_T, for a process that must run the model and has nothing to run it on.
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
    controller: EtaController | PullController | None = None
    own_answers: OwnAnswers | None = None
    processes: Processes = ALONE
    spare: Any = None
    sums: Sums | None = field(default=None, init=False)
    trunk: FrozenTrunk = field(init=False)

    def __post_init__(self) -> None:
        # the other methods read no batch twice
        self.trunk = FrozenTrunk.of(self.model) if self.args.method == "calm" else FrozenTrunk()

    def __call__(self, batches: Batches, step: int, *, logs: bool) -> Direction | CalmStep:
        """The direction at this step; ``sums`` then holds the entropies to be logged, or None.

        Args:
            batches: this process's micro-batches of B_T, or none of them.
            step: steps taken so far. logs: whether to measure the entropies.
        """
        args, theta = self.args, self.theta
        self.trunk.forget()  # other batches come
        if (seen := getattr(self.level, "seen", None)) is not None:
            seen.clear()  # a step that was refused has left its gaps
        if isinstance(self.lower, RegularisedAnswerLevel):
            self.lower.parts = {}  # a step that was refused has left its sums
        lower, self.sums = self.lower_pass(batches, step), None
        if not args.has_upper_level:
            direction = plain_step(lower)
            if isinstance(self.lower, RegularisedAnswerLevel):
                parts = self.processes.merged({name: (part,) for name, part in self.lower.parts.items()})
                self.lower.parts = {name: part for name, (part,) in parts.items()}
                direction = replace(direction, logs=self.lower.take_logs(lower.count))
            return direction
        self.sums = {} if logs else None
        above, count = self._counted(partial(self.upper_batches, step), self.level.upper_count)
        upper: Pass = self._upper_pass(above, count, step)
        if step == 0 and args.entropy_target is None:
            upper = partial(_probed, upper)
        if self.controller is not None and self.controller.pull != 1.0:
            upper = partial(_pulled, upper, self.controller.pull)
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
            normalise=self.controller is not None and self.controller.normalise,
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
            with self.autocast(), self.trunk.reading(batch):
                return loss(self.model, batch, self.adjustment, theta=theta_gradient)

        # each process draws dropout of its own
        place = place * self.processes.count + self.processes.rank
        seed = (self.args.seed * 1_000_003 + place) % 2**63
        idle = self._idle(name, len(batches)) if self.processes.lockstep else []
        return BatchPass(name, batches, total, count, self.theta, alpha, seed, self.args.device, self.processes, idle)

    def _idle(self, name: str, here: int) -> list[Callable[[bool], Tensor]]:
        """As many runs as this process has fewer micro-batches than another, on an example that counts for nothing."""
        missing = max(self.processes.gather(here)) - here
        loss = self.lower.lower if name == "lower" else partial(self.level.upper, logs=None)
        example = self.spare if name == "lower" else self.upper_examples[0]

        def run(batch: Any, theta_gradient: bool) -> Tensor:
            with self.autocast(), self.trunk.reading(batch):
                return loss(self.model, batch, self.adjustment, theta=theta_gradient)

        return [partial(run, self.prepare([example])) for _ in range(missing)]

    def _counted(self, make: Callable[[], Batches], count: Callable[[Any], int]) -> tuple[Batches, int]:
        """This process's micro-batches, and what counts in those of all processes."""
        total = torch.zeros((), dtype=torch.float64)
        with self.processes.summed(total):
            batches = make()
            total += sum(map(count, batches))
        return batches, int(total)

    def lower_pass(self, batches: Batches, step: int) -> BatchPass:
        """g over these micro-batches and those of the other processes."""
        batches, count = self._counted(lambda: batches, self.lower.lower_count)
        return self._pass("lower", batches, self.lower.lower, count, 2 * step)

    def upper_pass(self, batches: Batches, step: int) -> BatchPass:
        """f over these micro-batches and those of the other processes; fills ``sums`` where it is not None."""
        return self._upper_pass(*self._counted(lambda: batches, self.level.upper_count), step)

    def _upper_pass(self, batches: Batches, count: int, step: int) -> BatchPass:
        return self._pass("upper", batches, partial(self.level.upper, logs=self.sums), count, 2 * step + 1)

    def upper_batches(self, step: int) -> list[Any]:
        """This process's micro-batches of B_V at this step."""
        args = self.args
        size = args.upper_batch_size or lower_batch_size(args, self.processes)
        indices = self.processes.mine(batch_at(step, size, len(self.upper_examples), args.seed))
        most = args.upper_micro_batch_size or args.per_device_train_batch_size
        examples = [self.upper_examples[i] for i in indices]
        if self.own_answers is not None and examples:
            examples = self.own_answers(examples, step * self.processes.count + self.processes.rank)
        return [self.prepare(piece) for piece in micro_batches(examples, most)]


def _probed(run: Pass, *, theta_gradient: bool) -> PassResult:
    """The pass, refused where nothing would follow the entropy."""
    result = run(theta_gradient=theta_gradient)
    if not any(bool(torch.any(gradient)) for gradient in (*result.alpha, *result.theta)):
        raise ValueError(
            "the entropy has no gradient at the first step, so nothing would be calibrated; does anything that it "
            "depends on require gradients (adapters on, adjustment other than none)?"
        )
    return result


def _pulled(run: Pass, pull: float, *, theta_gradient: bool) -> PassResult:
    """The pass of the upper loss times a number."""
    result = run(theta_gradient=theta_gradient)
    return PassResult(
        pull * result.value, tuple(pull * part for part in result.theta), tuple(pull * part for part in result.alpha)
    )
