"""Where rows come from: a file (JSONL, CSV, Parquet), the built-in bank of facts, or a pinned data set of the Hub."""

from __future__ import annotations

import codecs
import csv
import difflib
import hashlib
import io
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from calmtune.data.facts import facts
from calmtune.data.hub import HUB, hub_rows
from calmtune.data.rows import MultipleChoice, Row, parse_row

FAULTS_LISTED = 20
# an item of a file before it is parsed: where it stands, and the record or the reason why there is none
Record = tuple[str, Mapping[str, Any] | ValueError]


def load_rows(source: str | Path, *, limit: int | None = None, seed: int = 0, domain: str | None = None) -> list[Row]:
    """Read rows from ``source``.

    Args:
        source: a path ending in ``.jsonl``, ``.csv`` or ``.parquet``; ``facts`` or ``facts:capitals+currencies``; or a
            name like ``hub:arc_easy/train`` (see :mod:`calmtune.data.hub`).
        limit: at most so many rows, > 0: those with the lowest hash of (seed, id), in order; never just the first.
        seed: of the subset, and of the options' order in ``facts``.
        domain: the domain of all rows. Without it: each row's own ``domain``, else the file name up to its first dot.

    Returns:
        Rows with distinct ids, in the source's order. A file's row without ``id`` gets ``<file stem>/<hash of it>``.

    Raises:
        ValueError: no such source, or faulty rows; every fault is listed with file and line, up to twenty of them.

    >>> [len(load_rows("facts:continents", limit=n)) for n in (3, 5)]
    [3, 5]
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ValueError(f"limit is {limit!r}; expected a whole number > 0, or None for all rows")
    rows = _rows_of(str(source), seed)
    if domain is not None:
        rows = [replace(row, domain=domain) for row in rows]
    if limit is None or limit >= len(rows):
        return rows
    kept = set(
        sorted((row.id for row in rows), key=lambda id_: hashlib.sha256(f"{seed}\x00{id_}".encode()).digest())[:limit]
    )
    return [row for row in rows if row.id in kept]


def _rows_of(source: str, seed: int) -> list[Row]:
    if source == "facts" or source.startswith("facts:"):
        names = source.removeprefix("facts").removeprefix(":")
        return list(facts(names.split("+") if names else None, seed))
    if source.startswith("hub:"):
        return hub_rows(source.removeprefix("hub:"))
    return _file_rows(Path(source).expanduser())


def _file_rows(path: Path) -> list[Row]:
    if not path.is_file():
        raise ValueError(_missing(path))
    readers = {".jsonl": _read_jsonl, ".csv": _read_csv, ".parquet": _read_parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ValueError(
            f"{path}: expected a file ending in {', '.join(readers)}; convert it to JSON Lines, one record a line"
        )
    rows: list[Row] = []
    faults: list[str] = []
    places: dict[str, str] = {}
    for where, record in reader(path):
        try:
            if isinstance(record, ValueError):
                raise record
            content = json.dumps(record, sort_keys=True, ensure_ascii=False, default=str)
            # half a surrogate pair is refused where it is named, by parse_row
            digest = hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()
            row = parse_row(
                record,
                where=where,
                default_id=f"{path.stem}/{digest[:12]}",
                domain=path.name.split(".")[0],
            )
            if row.id in places:
                own = (
                    "has the id" if "id" in record else "has no id and the same content as another row, so the same id"
                )
                raise ValueError(
                    f"{where}: {own} {row.id!r}, first at {places[row.id]}; remove one or give distinct ids"
                )
            places[row.id] = where
            rows.append(row)
        except ValueError as error:
            faults.append(str(error))
    _raise_faults(path, faults, len(rows))
    _warn_equal_options(path, rows)
    return rows


def _raise_faults(path: Path, faults: Sequence[str], good: int) -> None:
    if faults:
        more = f"\n  ... and {len(faults) - FAULTS_LISTED} more" if len(faults) > FAULTS_LISTED else ""
        listed = "\n  ".join(faults[:FAULTS_LISTED])
        raise ValueError(f"{path}: {len(faults)} faulty row(s), {good} good:\n  {listed}{more}")
    if not good:
        raise ValueError(f"{path}: no rows; expected at least one")


def _warn_equal_options(path: Path, rows: Iterable[Row]) -> None:
    equal = [row.id for row in rows if isinstance(row, MultipleChoice) and len(set(row.choices)) < len(row.choices)]
    if equal:
        warnings.warn(
            f"{path}: {len(equal)} row(s) have two options with the same text ({', '.join(equal[:3])}); the gold is"
            " taken by index, but scoring by text cannot tell them apart. Remove them if that matters.",
            stacklevel=5,
        )


def _missing(path: Path) -> str:
    if path.is_dir():
        return f"{path} is a folder; expected one file"
    siblings = [p.name for p in sorted(path.parent.iterdir()) if p.is_file()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, siblings, n=3, cutoff=0.5)
    hint = f" Near: {', '.join(near)}." if near else ""
    if not path.parent.is_dir():
        hint += f" The folder {path.parent} does not exist either."
    if path.name.split("/")[0] in HUB:
        hint += f" For the Hub's data set write hub:{path.name}/<split>."
    return f"no file {path}.{hint} Expected a path, facts, facts:<domains>, or hub:<name>/<split>."


def _read_jsonl(path: Path) -> Iterator[Record]:
    _refuse_wide(path)
    # read as bytes: those split at \n alone, so that U+2028 and its like inside a text cut nothing
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}:{number}"
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                if text:
                    yield where, json.loads(text, object_pairs_hook=_distinct_keys, parse_constant=_no_constant)
            except ValueError as error:  # covers UnicodeDecodeError and JSONDecodeError
                yield where, ValueError(f"{where}: not valid UTF-8 JSON, one object a line ({error})")
            except RecursionError:
                yield where, ValueError(f"{where}: nested too deeply; expected one flat object a line")


def _distinct_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(k for k in keys if keys.count(k) > 1)!r} occurs twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_JSON_COLUMNS = ("choices", "options", "labels", "answers", "messages")
# names of columns by which a header is known to be split rightly
_COLUMNS = frozenset(
    ("question", "answer", "answerKey", "label", "instruction", "output", "prompt", "completion", "id", "domain", "A",
     "B", *_JSON_COLUMNS)
)  # fmt: skip
_CHOICE_COLUMN = re.compile(r"(?:choice|option)_([a-z])|([A-Z])")


def _refuse_wide(path: Path) -> None:
    """Raise for a file that begins with the mark of UTF-16 or UTF-32, as some spreadsheets write."""
    with path.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise ValueError(f"{path}:1: written in UTF-16 or UTF-32; save it as UTF-8")


def _read_csv(path: Path) -> Iterator[Record]:
    _refuse_wide(path)
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # error.object is what is decoded: the file without its mark
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}:{line}: not UTF-8 ({error.reason}); save it as UTF-8") from None
    _refuse_other_separator(path, text.partition("\n")[0])
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise ValueError(f"{path}:1: not valid CSV ({error})") from error
    if len(set(header)) < len(header) or not any(header):
        raise ValueError(f"{path}:1: expected a first line of distinct column names, got {header}")
    while True:
        where = f"{path}:{reader.line_num + 1}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield where, ValueError(f"{where}: not valid CSV ({error})")
            return
        if not cells:
            continue
        try:
            if len(cells) != len(header):
                raise ValueError(f"{len(cells)} cells, but {len(header)} columns; quote cells that contain commas")
            yield where, _from_cells(dict(zip(header, cells, strict=True)))
        except ValueError as error:
            yield where, ValueError(f"{where}: {error}")


def _refuse_other_separator(path: Path, header: str) -> None:
    """Raise where the columns are separated by something else than commas, as some spreadsheets write CSV."""

    def known(separator: str) -> int:
        return len({column.strip(' \r"') for column in header.split(separator)} & _COLUMNS)

    for separator, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars")):
        if known(separator) > 1 and not known(","):
            raise ValueError(
                f"{path}:1: the columns are separated by {name}; expected commas. Save it as CSV with commas"
            )


def _from_cells(cells: Mapping[str, str]) -> dict[str, Any]:
    """A record from CSV text: empty cells are absent, lists are JSON, ``label`` is a number. Nothing is evaluated."""
    record: dict[str, Any] = {
        key: value for key, value in cells.items() if value.strip() and not _CHOICE_COLUMN.fullmatch(key)
    }
    for key in _JSON_COLUMNS:
        if key in record:
            try:
                record[key] = json.loads(record[key])
            except (ValueError, RecursionError) as error:
                reason = error if isinstance(error, ValueError) else "nested too deeply"
                raise ValueError(f'`{key}` is not JSON ({reason}); expected a list such as ["one", "two"]') from error
    if re.fullmatch(r"-?\d+", record.get("label", "").strip()):
        record["label"] = int(record["label"])
    columns = [(match[1] or match[2].lower(), key) for key in cells if (match := _CHOICE_COLUMN.fullmatch(key))]
    letters = sorted(letter.lower() for letter, _ in columns)
    if letters != list("abcdefghijklmnopqrstuvwxyz"[: len(letters)]):
        # the gold's letter is counted from A, so a gap would shift it to another option without a word
        raise ValueError(
            f"the option columns are {', '.join(letter.upper() for letter in letters)}; expected A, B, C, ... without "
            "a gap, each once; rename the columns, or rename a column that is not an option"
        )
    options = [cells[key] for _, key in sorted(columns)]
    while options and not options[-1].strip():
        options.pop()
    if options:
        if "choices" in record or "options" in record:
            raise ValueError("options are given in a list and in columns of their own; keep one form")
        record["choices"] = options
    return record


def _read_parquet(path: Path) -> Iterator[Record]:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                for record in batch.to_pylist():
                    number += 1
                    yield f"{path}:row {number}", {key: value for key, value in record.items() if value is not None}
    except PermissionError:
        raise
    except (pyarrow.ArrowException, OSError) as error:
        after = f" after row {number}" if number else ""
        raise ValueError(f"{path}: not a whole Parquet file{after} ({error}); write it again") from error
