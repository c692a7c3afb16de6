"""What a checkpoint needs beyond transformers' own files, and which checkpoints are whole.

transformers writes a checkpoint file by file, so a run killed meanwhile leaves a folder that looks like one. Ours is
marked whole by ``calmtune_state.json``, which is written last and describes the other files, so that damage that came
later is found too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calmtune.modeling.records import check_fields, read_json

STATE_FILE = "calmtune_state.json"
STATE_FIELDS = {
    "files": dict, "identity": dict, "bad_steps": int, "window": dict, "tr_loss": int | float,
    "total_loss": int | float, "last_logged": int, "watch": dict, "e_step": dict | None,
}  # fmt: skip
# a file up to this many bytes is hashed: a second or less
HASHED = 64 * 2**20

# Arguments that do not change what is computed, or may differ between the first and the second half of a run.
VOLATILE = {
    "output_dir", "overwrite_output_dir", "logging_dir", "run_name", "report_to", "disable_tqdm", "log_level",
    "log_level_replica", "resume_from_checkpoint", "save_steps", "save_strategy", "save_total_limit", "save_only_model",
    "push_to_hub", "hub_model_id", "hub_token", "hub_strategy", "hub_private_repo", "hub_revision", "hub_always_push",
    "push_to_hub_token", "do_train", "do_eval", "do_predict", "local_rank", "ddp_timeout", "dataloader_num_workers",
    "dataloader_pin_memory", "dataloader_prefetch_factor", "project", "trackio_space_id", "trackio_bucket_id",
    "trackio_static_space_id", "max_bad_steps", "eval_steps", "eval_strategy", "log_on_each_node", "logging_first_step",
    "load_best_model_at_end", "metric_for_best_model", "greater_is_better", "restore_callback_states_from_checkpoint",
}  # fmt: skip


def last_complete_checkpoint(directory: str | Path) -> str | None:
    """The newest checkpoint of a run that is marked whole, or None."""
    found = _marked(Path(directory))
    return str(found[-1][1]) if found else None


def read_state(checkpoint: str | Path) -> dict[str, Any]:
    """The state written beside a checkpoint.

    Raises:
        ValueError: the checkpoint was cut short while it was written, damaged since, or not made by this trainer.
    """
    folder = Path(checkpoint)
    fault = damage(folder)
    if fault is not None:
        others = (path for _, path in reversed(_marked(folder.parent)) if path.resolve() != folder.resolve())
        other = next((path for path in others if damage(path) is None), None)
        advice = f"the newest whole one is {other}" if other else "there is no other whole one; begin again"
        raise ValueError(f"{checkpoint} is not a whole checkpoint: {fault}; {advice}")
    return read_json(folder / STATE_FILE)


def describe_files(checkpoint: str | Path) -> dict[str, dict[str, Any]]:
    """Size of every file of a checkpoint, and SHA-256 of those up to 64 MiB, by name; for its state."""
    folder = Path(checkpoint)
    return {
        path.relative_to(folder).as_posix(): _describe(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != STATE_FILE
    }


def damage(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint: no mark, a damaged state, a file that is missing or not as it was written."""
    path = checkpoint / STATE_FILE
    if not path.is_file():
        return f"it has no {STATE_FILE}"
    try:
        state = read_json(path)
        check_fields(state, STATE_FIELDS, path)
    except ValueError as error:
        return str(error)
    for name, recorded in state["files"].items():
        file = checkpoint / name
        if not file.is_file():
            return f"{name} is missing"
        size = file.stat().st_size
        if not isinstance(recorded, dict) or size != recorded.get("size"):
            return f"{name} has {size} bytes, not those that were written"
        if _describe(file) != recorded:
            return f"the content of {name} is not what was written"
    return None


def _describe(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    if size > HASHED:
        return {"size": size}
    with path.open("rb") as file:
        return {"size": size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _marked(directory: Path) -> list[tuple[int, Path]]:
    """The checkpoints that are marked whole, by step."""
    return sorted(
        (int(match.group(1)), path)
        for path in directory.glob("checkpoint-*")
        if (match := re.fullmatch(r"checkpoint-(\d+)", path.name)) and (path / STATE_FILE).is_file()
    )


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Every entry in which two nested records differ, as ``name: old -> new``.

    Example:
        >>> differences({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3}})
        ['b.c: 2 -> 3']
    """
    found = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            found.append(f"{prefix}{key}: {before} -> {after}")
    return found


def run_identity(
    arguments: Mapping[str, Any],
    data: Mapping[str, str],
    base: Mapping[str, Any],
    adapters: Mapping[str, Any],
    processes: int = 1,
) -> dict[str, Any]:
    """What two halves of one run must share, as JSON values that compare equal after a round trip.

    Args:
        processes: how many share a step; other numbers deal out other parts, with other dropout and other sums.
    """
    kept = {key: value for key, value in arguments.items() if key not in VOLATILE}
    found = {"arguments": _plain(kept), "data": _plain(data), "base": _plain(base), "adapters": _plain(adapters)}
    # a run of one process has no such entry, as before there could be more
    return found if processes == 1 else {**found, "processes": f"{processes} (start as many, or begin again)"}


def _plain(value: Any) -> Any:
    """JSON values only, in a fixed order, so that two records can be compared after a round trip."""
    if isinstance(value, dict):
        return {str(key): _plain(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(_plain(item) for item in value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)
