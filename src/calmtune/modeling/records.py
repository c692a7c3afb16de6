"""JSON objects on disk, read so that a damaged file is one clear message. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

_WORDS = {
    dict: "an object",
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        ValueError: it is something else; the message names the file.
    """
    return parse_object(path.read_bytes(), str(path))


def parse_object(content: bytes, where: str) -> dict[str, Any]:
    """A JSON object from its text in UTF-8; ``where`` stands at the start of messages.

    Raises:
        ValueError: it is something else.

    >>> parse_object(b'{"a": 1}', "x.json")
    {'a': 1}
    """
    try:
        record = json.loads(content.decode("utf-8"))
    except ValueError as error:  # covers UnicodeDecodeError and JSONDecodeError
        raise ValueError(f"{where}: not valid JSON ({error}); was it cut short, or edited by hand?") from error
    except RecursionError:
        raise ValueError(f"{where}: nested too deeply; was it edited by hand?") from None
    if not isinstance(record, dict):
        raise ValueError(f"{where}: expected a JSON object, got {type(record).__name__}; was it edited by hand?")
    return record


def check_fields(record: Mapping[str, Any], fields: Mapping[str, Any], path: Path, prefix: str = "") -> None:
    """Make sure that a record has its fields, each of its type.

    Args:
        record: as read. path: its file, for the message.
        fields: a type, or a union of types, by name.
        prefix: where the record stands in the file.

    Raises:
        ValueError: names the file and the field.
    """
    for name, kind in fields.items():
        if name not in record:
            raise ValueError(f"{path}: the field {prefix}{name} is missing; was it edited by hand, or cut short?")
        value = record[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            expected = " or ".join(_WORDS[one] for one in get_args(kind) or (kind,))
            raise ValueError(
                f"{path}: the field {prefix}{name} is {value!r:.60}; expected {expected}. Was it edited by hand?"
            )
