"""The training log as a file: one JSON record for each logged step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import TrainerCallback


class TrainingLog(TrainerCallback):
    """Keeps ``training_log.jsonl`` equal to the trainer's log history, so that a resumed run has one whole log.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the whole history; it is small, and a resumed trainer has the earlier records in it."""
        if not state.is_world_process_zero:
            return
        lines = [json.dumps(record, ensure_ascii=False) for record in state.log_history]
        temporary = self.path.with_name(self.path.name + ".partial")
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        temporary.replace(self.path)
