"""One door for every kind of predictions made elsewhere: the keys of the first record say which it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from calmtune.predictions import FORMAT, Predictions, load_predictions

from .harness_log import (
    NO_OPTIONS,
    Normalisation,
    find_logs,
    has_options,
    is_harness_log,
    read_harness_log,
    task_of,
)
from .lines import read_records
from .record import Outcomes, of_distributions
from .table import read_table


def read_external(
    path: Path | str,
    *,
    normalisation: Normalisation = "sum",
    filter_name: str | None = None,
    labelled: bool = True,
) -> tuple[Outcomes, ...]:
    """Read predictions that another program made, a record a domain.

    Args:
        path: a CSV or JSON Lines file of (confidence, correct) or (probabilities, label); a per-sample log of lm-eval,
            or the folder it wrote them to; or a file of :mod:`calmtune.predictions`.
        normalisation, filter_name: of an lm-eval log, see :func:`calmtune.external.harness_log.read_harness_log`.
        labelled: False where `confidence` may stand without `correct`.

    Raises:
        ValueError: something else, or a row that cannot be right; file, row and column are named.
    """
    path = Path(path)
    if path.is_dir():
        return _folder(path, normalisation, filter_name)
    records = read_records(path)
    if records[0][1].get("format") == FORMAT:
        return _own(load_predictions(path))
    if is_harness_log(records):
        return (read_harness_log(path, records, normalisation=normalisation, filter_name=filter_name),)
    return read_table(path, records, labelled=labelled)


def is_own(path: Path) -> bool:
    """Whether a file is one of :mod:`calmtune.predictions`, told by its first line."""
    return path.is_file() and path.suffix == ".jsonl" and read_records(path)[0][1].get("format") == FORMAT


def _folder(path: Path, normalisation: Normalisation, filter_name: str | None) -> tuple[Outcomes, ...]:
    """Every task of a folder that has options; the others are named in the notes."""
    files, notes = find_logs(path)
    found = []
    for file in files:
        records = read_records(file)
        if has_options(records):
            found.append(read_harness_log(file, records, normalisation=normalisation, filter_name=filter_name))
        else:
            notes.append(f"{task_of(file)} was not read: {NO_OPTIONS}")
    if not found:
        raise ValueError(f"{path}: {'; '.join(notes)}")
    return (replace(found[0], notes=(*notes, *found[0].notes)), *found[1:])


def _own(predictions: Predictions) -> tuple[Outcomes, ...]:
    """Our own records, raw, and adjusted where they have that."""
    kinds = ((" raw", False), (" adjusted", True)) if predictions.has_adjusted else (("", False),)
    found = []
    for domain in predictions.domains:
        part = predictions.of_domain(domain)
        for name, adjusted in kinds:
            table = part.probabilities(adjusted=adjusted)
            rows = [row[: len(item.scores)] for row, item in zip(table.tolist(), part, strict=True)]
            found.append(of_distributions(domain + name, part.ids, rows, part.labels.tolist()))
    return tuple(found)
