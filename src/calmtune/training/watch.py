"""What labelled held-out rows are watched for while training goes on: eta, and which checkpoint is best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from calmtune.bilevel import EtaController, LogitAdjustment
from calmtune.training.arguments import CalmConfig
from calmtune.training.holdout import HeldOut, selection_loss
from calmtune.training.streams import batch_at


@dataclass
class Watch:
    """Measures the calibration rows when it is time.

    Args:
        held_out: the calibration rows; none where nothing needs them.
        controller: of eta, or None where it is a number.

    Attributes:
        start_accuracy: on the calibration rows before the first step; None until it was measured.
    """

    args: CalmConfig
    model: nn.Module
    adjustment: LogitAdjustment | None
    held_out: HeldOut
    controller: EtaController | None
    start_accuracy: float | None = None

    def start(self) -> None:
        """Measure where the model stands, if checkpoints are to be compared with it."""
        if self.args.eval_strategy != "no" and self.held_out.items:
            self.start_accuracy = self.held_out.score(self.model, self.adjustment).accuracy

    def before_step(self, step: int) -> dict[str, float]:
        """Every ``eta_update_steps`` steps: measure the gap on the next few items, let eta follow; what to log."""
        args, size = self.args, min(self.args.eta_items, len(self.held_out.items))
        if self.controller is None or step % args.eta_update_steps:
            return {}
        indices = batch_at(step // args.eta_update_steps, size, len(self.held_out.items), args.seed)
        scores = self.held_out.score(self.model, self.adjustment, indices)
        gaps = scores.gaps(by_domain=args.eta_domains == "worst")
        eta = self.controller.update(gaps)
        return {
            "eta": eta,
            "gap": float(self.controller.gap or 0.0),
            "gap_measured": max(gap for gap, _ in gaps.values()),
        }

    def selection(self) -> dict[str, float]:
        """Figures of the calibration rows, and the loss that the best checkpoint has least of."""
        scores = self.held_out.score(self.model, self.adjustment)
        start = scores.accuracy if self.start_accuracy is None else self.start_accuracy
        floor = start - self.args.selection_accuracy_drop
        loss = selection_loss(scores, self.args.selection_metric, self.args.selection_domains, floor)
        return {**scores.summary(), "selection_loss": loss}

    def choice(self, state: Any) -> dict[str, Any] | None:
        """Which checkpoint was chosen and how, as a record; None where none was chosen (yet).

        Args:
            state: the trainer's ``TrainerState``.
        """
        args = self.args
        if not args.load_best_model_at_end or state.best_model_checkpoint is None:
            return None
        return {
            "step": state.best_global_step,
            "metric": args.metric_for_best_model,
            "value": state.best_metric,
            "selection_metric": args.selection_metric,
            "selection_domains": args.selection_domains,
            "start_accuracy": self.start_accuracy,
            "accuracy_drop": args.selection_accuracy_drop,
        }

    def state(self) -> dict[str, Any]:
        """JSON values for a checkpoint."""
        controller = None if self.controller is None else self.controller.state()
        return {"start_accuracy": self.start_accuracy, "controller": controller}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` gave.

        Raises:
            ValueError: a checkpoint is to be chosen, but the interrupted run did not measure where it started.
        """
        if self.args.load_best_model_at_end and self.held_out.items and state["start_accuracy"] is None:
            raise ValueError(
                "load_best_model_at_end was off when this run began, so the accuracy that a checkpoint must hold was "
                "not measured; leave it off, or begin again"
            )
        self.start_accuracy = state["start_accuracy"]
        if self.controller is not None:
            self.controller.load(state["controller"])
