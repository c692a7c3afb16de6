"""A file that remembers decisions: JSON Lines, one decision a line, kept through a crash and used again."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class DecisionCache:
    """Decisions by key, in memory and, with a path, on disk.

    The first line holds what the decisions depend on. A last line without its end, as a killed process leaves it, is
    cut off and decided anew; any other broken line is an error. One process a file; threads may share it.

    Args:
        path: the file, made with its folder if absent; None keeps decisions in memory only.
        header: what the decisions depend on; a file with another header is refused.

    Raises:
        ValueError: the file has another header, or a broken line.
    """

    def __init__(self, path: Path | str | None, header: Mapping[str, Any]) -> None:
        self.path = Path(path) if path is not None else None
        self._lock = threading.Lock()
        self._decisions: dict[str, dict[str, Any]] = {}
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._open(self.path, dict(header))

    def __len__(self) -> int:
        return len(self._decisions)

    def get(self, key: str) -> dict[str, Any] | None:
        """The decision of that key, or None."""
        return self._decisions.get(key)

    def add(self, key: str, decision: Mapping[str, Any]) -> None:
        """Keep a decision; it is with the operating system when the call returns."""
        with self._lock:
            self._decisions[key] = dict(decision)
            if self.path is not None:
                _append(self.path, {"key": key, **decision})

    def _open(self, path: Path, header: dict[str, Any]) -> None:
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            with path.open("r+b") as file:
                file.truncate(len(whole))
        if not whole:
            _append(path, header)
            return
        # split at "\n" alone: what is between may hold any other line separator
        first, *rest = whole[:-1].split(b"\n")
        if _parsed(first, f"{path}:1") != header:
            raise ValueError(
                f"{path}: made with {first.decode('utf-8', 'replace')}, now {json.dumps(header)}. Delete it or choose "
                "another path"
            )
        for number, line in enumerate(rest, start=2):
            record = _parsed(line, f"{path}:{number}")
            if not isinstance(record.get("key"), str):
                raise ValueError(f"{path}:{number}: expected an object with a `key`; delete the line")
            self._decisions[record.pop("key")] = record


def _append(path: Path, record: Mapping[str, Any]) -> None:
    # ASCII, so that neither a line separator nor half a surrogate pair in an answer can break the file
    with path.open("a", encoding="ascii", newline="\n") as file:
        file.write(json.dumps(record, ensure_ascii=True) + "\n")


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where}: not valid JSON ({error}); delete the line") from error
    if not isinstance(record, dict):
        raise ValueError(f"{where}: expected an object, got {type(record).__name__}; delete the line")
    return record
