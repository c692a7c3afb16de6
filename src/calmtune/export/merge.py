"""One model without an adapter: dequantised, the adapter merged, the calibration folded, written to a folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from calmtune.modeling.calibration_files import write_json
from calmtune.modeling.reading import causal_lm

RECORD = "calmtune_merge.json"
FORMAT = "calmtune-merge/1"
_KEPT_IN_FULL = ("gguf",)  # loaded dequantised by calmtune.modeling.loading, so there is nothing left to unpack


def dense_base(model: nn.Module) -> nn.Module:
    """A base whose weights are plain tensors, so that an adapter can be added to them without rounding to few bits.

    The dequantised weights are the numbers that the quantised model computes with; nothing is fetched again. It must
    not have run yet: on a CPU bitsandbytes packs its weights anew at the first pass and would dequantise those wrongly.
    """
    quantizer = getattr(model, "hf_quantizer", None)
    method = getattr(getattr(quantizer, "quantization_config", None), "quant_method", None)
    if quantizer is not None and str(getattr(method, "value", method)) not in _KEPT_IN_FULL:
        # without a dtype, transformers takes the one that the configuration holds as text, and fails on it
        model = model.dequantize(dtype=model.dtype)  # type: ignore[operator]
    forget_quantization(model)
    return model


def forget_quantization(model: nn.Module) -> None:
    """Take out of the configuration what says that the weights are quantised."""
    for name in ("quantization_config", "_pre_quantization_dtype"):
        if hasattr(model.config, name):  # type: ignore[arg-type]
            delattr(model.config, name)  # type: ignore[arg-type]
    for name in ("is_quantized", "is_loaded_in_4bit", "is_loaded_in_8bit"):
        if getattr(model, name, False):
            setattr(model, name, False)
    model.hf_quantizer = None  # type: ignore[assignment]


def merge_adapter(model: nn.Module) -> nn.Module:
    """The transformers model with its adapter added to the weights; a model without an adapter is given back as it is.

    Raises:
        ValueError: the merged weights are not finite.
    """
    if not hasattr(model, "merge_and_unload"):
        return model
    return model.merge_and_unload(safe_merge=True)  # type: ignore[operator, no-any-return]


def save_standalone(model: nn.Module, tokenizer: Any, folder: Path, record: Mapping[str, Any]) -> None:
    """Write the model, its tokenizer and the record of what is in it; an unfinished folder of that name is replaced."""
    if folder.exists():
        shutil.rmtree(folder)
    base: Any = causal_lm(model)
    base.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_json(folder / RECORD, {"format": FORMAT, **record})


def refuse_taken(folder: Path) -> None:
    """Raise if there is something in a folder that is to be written.

    Raises:
        ValueError: it is not empty.
    """
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise ValueError(f"{folder} is not empty; give another --output_dir, or delete it")


def partial_of(folder: Path) -> Path:
    """Where a folder is written before it is known to be right."""
    return folder.with_name(folder.name + ".partial")


def keep(partial: Path, folder: Path) -> None:
    """Give a finished folder its name."""
    if folder.is_dir():
        folder.rmdir()  # empty, see refuse_taken
    partial.replace(folder)
