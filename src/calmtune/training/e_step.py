"""RCFT's E-step: once an epoch, which bin of confidence each training question is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from calmtune.methods.rcft import BinTable, expectation
from calmtune.training.answer_levels import RegularisedAnswerLevel
from calmtune.training.arguments import CalmConfig
from calmtune.training.holdout import HeldOut
from calmtune.training.streams import lower_batch_size, permutation


@dataclass
class EStep:
    """Makes the bins that :class:`RegularisedAnswerLevel` reads.

    Args:
        level: gets the table. training: the training questions, read as held-out ones are (eval mode).
    """

    args: CalmConfig
    model: nn.Module
    level: RegularisedAnswerLevel
    training: HeldOut
    epoch: int = -1

    def run(self, epoch: int, steps_left: int) -> None:
        """Bin the questions that this epoch will show (fewer than all where training ends within it); once an epoch."""
        if epoch == self.epoch:
            return
        args, items = self.args, self.training.items
        seed = args.seed if args.data_seed is None else args.data_seed
        batch = lower_batch_size(args, self.training.processes)
        shown = permutation(len(items), seed, epoch)[: steps_left * batch]
        scores = self.training.score(self.model, None, shown)
        self.level.table = expectation(
            [items[index].id for index in shown],
            torch.from_numpy(scores.raw.max(axis=1)),
            torch.from_numpy(scores.raw.argmax(axis=1) == scores.labels),
            args.rcft_bins,
        )
        self.epoch = epoch

    def state(self) -> dict[str, Any]:
        """JSON values for a checkpoint."""
        return {"epoch": self.epoch, "bins": None if self.level.table is None else self.level.table.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` gave."""
        self.epoch = state["epoch"]
        self.level.table = None if state["bins"] is None else BinTable.from_state(state["bins"])
