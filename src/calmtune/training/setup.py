"""From the arguments of a run to its level, its alpha and its barrier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from calmtune.bilevel import EtaController, LogitAdjustment, PullController
from calmtune.methods.label_smoothing import smoothing_of
from calmtune.modeling.reading import causal_lm
from calmtune.training.answer_levels import AnswerLevel, RegularisedAnswerLevel
from calmtune.training.arguments import CalmConfig
from calmtune.training.datasets import LevelName
from calmtune.training.levels import Level, LowerLevel, OptionsLevel, VocabularyLevel
from calmtune.training.own_answers import OwnAnswers


def make_level(args: CalmConfig, name: LevelName, examples: Sequence[Any], *, open_questions: bool = False) -> Level:
    """The level of that name; a vector alpha at options level is as wide as the item with most options.

    Args:
        open_questions: whether the upper level has any; they come without an answer.
    """
    smoothing = smoothing_of(args.label_smoothing_factor) if args.method == "label_smoothing" else 0.0
    if name == "options":
        width = max(len(example.option_ids) for example in examples)
        seen: dict[int, Any] | None = {} if args.eta == "auto" and args.eta_rows == "training" else None
        return OptionsLevel(width, args.normalisation, args.entropy_target, args.chunk_size, smoothing, seen=seen)
    positions = args.entropy_positions
    if positions == "auto":
        letters = args.scoring == "letter" and any(e.letter_ids for e in examples)
        positions = "first" if letters or open_questions else "response"
    return VocabularyLevel(positions, args.entropy_target, args.chunk_size, smoothing)


def make_lower(args: CalmConfig, level: Level) -> LowerLevel:
    """Where the lower loss is read: the level itself, or the answer's tokens for CFT and RCFT."""
    if args.method == "cft":
        return AnswerLevel(args.chunk_size)
    if args.method == "rcft":
        return RegularisedAnswerLevel(args.normalisation, args.rcft_weight, args.chunk_size)
    return level


def make_adjustment(args: CalmConfig, level: Level, model: nn.Module) -> LogitAdjustment | None:
    """alpha as the arguments ask for it, or None where the method has none."""
    if not args.has_upper_level or args.adjustment == "none":
        return None
    if isinstance(level, OptionsLevel):
        size = level.width
    else:
        size = int(causal_lm(model).get_output_embeddings().weight.shape[0])  # type: ignore[operator]
    return LogitAdjustment(size, args.adjustment, args.temperature_form, args.tau_max, device=args.device)


def make_controller(args: CalmConfig) -> EtaController | PullController | None:
    """What moves eta or the entropy's pull, or None where eta is a number."""
    if args.eta != "auto" or args.method != "calm":
        return None
    if args.eta_control == "pull":
        return PullController(args.eta_start, args.eta_gain)
    return EtaController(args.eta_start, args.eta_min, args.eta_max)


def make_own_answers(
    args: CalmConfig, level: Level, model: nn.Module, adjustment: LogitAdjustment | None, tokenizer: Any, autocast: Any
) -> OwnAnswers | None:
    """What samples the answers that the upper level is read on, or None where it is read elsewhere."""
    if not args.has_upper_level or getattr(level, "positions", None) != "sample":
        return None
    return OwnAnswers(model, adjustment, tokenizer, args.own_answer_tokens, args.seed, autocast)
