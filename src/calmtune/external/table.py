"""Tables of (confidence, correct) or of (probabilities, label), one row an item, in CSV or JSON Lines.

What a column is, its name says; nothing is guessed from values. Columns beside these are ``id`` and ``domain``.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calmtune.metrics.checks import RANGE_TOLERANCE, ROW_SUM_TOLERANCE

from .lines import Record, raise_faults
from .record import Outcomes, of_distributions

FORMS = "(confidence, correct) or (probabilities, label)"
# columns that look like what is wanted and are not
_NOT_READ = {
    "logits": "logits are not read; write softmax(logits) as `probabilities`",
    "scores": "scores are not read; write their softmax as `probabilities`",
    "logprobs": "log-probabilities are not read; write exp of them as `probabilities`",
}
_TRUTH = {"true": True, "false": False, "1": True, "0": False}


def read_table(path: Path, records: Sequence[Record], *, labelled: bool = True) -> tuple[Outcomes, ...]:
    """The outcomes of each domain, in order of appearance.

    Args:
        path: for messages, and the domain of rows without one: its name up to the first dot.
        records: as :func:`calmtune.external.lines.read_records` gives them.
        labelled: False where `confidence` may stand without `correct`.

    Raises:
        ValueError: columns of no form or of both, or a value that cannot be right; row and column are named.
    """
    distributions = _form(path, records, labelled)
    parse = _distribution if distributions else _confidence
    rows: list[tuple[str, str, Any, Any]] = []
    faults: list[str] = []
    for number, (where, record) in enumerate(records):
        try:
            first, second = parse(record)
            rows.append(
                (_text(record, "domain", path.name.split(".")[0]), _text(record, "id", str(number)), first, second)
            )
        except ValueError as error:
            faults.append(f"{where}: {error}")
    raise_faults(path, faults)
    _refuse_repeated(path, rows)
    known = [second is not None for *_, second in rows]
    if any(known) and not all(known):
        raise ValueError(f"{records[known.index(False)][0]}: column `correct` is empty here and filled elsewhere")
    domains = dict.fromkeys(domain for domain, *_ in rows)
    return tuple(_outcomes(domain, [row for row in rows if row[0] == domain], distributions) for domain in domains)


def _outcomes(domain: str, rows: Sequence[tuple[str, str, Any, Any]], distributions: bool) -> Outcomes:
    _, ids, first, second = zip(*rows, strict=True)
    if distributions:
        return of_distributions(domain, ids, first, second)
    correct = None if second[0] is None else np.array(second, dtype=bool)
    return Outcomes(domain, ids, np.array(first, dtype=np.float64), correct)


def _form(path: Path, records: Sequence[Record], labelled: bool) -> bool:
    """Whether the columns are of the second form."""
    columns = {name for _, record in records for name in record}
    for name, advice in _NOT_READ.items():
        if name in columns:
            raise ValueError(f"{path}: column `{name}`: {advice}")
    confidences, distributions = columns & {"confidence", "correct"}, columns & {"probabilities", "label"}
    if confidences and distributions:
        raise ValueError(
            f"{path}: the columns {', '.join(sorted(confidences | distributions))} belong to both forms; expected "
            f"{FORMS}. Remove one pair"
        )
    if len(distributions) == 2:
        return True
    if len(confidences) == 2 or (confidences == {"confidence"} and not labelled):
        return False
    found = ", ".join(sorted(map(str, columns))) or "none"
    raise ValueError(f"{path}: expected the columns {FORMS}, with `id` and `domain` if you like; got {found}")


def _confidence(record: Mapping[str, Any]) -> tuple[float, bool | None]:
    value = _number(_needed(record, "confidence"), "confidence")
    if not -RANGE_TOLERANCE <= value <= 1.0 + RANGE_TOLERANCE:
        raise ValueError(
            f"column `confidence` is {value:g}; expected a probability in [0, 1]. Logits and per cent are not read: "
            "convert them first"
        )
    return min(max(value, 0.0), 1.0), _truth(record["correct"]) if "correct" in record else None


def _distribution(record: Mapping[str, Any]) -> tuple[list[float], int]:
    value = _needed(record, "probabilities")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError(f"column `probabilities` is {value!r:.60}; expected a list such as [0.7, 0.3]") from None
    if not isinstance(value, list) or len(value) < 2:
        raise ValueError(f"column `probabilities` is {value!r:.60}; expected a list of at least two numbers")
    row = [_number(one, f"probabilities[{k}]") for k, one in enumerate(value)]
    for k, one in enumerate(row):
        if not -RANGE_TOLERANCE <= one <= 1.0 + RANGE_TOLERANCE:
            raise ValueError(f"column `probabilities[{k}]` is {one:g}; expected a probability in [0, 1], no logit")
    if abs(sum(row) - 1.0) > ROW_SUM_TOLERANCE:
        raise ValueError(f"column `probabilities` sums to {sum(row):.6g}; expected 1 within {ROW_SUM_TOLERANCE:g}")
    label = _number(_needed(record, "label"), "label")
    if label != int(label) or not 0 <= label < len(row):
        raise ValueError(f"column `label` is {label:g}; expected an option's index from 0 to {len(row) - 1}")
    return [min(max(one, 0.0), 1.0) for one in row], int(label)


def _needed(record: Mapping[str, Any], name: str) -> Any:
    if record.get(name) is None:
        raise ValueError(f"column `{name}` is empty or missing")
    return record[name]


def _number(value: Any, name: str) -> float:
    """A finite number; text is taken as one in a CSV cell, where there is nothing else."""
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number):
            return number
    raise ValueError(f"column `{name}` is {value!r:.60}; expected a finite number")


def _truth(value: Any) -> bool:
    key = value.strip().lower() if isinstance(value, str) else str(value).lower()
    if isinstance(value, float) and value in (0.0, 1.0):
        return bool(value)
    if key not in _TRUTH:
        raise ValueError(f"column `correct` is {value!r:.60}; expected true or false, or 1 or 0")
    return _TRUTH[key]


def _text(record: Mapping[str, Any], name: str, default: str) -> str:
    value = record.get(name, default)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"column `{name}` is {value!r:.60}; expected text")
    return str(value)


def _refuse_repeated(path: Path, rows: Sequence[tuple[str, str, Any, Any]]) -> None:
    (place, count) = Counter((domain, identity) for domain, identity, *_ in rows).most_common(1)[0]
    if count > 1:
        raise ValueError(
            f"{path}: the id {place[1]!r} occurs {count} times in the domain {place[0]!r}; ids must differ"
        )
