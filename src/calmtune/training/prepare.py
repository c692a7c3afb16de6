"""What the trainer does with its arguments before anything is trained: refuses, wraps, encodes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import set_seed

from calmtune.data.prompts import EncodedItem, Renderer
from calmtune.data.rows import MultipleChoice
from calmtune.data.shuffled import shuffled_options
from calmtune.training.arguments import CalmConfig
from calmtune.training.datasets import (
    Example,
    LevelName,
    as_rows,
    choose_level,
    encode,
    fingerprint,
    is_open,
    read_data_sets,
    refuse_bare,
    refuse_for_open,
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
        shuffled: calibration questions under foreign options, where ``eta: auto`` reads some.
    """

    level_name: LevelName
    level: Level
    train: Sequence[Example]
    upper: Sequence[Example]
    calibration: Sequence[EncodedItem]
    evaluation: Sequence[Example] | None
    shuffled: Sequence[EncodedItem] = ()

    def identity(self) -> dict[str, str]:
        """Fingerprints by name, of what a resumed run must share."""
        return {name: fingerprint(getattr(self, name)) for name in ("train", "upper", "calibration", "shuffled")}


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
        refuse_bare(rows["train_dataset"], args.method, open_too=args.method == "cft")
    refuse_for_open(args, rows["upper_dataset"])
    unanswerable = _shuffled(args, rows["calibration_dataset"])
    name = choose_level(args.method_level, [*rows["train_dataset"], *rows["upper_dataset"]])
    encoded = {
        key: encode(
            part,
            renderer,
            "options" if key == "calibration_dataset" else name,
            args.max_length,
            upper=key == "upper_dataset",
        )
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
    examples = [*below, *above, *items, *(more or ())]
    level = make_level(args, name, examples, open_questions=is_open(rows["upper_dataset"]))
    foreign = encode(unanswerable, renderer, "options", args.max_length)
    return PreparedData(name, level, below, above, labelled, more, foreign)  # type: ignore[arg-type]


def _shuffled(args: CalmConfig, rows: Sequence[Any]) -> list[MultipleChoice]:
    """The calibration questions under foreign options, for the share that ``eta_shuffled`` gives them."""
    if not args.eta_shuffled:
        return []
    plain = [row for row in rows if isinstance(row, MultipleChoice)]
    found = shuffled_options(plain, args.seed)
    if 2 * len(found) < len(rows) or not found:
        raise ValueError(
            f"eta_shuffled: only {len(found)} of {len(rows)} calibration rows can stand under the options of another "
            "(it needs rows that are not encoded yet, with as many options, none of them the right answer); give other "
            "rows, or eta_shuffled: 0"
        )
    return found


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
        ValueError: several devices in one process, or functions that would never be called.
    """
    if args.n_gpu > 1:
        raise ValueError(
            f"{args.n_gpu} GPUs in one process found, which torch's DataParallel would share: it adds up gradients out "
            f"of sight, and lambda needs them; start one process a GPU with `accelerate launch --num_processes "
            f"{args.n_gpu} ...`, or set CUDA_VISIBLE_DEVICES to one device"
        )
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started > 1 and args.world_size == 1:
        raise ValueError(
            f"the launcher started {started} processes, but each would train by itself; set use_cpu: true where "
            "there is no GPU"
        )
    if args.world_size > 1 and args.auto_find_batch_size:
        raise ValueError(
            "auto_find_batch_size: a process that runs out of memory would take a smaller batch than the others; with "
            f"{args.world_size} processes set per_device_train_batch_size, or leave it to one process to find it"
        )
    launched = [name for name in ("DEEPSPEED", "MEGATRON_LM") if os.environ.get(f"ACCELERATE_USE_{name}") == "true"]
    if launched:
        raise ValueError(
            f"accelerate was told to use {launched[0]}, which hides the gradients that lambda is made of; launch with "
            "a configuration of plain data parallelism (configs/accelerate/ddp.yaml)"
        )
    unread = [key for key in ("compute_loss_func", "compute_metrics") if more.get(key) is not None]
    if unread:
        raise ValueError(f"{', '.join(unread)}: not supported, since losses are computed by the method and the level")
