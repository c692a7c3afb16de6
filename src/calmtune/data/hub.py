"""Data sets of the Hugging Face Hub by short name, each pinned to the revision its numbers are published for."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from calmtune.data.rows import Row, parse_row

# rows without an answer exist in most of these sets and cannot be mended here; more than this share is another fault
MAX_FAULTY = 0.01


@dataclass(frozen=True)
class HubDataset:
    """A data set and how its records become ours.

    Args:
        path: ``owner/name`` on the Hub.
        config: name of the configuration, or None for the only one.
        revision: commit to read when the source names none.
        splits: splits that have a gold.
        convert: the record in one of the forms of :func:`calmtune.data.rows.parse_row`.
    """

    path: str
    config: str | None
    revision: str
    splits: tuple[str, ...]
    convert: Callable[[Mapping[str, Any]], dict[str, Any]]


def _unchanged(record: Mapping[str, Any]) -> dict[str, Any]:
    return dict(record)


def _mmlu(record: Mapping[str, Any]) -> dict[str, Any]:
    # `answer` is an index here, also where an option happens to be the same digit
    return {"question": record["question"], "choices": record["choices"], "label": record["answer"]}


def _medmcqa(record: Mapping[str, Any]) -> dict[str, Any]:
    # `cop` counts from 0 on the Hub (from 1 in the authors' own files) and is -1 where the gold is withheld
    choices = [record[key] for key in ("opa", "opb", "opc", "opd")]
    return {"id": record["id"], "question": record["question"], "choices": choices, "label": record["cop"]}


def _alpaca(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: record[key] for key in ("instruction", "input", "output")}


def _popqa(record: Mapping[str, Any]) -> dict[str, Any]:
    return {"question": record["question"], "answers": json.loads(record["possible_answers"])}


def _triviaqa(record: Mapping[str, Any]) -> dict[str, Any]:
    answer = record["answer"]
    return {"question": record["question"], "answers": [answer["value"], *answer["aliases"]]}


HUB: dict[str, HubDataset] = {
    "mmlu": HubDataset(
        "cais/mmlu",
        "all",
        "c30699e8356da336a370243923dbaf21066bb9fe",
        ("test", "validation", "dev", "auxiliary_train"),
        _mmlu,
    ),
    "medmcqa": HubDataset(
        "openlifescienceai/medmcqa", None, "91c6572c454088bf71b679ad90aa8dffcd0d5868", ("train", "validation"), _medmcqa
    ),
    "openbookqa": HubDataset(
        "allenai/openbookqa",
        "main",
        "388097ea7776314e93a529163e0fea805b8a6454",
        ("train", "validation", "test"),
        _unchanged,
    ),
    "arc_challenge": HubDataset(
        "allenai/ai2_arc",
        "ARC-Challenge",
        "210d026faf9955653af8916fad021475a3f00453",
        ("train", "validation", "test"),
        _unchanged,
    ),
    "arc_easy": HubDataset(
        "allenai/ai2_arc",
        "ARC-Easy",
        "210d026faf9955653af8916fad021475a3f00453",
        ("train", "validation", "test"),
        _unchanged,
    ),
    "popqa": HubDataset("akariasai/PopQA", None, "098765c79ea10a2cb19c828324e33281b8336ec0", ("test",), _popqa),
    # with "unfiltered", each question stands once; the test split has no answers
    "triviaqa": HubDataset(
        "mandarjoshi/trivia_qa",
        "unfiltered.nocontext",
        "0f7faf33a3908546c6fd5b73a660e0f8ff173c2f",
        ("train", "validation"),
        _triviaqa,
    ),
    "alpaca": HubDataset("tatsu-lab/alpaca", None, "dce01c9b08f87459cf36a430d809084718273017", ("train",), _alpaca),
}

Fetch = Callable[[HubDataset, str, str], Iterable[Mapping[str, Any]]]


def hub_rows(spec: str, fetch: Fetch | None = None) -> list[Row]:
    """Rows of ``<name>/<split>`` or ``<name>/<split>@<revision>``.

    Rows that cannot be used (no answer, an empty output) are left out and counted in a warning. A record without an id
    of its own gets ``<name>/<split>/<its number>``, which a pinned revision keeps stable.

    Args:
        spec: e.g. ``"arc_easy/train"``. A revision that is no full commit hash may move, and is warned of.
        fetch: (data set, split, revision) -> records; by default :func:`datasets.load_dataset`.

    Raises:
        ValueError: an unknown name or split, a failed download, or too many unusable rows.
    """
    match = re.fullmatch(r"(?P<name>[^/@]+)/(?P<split>[^/@]+)(?:@(?P<revision>\S+))?", spec)
    if match is None or match["name"] not in HUB:
        raise ValueError(f"hub:{spec}: expected hub:<name>/<split>[@<revision>] with a name out of {', '.join(HUB)}")
    name, split, data = match["name"], match["split"], HUB[match["name"]]
    if split not in data.splits:
        raise ValueError(f"hub:{spec}: {name} has the splits {', '.join(data.splits)} (with a gold); got {split!r}")
    revision = match["revision"] or data.revision
    if not re.fullmatch(r"[0-9a-f]{40}", revision):
        warnings.warn(
            f"hub:{spec}: {revision!r} is no commit hash of 40 digits and may move; numbers need not be repeatable",
            stacklevel=2,
        )
    rows: list[Row] = []
    faults: list[str] = []
    for number, record in enumerate((fetch or _fetch)(data, split, revision)):
        where = f"hub:{name}/{split} row {number}"
        try:
            rows.append(
                parse_row(data.convert(record), where=where, default_id=f"{name}/{split}/{number}", domain=name)
            )
        except ValueError as error:
            faults.append(str(error))
        except KeyError as error:
            faults.append(f"{where}: the column {error} is missing; it has {', '.join(map(str, record))}")
    _judge(spec, rows, faults)
    return rows


def _judge(spec: str, rows: list[Row], faults: list[str]) -> None:
    """Warn of a few unusable rows; refuse a set with many, or with an id twice."""
    total = len(rows) + len(faults)
    if not rows or len(faults) > max(1, MAX_FAULTY * total):
        raise ValueError(
            f"hub:{spec}: {len(faults)} of {total} rows cannot be used; the first: {'; '.join(faults[:3]) or 'none'}"
        )
    if faults:
        warnings.warn(f"hub:{spec}: {len(faults)} of {total} rows left out; the first: {faults[0]}", stacklevel=3)
    if len({row.id for row in rows}) < len(rows):
        ids = [row.id for row in rows]
        raise ValueError(f"hub:{spec}: the id {next(i for i in ids if ids.count(i) > 1)!r} occurs twice")


def _fetch(data: HubDataset, split: str, revision: str) -> Iterable[Mapping[str, Any]]:
    import datasets

    try:
        records: Iterable[Mapping[str, Any]] = datasets.load_dataset(
            data.path, data.config, split=split, revision=revision
        )
    except OSError as error:  # no connection, offline mode, or no such revision
        raise ValueError(
            f"cannot load {data.path}@{revision} ({error}). "
            "Download it where there is a connection, or give a local file instead."
        ) from error
    return records
