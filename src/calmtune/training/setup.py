"""From the arguments of a run to its level and its alpha."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from calmtune.bilevel import LogitAdjustment
from calmtune.modeling.reading import causal_lm
from calmtune.training.arguments import CalmConfig
from calmtune.training.datasets import LevelName
from calmtune.training.levels import Level, OptionsLevel, VocabularyLevel


def make_level(args: CalmConfig, name: LevelName, examples: Sequence[Any]) -> Level:
    """The level of that name; a vector alpha at options level is as wide as the item with most options."""
    if name == "options":
        width = max(len(example.option_ids) for example in examples)
        return OptionsLevel(width, args.normalisation, args.entropy_target, args.chunk_size)
    positions = args.entropy_positions
    if positions == "auto":
        positions = "first" if args.scoring == "letter" and any(e.letter_ids for e in examples) else "response"
    return VocabularyLevel(positions, args.entropy_target, args.chunk_size)


def make_adjustment(args: CalmConfig, level: Level, model: nn.Module) -> LogitAdjustment | None:
    """alpha as the arguments ask for it, or None where the method has none."""
    if args.method != "calm" or args.adjustment == "none":
        return None
    if isinstance(level, OptionsLevel):
        size = level.width
    else:
        size = int(causal_lm(model).get_output_embeddings().weight.shape[0])  # type: ignore[operator]
    return LogitAdjustment(size, args.adjustment, args.temperature_form, args.tau_max, device=args.device)
