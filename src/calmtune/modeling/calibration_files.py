"""alpha on disk: ``adjustment.safetensors`` holds the numbers, ``calibration.json`` says what they mean."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from calmtune.bilevel.adjustment import LogitAdjustment
from calmtune.modeling.records import check_fields, read_json

ADJUSTMENT_FILE = "adjustment.safetensors"
CALIBRATION_FILE = "calibration.json"
FORMAT = "calmtune-calibration/1"
# what a reader of the record relies on
_FIELDS = {
    "adjustment": dict | None, "method": str, "level": str, "normalisation": str, "prompt": dict, "base": dict,
}  # fmt: skip
_FORM_FIELDS = {"kind": str, "form": str, "tau_max": int | float, "num_classes": int}
_BASE_FIELDS = {"name": str, "revision": str | None, "fingerprint": str}
_JSON_BESIDE = (
    "adapter_config.json",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
)
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
    record = read_json(path)
    if record.get("format") != FORMAT:
        raise ValueError(f"{path}: expected format {FORMAT!r}, got {record.get('format')!r}")
    check_fields(record, _FIELDS, path)
    check_fields(record["base"], _BASE_FIELDS, path, "base.")
    _check_beside(folder)
    form = record["adjustment"]
    if form is None:
        return None, record
    check_fields(form, _FORM_FIELDS, path, "adjustment.")
    return _read_adjustment(folder, form), record


def _read_adjustment(folder: Path, form: Mapping[str, Any]) -> LogitAdjustment:
    """alpha of the recorded form; raises as :func:`load_calibration`."""
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
    size = 1 if form["kind"] == "scalar" else form["num_classes"]
    for name in TENSORS:
        if tensors[name].shape != (size,):
            raise ValueError(f"{tensors_path}: {name} has shape {tuple(tensors[name].shape)}, expected {(size,)}")
    try:
        adjustment = LogitAdjustment(form["num_classes"], form["kind"], form["form"], form["tau_max"], dtype)
    except ValueError as error:
        raise ValueError(f"{folder / CALIBRATION_FILE}: adjustment: {error}") from error
    for name in TENSORS:
        getattr(adjustment, name).data.copy_(tensors[name])
    return adjustment


def _check_beside(folder: Path) -> None:
    """Weights and settings beside the record, which other libraries read and would fail on without naming the file.

    Raises:
        ValueError: names the damaged file.
    """
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt"):
                pass  # opening compares the header with the file's length
        except SafetensorError as error:
            raise ValueError(f"{path}: not a readable safetensors file ({error}); copy or train it again") from error
    for name in _JSON_BESIDE:
        if (folder / name).is_file():
            read_json(folder / name)


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write JSON so that the file is either the old one or the new one, also through a crash."""
    temporary = path.with_suffix(path.suffix + ".partial")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
