"""Records on disk: a JSON Lines file that an interrupted run goes on with.

The first line holds the settings that produced the file, every further line one item with an id of its own. A line that
a crash cut short is removed when the file is opened again; everything before it stays. Python's ``repr`` of a float is
exact, so reading a file gives back the very numbers that were written.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar


class HasId(Protocol):
    """An item of a record."""

    @property
    def id(self) -> str:
        """Unique within a file."""


Item = TypeVar("Item", bound=HasId)
# the test of a field's value, what is expected, and whether the field must be there
Fields = Mapping[str, tuple[Callable[[Any], bool], str, bool]]


@dataclass(frozen=True)
class RecordKind(Generic[Item]):
    """What the lines of one kind of file are.

    Args:
        format: name and version, written into the first line.
        one: what an item is called, e.g. ``"a prediction"``. many: a set of them, e.g. ``"predictions"``.
        again: what to do after deleting a damaged file, e.g. ``"evaluate again"``.
        fields: what a line must and may hold.
        to_json, from_json: an item as JSON values, and back; ``from_json`` meets fields that passed ``fields``.
    """

    format: str
    one: str
    many: str
    again: str
    fields: Fields
    to_json: Callable[[Item], dict[str, Any]]
    from_json: Callable[[Mapping[str, Any]], Item]


def open_records(path: Path, kind: RecordKind[Item], meta: Mapping[str, Any]) -> tuple[Item, ...]:
    """Start a file, or read what an interrupted run left in it.

    A last line cut short by a crash is removed. Settings that differ from the file's are refused.

    Returns:
        The items already on disk (empty for a new file).

    Raises:
        ValueError: the file was made with other settings; the message names each difference.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    content = path.read_bytes() if path.exists() else b""
    whole = content.rfind(b"\n") + 1
    if not whole:
        path.write_bytes(_header(kind, meta))
        return ()
    if whole < len(content):
        os.truncate(path, whole)
    before, items = load_records(path, kind)
    wanted = json.loads(json.dumps(dict(meta)))
    keys = [key for key in sorted({*wanted, *before}) if wanted.get(key) != before.get(key)]
    if keys:
        changes = "; ".join(f"{key}: file has {before.get(key)!r}, asked for {wanted.get(key)!r}" for key in keys)
        raise ValueError(f"{path} was made with other settings ({changes}). Delete it, or write to another place.")
    return items


def append_records(path: Path, kind: RecordKind[Item], items: Iterable[Item]) -> None:
    """Add items to a file made by :func:`open_records`; they are the system's to keep when the call returns."""
    with path.open("ab") as file:
        file.write(b"".join(_line(kind.to_json(item)) for item in items))


def save_records(path: Path, kind: RecordKind[Item], meta: Mapping[str, Any], items: Iterable[Item]) -> None:
    """Write a whole file, replacing ``path`` in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(path.suffix + ".partial")
    temporary.write_bytes(_header(kind, meta))
    append_records(temporary, kind, items)
    temporary.replace(path)


def load_records(path: Path, kind: RecordKind[Item]) -> tuple[dict[str, Any], tuple[Item, ...]]:
    """The settings and the items of a file.

    Raises:
        ValueError: not such a file, a broken line, or an id twice; the message names the file and the line.
    """
    # split on "\n" alone: JSON may hold U+2028 and friends, which str.splitlines would cut at
    lines = enumerate(path.read_bytes().split(b"\n"), start=1)
    records = [(number, _parsed(line, f"{path}:{number}", kind.one)) for number, line in lines if line]
    header = records[0][1] if records else {}
    if header.get("format") != kind.format or not isinstance(header.get("meta"), dict):
        raise ValueError(
            f"{path}: expected a first line with format {kind.format!r} and meta; is this a {kind.many} file? If it "
            f"was damaged, delete it and {kind.again}"
        )
    items = []
    for number, record in records[1:]:
        try:
            _check_fields(record, kind.fields)
            items.append(kind.from_json(record))
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}; delete the file and {kind.again}") from error
    try:
        check_distinct((item.id for item in items), kind.many)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return header["meta"], tuple(items)


def check_distinct(ids: Iterable[str], many: str) -> None:
    """Refuse an id that occurs twice.

    Raises:
        ValueError: names the id.

    >>> check_distinct(["a", "b", "a"], "predictions")
    Traceback (most recent call last):
    ValueError: item 'a' occurs twice; ids must be unique within one set of predictions
    """
    seen: set[str] = set()
    for one in ids:
        if one in seen:
            raise ValueError(f"item {one!r} occurs twice; ids must be unique within one set of {many}")
        seen.add(one)


def content_digest(content: Any) -> str:
    """SHA-256 of JSON values, for the settings: what a file is about, in 64 characters.

    >>> content_digest([1, "a"])[:8]
    '4a72386a'
    """
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number that fits into a float."""
    return isinstance(value, float) or (is_count(value) and abs(value) < 2**1023)


def is_count(value: Any) -> bool:
    """Whether a JSON value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_text(value: Any) -> bool:
    """Whether a JSON value is text."""
    return isinstance(value, str)


def list_of(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """The test of a list whose every element passes ``test``."""
    return lambda value: isinstance(value, list) and all(map(test, value))


def _check_fields(record: Mapping[str, Any], fields: Fields) -> None:
    for name, (test, expected, needed) in fields.items():
        if name not in record:
            if needed:
                raise ValueError(f"the field {name!r} is missing")
        elif not test(record[name]):
            raise ValueError(f"the field {name!r} is {record[name]!r:.60}; expected {expected}")


def _parsed(line: bytes, where: str, one: str) -> dict[str, Any]:
    """One line as a JSON object.

    Raises:
        ValueError: it is something else.
    """
    try:
        record = json.loads(line.decode("utf-8"))
    except ValueError as error:  # covers UnicodeDecodeError and JSONDecodeError
        raise ValueError(f"{where}: not valid UTF-8 JSON ({error})") from error
    except RecursionError:
        raise ValueError(f"{where}: nested too deeply to be {one}") from None
    if not isinstance(record, dict):
        raise ValueError(f"{where}: expected a JSON object, got {type(record).__name__}")
    return record


def _header(kind: RecordKind[Any], meta: Mapping[str, Any]) -> bytes:
    return _line({"format": kind.format, "meta": dict(meta)})


def _line(record: Mapping[str, Any]) -> bytes:
    """One line; characters that other programs take for the end of a line are written as escapes."""
    text = json.dumps(record, ensure_ascii=False)
    for character in "\x85\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # half a surrogate pair has no UTF-8, but JSON has an escape for it, which is Python's own
    return text.encode("utf-8", errors="backslashreplace") + b"\n"
