"""What the trainer needs to be told by transformers' loop, which has no method to override for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from calmtune.bilevel import LogitAdjustment


class StepHooks(TrainerCallback):
    """Tells the trainer that the loop or an epoch begins, and keeps alpha within its bounds after each step."""

    def __init__(
        self, *, on_begin: Callable[[], None], on_epoch: Callable[[int], None], adjustment: LogitAdjustment | None
    ) -> None:
        self.on_begin, self.on_epoch, self.adjustment = on_begin, on_epoch, adjustment

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The loop has set its counters to zero just before."""
        self.on_begin()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An epoch begins, or, in a resumed run, the one that was interrupted goes on."""
        self.on_epoch(int(state.epoch or 0))

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """alpha has just moved."""
        if self.adjustment is not None:
            self.adjustment.project_()
