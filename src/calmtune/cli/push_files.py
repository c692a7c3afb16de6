"""What of a run's folder is published: the model, its calibration and its card; no row of data and no path of this
machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calmtune.cli.folder import RunFolder

# everything else stays at home: predictions and reports hold questions, splits.json holds the rows' ids, config.yaml
# holds paths, checkpoints hold the optimizer
PUBLISHED = (
    "README.md", "reliability.png", "calibration.json", "adjustment.safetensors", "adapter_config.json",
    "adapter_model.safetensors", "config.json", "generation_config.json", "model.safetensors",
    "model.safetensors.index.json", "model-*-of-*.safetensors", "tokenizer.json", "tokenizer_config.json",
    "tokenizer.model", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
    "chat_template.jinja",
)  # fmt: skip
# where the base's name stands, by file
BASE_KEYS = {"adapter_config.json": ("base_model_name_or_path",), "calibration.json": ("base", "name")}
# texts that are looked through; a tokenizer's vocabulary has any string in it
TEXTS = (".json", ".md", ".jinja")
UNREAD = ("tokenizer.json", "vocab.json")
_ABSOLUTE = re.compile(r"/[^/\s]+/.*|~/.+|[A-Za-z]:[\\/].+|\\\\.+", re.DOTALL)


@dataclass(frozen=True)
class Upload:
    """A file as it will be published: ``content`` where that is not the file's own, else None."""

    name: str
    path: Path
    content: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return self.path.stat().st_size if self.content is None else len(self.content)


def files_to_publish(folder: RunFolder, base_model: str | None = None) -> list[Upload]:
    """The files, with the base under its published name.

    Args:
        folder: a trained run, its card written.
        base_model: the base's name on the Hub, where it was trained from a local folder.

    Raises:
        ValueError: a file names a path of this machine; lists the files and what they name.
    """
    found = sorted({path for pattern in PUBLISHED for path in folder.path.glob(pattern) if path.is_file()})
    uploads = [_renamed(path, base_model) for path in found]
    faults = [fault for upload in uploads for fault in _local_paths(upload, folder)]
    if faults:
        listed = "\n".join(f"  - {fault}" for fault in faults)
        raise ValueError(f"these files name paths of this machine, and would be published:\n{listed}")
    return uploads


def _renamed(path: Path, base_model: str | None) -> Upload:
    """A file with the base's published name in the place of the one it was loaded by."""
    keys = BASE_KEYS.get(path.name)
    if keys is None or base_model is None:
        return Upload(path.name, path)
    record = json.loads(path.read_text(encoding="utf-8"))
    inner: dict[str, Any] = record
    for key in keys[:-1]:
        inner = inner[key]
    if inner[keys[-1]] == base_model:
        return Upload(path.name, path)
    inner[keys[-1]] = base_model
    return Upload(path.name, path, (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())


def _local_paths(upload: Upload, folder: RunFolder) -> Iterator[str]:
    """Where a text names a path of this machine."""
    if not upload.name.endswith(TEXTS) or upload.name in UNREAD:
        return
    text = (upload.path.read_bytes() if upload.content is None else upload.content).decode("utf-8", errors="replace")
    if upload.name.endswith(".json"):
        for place, value in _strings(json.loads(text), ""):
            if _ABSOLUTE.fullmatch(value):
                hint = "; give --base_model NAME" if place in ("base_model_name_or_path", "base.name") else ""
                yield f"{upload.name}: {place} is {value!r}{hint}"
        return
    plain = text.replace("\\", "")  # Markdown writes a_b as a\_b
    for known in known_places(folder):
        if known in text or known in plain:
            yield f"{upload.name}: it has {known!r} in it"


def known_places(folder: RunFolder) -> list[str]:
    """Folders of this machine that a text could name: home, here, the run's, and those in its settings."""
    settings = folder.read_settings()
    named = [value for _, value in _strings(settings, "") if _ABSOLUTE.fullmatch(value)]
    parents = [str(Path(value).parent) for value in named]
    places = {str(Path.home()), str(Path.cwd()), str(folder.path.resolve()), str(folder.path.resolve().parent)}
    # a root such as / or /work would be found in any text
    return sorted(place for place in {*places, *named, *parents} if len(Path(place).parts) > 2)


def _strings(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Every text in a JSON value with the keys that lead to it."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _strings(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner, place)
