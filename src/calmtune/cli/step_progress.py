"""Training steps told to a progress line, in the place of what transformers prints."""

from __future__ import annotations

from typing import Any

from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback

from calmtune.cli.console import Advance


class StepProgress(TrainerCallback):
    """Tells how many optimizer steps are done.

    Args:
        advance: called with (steps done, steps in all).
    """

    def __init__(self, advance: Advance) -> None:
        self.advance = advance

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A resumed run does not begin at 0."""
        self.advance(state.global_step, state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """One more step is done."""
        self.advance(state.global_step, state.max_steps)


def replace_output(trainer: Trainer, advance: Advance) -> None:
    """Take transformers' progress bar and printed logs off a trainer and report the steps instead."""
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    trainer.add_callback(StepProgress(advance))
