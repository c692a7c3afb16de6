"""What labelled held-out rows are watched for while training goes on: eta, and which checkpoint is best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from calmtune.bilevel import EtaController, LogitAdjustment, PullController
from calmtune.posthoc import TemperatureScaler
from calmtune.training.arguments import CalmConfig
from calmtune.training.before_seen import BeforeSeen
from calmtune.training.holdout import HeldOut, selection_loss
from calmtune.training.streams import batch_at


def blend(gap: tuple[float, float], other: tuple[float, float], share: float) -> tuple[float, float]:
    """(1 - share) gap + share other, of two independent (value, standard error) pairs.

    >>> value, error = blend((0.2, 0.03), (0.4, 0.04), 0.5)
    >>> round(value, 6), round(error, 6)
    (0.3, 0.025)
    """
    keep = 1.0 - share
    return keep * gap[0] + share * other[0], math.hypot(keep * gap[1], share * other[1])


@dataclass
class Watch:
    """Measures the calibration rows when it is time.

    Args:
        held_out: the calibration rows; none where nothing needs them.
        controller: of eta or of the pull, or None where eta is a number.
        before_seen: gaps of the training rows, where eta follows those.
        shuffled: calibration questions under foreign options; none unless ``eta_shuffled``.

    Attributes:
        start_accuracy: on the calibration rows before the first step; None until it was measured.
    """

    args: CalmConfig
    model: nn.Module
    adjustment: LogitAdjustment | None
    held_out: HeldOut
    controller: EtaController | PullController | None
    shuffled: HeldOut
    before_seen: BeforeSeen
    start_accuracy: float | None = None

    def start(self) -> None:
        """Before the first step: tau to where it begins, and where the model stands if checkpoints are compared."""
        if self.args.adjustment_start == "calibrated" and self.adjustment is not None:
            self.adjustment.start_at_(self._fitted_temperature())
        if self.args.eval_strategy != "no" and self.held_out.items:
            self.start_accuracy = self.held_out.score(self.model, self.adjustment).accuracy

    def _fitted_temperature(self) -> float:
        """T of temperature scaling on the calibration rows, raw distribution.

        Raises:
            ValueError: the rows do not determine it.
        """
        scores = self.held_out.score(self.model, None)
        with np.errstate(divide="ignore"):
            scaler = TemperatureScaler().fit(np.log(scores.raw), scores.labels)
        if not scaler.identified:
            raise ValueError(
                f"adjustment_start: calibrated: the {len(scores.labels)} calibration rows do not determine a "
                f"temperature (accuracy {scores.accuracy:.2f}); give more of them, or use adjustment_start: identity"
            )
        return scaler.temperature

    def before_step(self, step: int) -> dict[str, float]:
        """Every ``eta_update_steps`` steps: measure the gap on the next few items, let eta follow; what to log."""
        args, turn = self.args, step // self.args.eta_update_steps
        if self.controller is None or step % args.eta_update_steps:
            return {}
        gaps, more = self._gaps(turn), {}
        if not gaps:  # nothing has been trained on yet
            return {}
        if self.shuffled.items:
            indices = batch_at(turn, min(args.eta_items, len(self.shuffled.items)), len(self.shuffled.items), args.seed)
            chance = self.shuffled.score(self.model, self.adjustment, indices).gap_to_chance()
            gaps = {name: blend(gap, chance, args.eta_shuffled) for name, gap in gaps.items()}
            more = {"gap_shuffled": chance[0]}
        self.controller.update(gaps)
        return {
            **more,
            "eta": self.controller.eta,
            "pull": self.controller.pull,
            "gap": float(self.controller.gap or 0.0),
            "gap_measured": max(gap for gap, _ in gaps.values()),
        }

    def _gaps(self, turn: int) -> dict[str, tuple[float, float]]:
        """By group: gap and standard error of the rows whose turn it is, or of the rows trained on since last time."""
        if self.args.eta_rows == "training":
            found = self.before_seen.take()
            return {} if found is None else {"all": found}
        scores = self.held_out.score(self.model, self.adjustment, self._turn(turn))
        return scores.gaps(by_domain=self.args.eta_domains == "worst")

    def _turn(self, turn: int) -> list[int]:
        """The calibration items whose turn it is: of all, or as many of each domain where the worst one decides."""
        items, args = self.held_out.items, self.args
        groups = {"all": list(range(len(items)))}
        if args.eta_domains == "worst":
            groups = {name: [i for i in groups["all"] if items[i].domain == name] for name in {x.domain for x in items}}
        size = max(1, args.eta_items // len(groups))
        return [
            members[place]
            for _, members in sorted(groups.items())
            for place in batch_at(turn, min(size, len(members)), len(members), args.seed)
        ]

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
        return {
            "start_accuracy": self.start_accuracy,
            "controller": controller,
            "before_seen": self.before_seen.state(),
        }

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
        self.before_seen.load(state["before_seen"])
        if self.controller is not None:
            self.controller.load(state["controller"])
