"""alpha on disk: ``adjustment.safetensors`` holds the numbers, ``calibration.json`` says what they mean."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from calmtune.bilevel.adjustment import LogitAdjustment

ADJUSTMENT_FILE = "adjustment.safetensors"
CALIBRATION_FILE = "calibration.json"
FORMAT = "calmtune-calibration/1"
TENSORS = ("temperature_parameter", "logit_shift")


def save_calibration(directory: str | Path, adjustment: LogitAdjustment | None, settings: Mapping[str, Any]) -> None:
    """Write both files; ``settings`` is everything else that a reader must know (level, scoring, base model, ...)."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {"format": FORMAT, "adjustment": None, **settings}
    if adjustment is not None and not adjustment.is_identity:
        record["adjustment"] = {
            "kind": adjustment.kind,
            "form": adjustment.form,
            "tau_max": adjustment.tau_max,
            "num_classes": adjustment.num_classes,
        }
        tensors = {name: getattr(adjustment, name).detach().cpu().contiguous() for name in TENSORS}
        save_file(tensors, folder / ADJUSTMENT_FILE, metadata={"format": "pt"})
    write_json(folder / CALIBRATION_FILE, record)


def load_calibration(directory: str | Path) -> tuple[LogitAdjustment | None, dict[str, Any]]:
    """Read both files.

    Returns:
        The adjustment (None where the run had none) and the record of ``calibration.json``.

    Raises:
        FileNotFoundError: a file is missing. ValueError: a file is not what it should be; the message names it.
    """
    folder = Path(directory)
    path = folder / CALIBRATION_FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} not found; expected a directory saved by calmtune (calmtune train, or save_model)"
        )
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not valid JSON ({error})") from error
    if record.get("format") != FORMAT:
        raise ValueError(f"{path}: expected format {FORMAT!r}, got {record.get('format')!r}")
    form = record["adjustment"]
    if form is None:
        return None, record
    tensors_path = folder / ADJUSTMENT_FILE
    if not tensors_path.is_file():
        raise FileNotFoundError(f"{tensors_path} not found, but {CALIBRATION_FILE} says that there is an adjustment")
    try:
        tensors = load_file(tensors_path)
    except SafetensorError as error:
        raise ValueError(
            f"{tensors_path}: not a readable safetensors file ({error}); copy or train it again"
        ) from error
    if sorted(tensors) != sorted(TENSORS):
        raise ValueError(f"{tensors_path}: expected the tensors {sorted(TENSORS)}, got {sorted(tensors)}")
    dtype = tensors["logit_shift"].dtype
    adjustment = LogitAdjustment(form["num_classes"], form["kind"], form["form"], form["tau_max"], dtype)
    for name in TENSORS:
        target = getattr(adjustment, name)
        if tensors[name].shape != target.shape:
            raise ValueError(
                f"{tensors_path}: {name} has shape {tuple(tensors[name].shape)}, expected {tuple(target.shape)}"
            )
        target.data.copy_(tensors[name])
    return adjustment, record


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write JSON so that the file is either the old one or the new one, also through a crash."""
    temporary = path.with_suffix(path.suffix + ".partial")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
