"""One file of records made by several processes: each scores its share of the rows, the first one joins the parts.

A part lies beside the file it belongs to, so an interrupted command loses nothing: the next one, with as many processes
or with others, takes over what is in the parts before it shares out what is left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calmtune.cli import ranks
from calmtune.cli.console import Advance

# (rows, file, progress): makes the records of the rows that the file lacks; score_items, sample_answers
Produce = Callable[[Sequence[Any], Path, Advance], object]
# what a part's settings say of its own rows alone
OF_ROWS = frozenset({"n", "items", "scored_as"})


class _Started(Exception):
    """The file has its settings and its first records."""


@dataclass(frozen=True)
class Records:
    """How files of one kind are read and added to.

    Args:
        load: gives something with ``meta`` and records with ids. append: adds records to a file.
    """

    load: Callable[[Path], Any]
    append: Callable[[Path, Iterable[Any]], None]


def produce_in_shares(produce: Produce, rows: Sequence[Any], path: Path, records: Records, advance: Advance) -> None:
    """Make the records of all rows in one file; with one process, by one call of ``produce``.

    Raises:
        ValueError: what ``produce`` raises, or a part was made with other settings.
    """
    if ranks.count() == 1:
        produce(rows, path, advance)
        return
    if ranks.is_main():
        if path.is_file() and _mend(path):
            _join(path, records)
        _begin(produce, rows, path)
        _join(path, records)
    ranks.meet()
    done = {record.id for record in records.load(path)}
    left = [row for row in rows if row.id not in done]
    mine = left[ranks.rank() :: ranks.count()]
    if mine:
        produce(mine, part_of(path, ranks.rank(), ranks.count()), advance)
    ranks.meet()
    if ranks.is_main():
        _join(path, records)
        produce(rows, path, advance)  # everything is there: puts it in order
    ranks.meet()


def part_of(path: Path, rank: int, count: int) -> Path:
    """Where a process keeps its part.

    >>> part_of(Path("tuned.test.jsonl"), 1, 4).name
    'tuned.test.part1of4.jsonl'
    """
    return path.with_name(f"{path.stem}.part{rank}of{count}{path.suffix}")


def _begin(produce: Produce, rows: Sequence[Any], path: Path) -> None:
    """Start the file, or check the one that is there: its settings, which are of all rows, and one more batch."""

    def stop(done: int, total: int) -> None:
        if done < total:
            raise _Started

    with suppress(_Started):
        produce(rows, path, stop)


def _mend(path: Path) -> bool:
    """Take off a last line that a crash cut short; whether anything is left."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)
    return whole > 0


def _join(path: Path, records: Records) -> None:
    """Move what is in parts into the file."""
    whole = records.load(path)
    seen = {record.id for record in whole}
    for part in sorted(path.parent.glob(f"{path.stem}.part*of*{path.suffix}")):
        if not _mend(part):
            part.unlink()
            continue
        found = records.load(part)
        odd = _differences(whole.meta, found.meta)
        if odd:
            raise ValueError(f"{part} was made with other settings than {path} ({', '.join(odd)}); delete it")
        new = [record for record in found if record.id not in seen]
        records.append(path, new)
        seen |= {record.id for record in new}
        part.unlink()


def _differences(whole: Mapping[str, Any], part: Mapping[str, Any]) -> list[str]:
    keys = sorted({*whole, *part} - OF_ROWS)
    if part.get("normalisation") is None and "normalisation" in keys:  # a part without texts
        keys.remove("normalisation")
    return [key for key in keys if part.get(key) != whole.get(key)]
