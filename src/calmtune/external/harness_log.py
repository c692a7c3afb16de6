"""The per-sample logs of lm-eval (``samples_<task>_<date>.jsonl``, written with ``--log_samples``).

A line of a multiple-choice task has the log-likelihood of every option. The confidence is the largest entry of their
softmax, and whether the choice is right is the harness's own verdict (``acc``, ``acc_norm`` or ``acc_bytes``). The
index of the right option stands in the log only as text, so each reading of it is checked against that verdict on
every line, and measures that need it are left out where no reading, or more than one, agrees.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from .lines import Record, raise_faults
from .record import Floats, Outcomes, padded

Normalisation = Literal["sum", "character", "byte"]
VERDICTS: dict[str, str] = {"sum": "acc", "character": "acc_norm", "byte": "acc_bytes"}
KEYS = frozenset({"doc_id", "target", "arguments", "filtered_resps"})
NO_OPTIONS = "no log-likelihoods of several options; only output_type multiple_choice has a confidence in its log"
_NAME = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d{2}-\d{2}T[\d.-]+)\.jsonl")


def is_harness_log(records: Sequence[Record]) -> bool:
    """Whether the first record has the keys of a log."""
    return set(records[0][1]) >= KEYS


def has_options(records: Sequence[Record]) -> bool:
    """Whether the log is of a task with options, so that there is a confidence in it."""
    responses = records[0][1].get("filtered_resps")
    if not isinstance(responses, list) or len(responses) < 2:
        return False
    return all(isinstance(one, list) and len(one) == 2 for one in responses)


def find_logs(folder: Path) -> tuple[list[Path], list[str]]:
    """The newest log of every task in a folder, or in its only subfolder with logs; and a note on older ones.

    Raises:
        ValueError: there are none, or several models have some.
    """
    logs = [path for path in sorted(folder.rglob("samples_*.jsonl")) if _NAME.fullmatch(path.name)]
    if not logs:
        raise ValueError(
            f"{folder}: no samples_<task>_<date>.jsonl in it; run lm-eval with --log_samples and --output_path"
        )
    models = sorted({str(path.parent) for path in logs})
    if len(models) > 1:
        raise ValueError(f"{folder}: logs of {len(models)} models; give one of the folders {', '.join(models)}")
    newest: dict[str, Path] = {}
    for path in logs:  # sorted by name, so by date within a task
        newest[task_of(path)] = path
    older = len(logs) - len(newest)
    return list(newest.values()), [f"{older} older logs of the same tasks were not read"] if older else []


def task_of(path: Path) -> str:
    """The task's name, from the file's."""
    found = _NAME.fullmatch(path.name)
    return found["task"] if found else path.stem


def read_harness_log(
    path: Path, records: Sequence[Record], *, normalisation: Normalisation = "sum", filter_name: str | None = None
) -> Outcomes:
    """One task's log.

    Args:
        path: the file; its name gives the domain.
        records: its lines.
        normalisation: ``"sum"`` for the log-likelihoods as they are (lm-eval's ``acc``), ``"character"`` for those
            divided by the option's length in characters (``acc_norm``), ``"byte"`` in UTF-8 bytes (``acc_bytes``).
        filter_name: which of the log's filters, where it has several.

    Raises:
        ValueError: no multiple-choice log, several filters and none named, or a verdict that our reading contradicts.
    """
    if normalisation not in get_args(Normalisation):
        raise ValueError(f"normalisation: expected one of {', '.join(get_args(Normalisation))}, got {normalisation!r}")
    if not has_options(records):
        raise ValueError(f"{path}: {NO_OPTIONS}")
    lines, faults = [], []
    for where, record in _filtered(path, records, filter_name):
        try:
            lines.append(_line(where, record, normalisation))
        except ValueError as error:
            faults.append(f"{where}: {error}")
    raise_faults(path, faults)
    task = task_of(path)
    table = padded([_softmax(line.scores) for line in lines])
    chosen = np.array([line.chosen for line in lines])
    labels, note = _labels(lines)
    if labels is None and any(line.verdict is None for line in lines):
        raise ValueError(f"{path}: neither {VERDICTS[normalisation]} nor a right option can be read from it ({note})")
    correct = np.array(
        [labels[i] == chosen[i] if line.verdict is None else line.verdict for i, line in enumerate(lines)]  # type: ignore[index]
    )
    known = labels is not None
    return Outcomes(
        domain=task,
        ids=tuple(line.identity for line in lines),
        confidence=table[np.arange(len(lines)), chosen],
        correct=correct,
        probabilities=table if known else None,
        labels=np.array(labels, dtype=np.int64) if known else None,
        n_options=np.array([len(line.scores) for line in lines], dtype=np.int64) if known else None,
        ties=int(((table == table.max(axis=1, keepdims=True)).sum(axis=1) > 1).sum()),
        notes=() if known else (f"{task}: NLL, Brier and cw-ECE are left out: {note}",),
    )


@dataclass(frozen=True)
class _Line:
    """One question: its options' scores and texts, the harness's verdict, and the target as the log has it."""

    where: str
    identity: str
    scores: Floats
    options: tuple[str, ...]
    target: str
    verdict: bool | None

    @property
    def chosen(self) -> int:
        """As the harness chooses: the first of the best."""
        return int(self.scores.argmax())


def _filtered(path: Path, records: Sequence[Record], filter_name: str | None) -> list[Record]:
    names = sorted({str(record.get("filter", "none")) for _, record in records})
    if filter_name is None and len(names) > 1:
        raise ValueError(f"{path}: results of the filters {', '.join(names)}; name one with --harness_filter")
    wanted = names[0] if filter_name is None else filter_name
    kept = [(where, record) for where, record in records if str(record.get("filter", "none")) == wanted]
    if not kept:
        raise ValueError(f"{path}: no results of the filter {wanted!r}; there are {', '.join(names)}")
    return kept


def _line(where: str, record: Mapping[str, Any], normalisation: str) -> _Line:
    missing = sorted(KEYS - set(record))
    if missing:
        raise ValueError(f"the key {missing[0]!r} is missing")
    likelihoods = _likelihoods(record["filtered_resps"])
    options = _options(record["arguments"])
    if "acc_mutual_info" in record.get("metrics", ()) and len(options) % 2 == 0:
        # the second half are the same options without the question
        likelihoods, options = likelihoods[: len(options) // 2], options[: len(options) // 2]
    if len(likelihoods) != len(options):
        raise ValueError(f"{len(likelihoods)} log-likelihoods for {len(options)} options")
    lengths = {
        "sum": [1.0] * len(options),
        "character": [float(len(option)) for option in options],
        "byte": [float(len(option.encode())) for option in options],
    }[normalisation]
    scores = np.array(likelihoods) / np.maximum(lengths, 1.0)
    verdict = record.get(VERDICTS[normalisation])
    if verdict is not None and verdict not in (0, 1):
        raise ValueError(f"{VERDICTS[normalisation]} is {verdict!r}; expected 0 or 1")
    return _Line(
        where, str(record["doc_id"]), scores, options, str(record["target"]), None if verdict is None else bool(verdict)
    )


def _likelihoods(responses: Any) -> list[float]:
    """Log-likelihoods of (log-likelihood, is greedy) pairs, which are text in newer logs."""
    if not isinstance(responses, list) or not all(isinstance(one, list) and len(one) == 2 for one in responses):
        raise ValueError("filtered_resps are no (log-likelihood, is greedy) pairs")
    found = []
    for one in responses:
        try:
            value = float(one[0])
        except (TypeError, ValueError):
            raise ValueError(f"the log-likelihood {one[0]!r:.40} is no number") from None
        if np.isnan(value) or value > 1e-6:
            raise ValueError(f"the log-likelihood {value} is not below 0")
        found.append(value)
    if not np.isfinite(found).any():
        raise ValueError("every option has log-likelihood -inf")
    return found


def _options(arguments: Any) -> tuple[str, ...]:
    """The options' texts: the continuation that was scored, without the space before it."""
    if isinstance(arguments, Mapping):
        parts = [[one["arg_0"], one["arg_1"]] for one in arguments.values() if {"arg_0", "arg_1"} <= set(one)]
    else:
        parts = [list(one) for one in arguments]
    if not all(len(part) >= 2 and isinstance(part[1], str) for part in parts):
        raise ValueError("arguments are no (context, continuation) pairs")
    return tuple(part[1].strip() for part in parts)


def _labels(lines: Sequence[_Line]) -> tuple[list[int] | None, str]:
    """The right options' indices by the one reading of the targets that fits every line, or None and the reason."""
    fitting: list[list[int]] = []
    for read in (_by_index, _by_text):
        labels = [read(line) for line in lines]
        if all(
            label is not None and (line.verdict is None or (label == line.chosen) == line.verdict)
            for label, line in zip(labels, lines, strict=True)
        ):
            fitting.append([label for label in labels if label is not None])
    if not fitting:
        several = sum(isinstance(_literal(line.target), list) for line in lines)
        why = f"{several} items have several right options" if several else "no reading of the targets fits"
        return None, why
    if any(other != fitting[0] for other in fitting[1:]):
        return None, "the targets can be read as indices and as texts, and both fit the verdicts"
    return fitting[0], ""


def _by_index(line: _Line) -> int | None:
    value = _literal(line.target)
    return value if isinstance(value, int) and 0 <= value < len(line.options) else None


def _by_text(line: _Line) -> int | None:
    return line.options.index(line.target.strip()) if line.options.count(line.target.strip()) == 1 else None


def _literal(text: str) -> Any:
    """An integer or a list that is written out; None for anything else."""
    if not re.fullmatch(r"-?\d+|\[.*\]", text.strip()):
        return None
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return None


def _softmax(scores: Floats) -> list[float]:
    z = np.exp(scores - scores.max())
    found: list[float] = (z / z.sum()).tolist()
    return found
