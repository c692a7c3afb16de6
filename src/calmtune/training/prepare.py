"""What the trainer does with its arguments before anything is trained: refuses, wraps, encodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import set_seed

from calmtune.data.prompts import EncodedItem, Renderer
from calmtune.training.arguments import CalmConfig
from calmtune.training.datasets import (
    Example,
    LevelName,
    as_rows,
    choose_level,
    encode,
    fingerprint,
    read_data_sets,
    refuse_bare,
    refuse_overlap,
)
from calmtune.training.levels import Level
from calmtune.training.setup import make_level


@dataclass(frozen=True)
class PreparedData:
    """Encoded data sets, and the level that they are read at.

    Attributes:
        train, upper: S_T and S_V as the level needs them. calibration: labelled items with their options.
        evaluation: rows for :meth:`CalmTrainer.evaluate`, or None.
    """

    level_name: LevelName
    level: Level
    train: Sequence[Example]
    upper: Sequence[Example]
    calibration: Sequence[EncodedItem]
    evaluation: Sequence[Example] | None

    def identity(self) -> dict[str, str]:
        """Fingerprints by name, of what a resumed run must share."""
        return {name: fingerprint(getattr(self, name)) for name in ("train", "upper", "calibration")}


def prepare_data(
    args: CalmConfig, renderer: Renderer, train: Any, upper: Any, calibration: Any, evaluation: Any
) -> PreparedData:
    """Read, check and encode the data sets.

    Raises:
        ValueError: rows that are missing, broken, too long, in two sets at once, or not of the kind that the method and
            the level need.
    """
    rows = read_data_sets(args, train, upper, calibration)
    if args.method in ("cft", "rcft"):
        refuse_bare(rows["train_dataset"], args.method)
    name = choose_level(args.method_level, [*rows["train_dataset"], *rows["upper_dataset"]])
    encoded = {
        key: encode(part, renderer, "options" if key == "calibration_dataset" else name, args.max_length)
        for key, part in rows.items()
    }
    refuse_overlap(rows, encoded)
    below, above, labelled = encoded.values()
    more = None
    if evaluation is not None:
        more = encode(as_rows(evaluation, "eval_dataset"), renderer, name, args.max_length)
    # at options level alpha must have a class for every option of any row that it will meet
    items = labelled if name == "options" else []
    if args.has_upper_level and args.adjustment == "vector":
        _refuse_wider([*below, *above], items)
    level = make_level(args, name, [*below, *above, *items, *(more or ())])
    return PreparedData(name, level, below, above, labelled, more)  # type: ignore[arg-type]


def _refuse_wider(trained: Sequence[Any], labelled: Sequence[EncodedItem]) -> None:
    """A class of alpha that no training item has would stay as it is while the others are softened."""
    width = max((len(example.option_ids) for example in trained if isinstance(example, EncodedItem)), default=0)
    for item in labelled:
        if len(item.option_ids) > width:
            raise ValueError(
                f"calibration_dataset: item {item.id!r} has {len(item.option_ids)} options, but the training rows have "
                f"at most {width}, and a vector adjustment has one class per option; use adjustment: scalar, or leave "
                "such items out"
            )


def with_adapter(model: nn.Module, args: CalmConfig, peft_config: Any | None) -> nn.Module:
    """The model with a fresh adapter, or as it is where no ``peft_config`` is given.

    Raises:
        ValueError: the model has adapters already.
    """
    if peft_config is None:
        return model
    from peft import PeftModel, get_peft_model

    if isinstance(model, PeftModel):
        raise ValueError("the model already has adapters; give either such a model or a peft_config, not both")
    set_seed(args.seed)  # an adapter starts from random numbers
    return get_peft_model(model, peft_config)  # type: ignore[arg-type]


def refuse_unsupported(args: CalmConfig, more: Mapping[str, Any]) -> None:
    """Raise for what this trainer could only ignore.

    Args:
        more: further arguments for ``transformers.Trainer``.

    Raises:
        ValueError: several processes or devices, or functions that would never be called.
    """
    if args.n_gpu > 1 or args.world_size > 1:
        raise ValueError(
            f"{args.world_size} processes and {args.n_gpu} GPUs a process found, but one process on one device is "
            "what is supported so far; set CUDA_VISIBLE_DEVICES to one device and start one process"
        )
    unread = [key for key in ("compute_loss_func", "compute_metrics") if more.get(key) is not None]
    if unread:
        raise ValueError(f"{', '.join(unread)}: not supported, since losses are computed by the method and the level")
