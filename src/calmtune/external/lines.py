"""Records of a JSON Lines or CSV file with their places, so that a fault can be named by row."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

FAULTS_LISTED = 20
Record = tuple[str, dict[str, Any]]


def read_records(path: Path) -> list[Record]:
    """(place, record) of every row; cells of a CSV file are text, and empty ones are absent.

    Raises:
        ValueError: no such file, another kind of file, no rows, or rows that cannot be read; up to twenty are listed.
    """
    if not path.is_file():
        what = "is a folder; expected a file" if path.is_dir() else "is not there"
        raise ValueError(f"{path} {what}")
    readers = {".jsonl": _json_lines, ".csv": _csv_rows}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ValueError(
            f"{path}: expected a file ending in {' or '.join(readers)}, got {path.suffix or 'no ending'!r}"
        )
    records: list[Record] = []
    faults: list[str] = []
    for where, record in reader(path):
        if isinstance(record, dict):
            records.append((where, record))
        else:
            faults.append(f"{where}: {record}")
    raise_faults(path, faults)
    if not records:
        raise ValueError(f"{path}: no rows; expected at least one")
    return records


def raise_faults(path: Path, faults: Sequence[str]) -> None:
    """Raise one ValueError that lists the first twenty of them; nothing where there are none."""
    if faults:
        more = f"\n  ... and {len(faults) - FAULTS_LISTED} more" if len(faults) > FAULTS_LISTED else ""
        listed = "\n  ".join(faults[:FAULTS_LISTED])
        raise ValueError(f"{path}: {len(faults)} faulty row(s):\n  {listed}{more}")


def _json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any] | str]]:
    # split at "\n" alone: JSON may hold U+2028 and friends
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            record = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except ValueError as error:  # covers UnicodeDecodeError and JSONDecodeError
            yield where, f"not valid UTF-8 JSON, one object a line ({error})"
        except RecursionError:
            yield where, "nested too deeply; expected one flat object a line"
        else:
            yield where, record if isinstance(record, dict) else f"expected an object, got {type(record).__name__}"


def _csv_rows(path: Path) -> Iterator[tuple[str, dict[str, Any] | str]]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error.reason}); save it as UTF-8, with commas") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] = []
    while True:
        where = f"{path}:{reader.line_num + 1}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield where, f"not valid CSV ({error})"
            return
        if not header:
            header = [name.strip() for name in cells]
            if len(set(header)) < len(header) or not all(header):
                raise ValueError(f"{where}: expected a first line of distinct column names, got {header}")
        elif cells and len(cells) != len(header):
            yield where, f"{len(cells)} cells, but {len(header)} columns; quote cells that contain commas"
        elif cells:
            yield where, {name: cell for name, cell in zip(header, cells, strict=True) if cell.strip()}
