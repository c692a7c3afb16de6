"""From the data settings to the rows of each split, and the record of them that a run keeps."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calmtune.config import DataSettings
from calmtune.data.rows import MultipleChoice, OpenQuestion, Row
from calmtune.data.sources import load_rows
from calmtune.data.splits import check_disjoint, fingerprint, question_key, split_rows

# from the split that a question must stay in to the one that loses it first
KEEP_ORDER = ("test_ood", "test_id", "calibration", "upper", "train")
NAMES = tuple(reversed(KEEP_ORDER))
# the splits that confidence is measured on
SCORED = ("calibration", "test_id", "test_ood")


@dataclass(frozen=True)
class Splits:
    """The rows of a run.

    Args:
        rows: by split: train, upper, calibration, test_id, test_ood; no question is in two of them.
        dropped: how many rows each split lost to another one (``overlap: drop``).
    """

    rows: Mapping[str, Sequence[Row]]
    dropped: Mapping[str, int]

    @property
    def test(self) -> list[MultipleChoice]:
        """All test rows, those of the training domain first."""
        return [row for name in ("test_id", "test_ood") for row in self.rows[name] if isinstance(row, MultipleChoice)]

    @property
    def calibration(self) -> list[MultipleChoice]:
        """The rows that temperatures are fitted on."""
        return [row for row in self.rows["calibration"] if isinstance(row, MultipleChoice)]

    @property
    def is_open(self) -> bool:
        """Whether confidence is measured on open questions: answers are sampled, not options scored."""
        return any(isinstance(row, OpenQuestion) for name in SCORED for row in self.rows[name])

    @property
    def open_test(self) -> list[OpenQuestion]:
        """All open test questions, those of the training domain first."""
        return [row for name in ("test_id", "test_ood") for row in self.rows[name] if isinstance(row, OpenQuestion)]

    @property
    def open_calibration(self) -> list[OpenQuestion]:
        """The open questions that temperatures are fitted on."""
        return [row for row in self.rows["calibration"] if isinstance(row, OpenQuestion)]

    @property
    def shifts(self) -> dict[str, str]:
        """``"ID"`` or ``"OOD"`` by test domain."""
        return {
            domain: shift
            for name, shift in (("test_id", "ID"), ("test_ood", "OOD"))
            for domain in dict.fromkeys(row.domain for row in self.rows[name])
        }

    def record(self) -> dict[str, Any]:
        """What is written beside the run: ids, hashes of the normalised questions, and one fingerprint a split."""
        return {
            "shifts": self.shifts,
            "dropped": dict(self.dropped),
            "splits": {
                name: {
                    "count": len(rows),
                    "domains": dict(Counter(row.domain for row in rows)),
                    "fingerprint": fingerprint(rows),
                    "rows": {row.id: question_key(row)[:16] for row in rows},
                }
                for name, rows in self.rows.items()
            },
        }


def build_splits(data: DataSettings) -> Splits:
    """Load the sources, hold out what has no source of its own, take out overlaps, and cut to the limits.

    Args:
        data: checked settings.

    Returns:
        Disjoint splits. Which rows are in each depends on the settings and the rows alone; within a split they keep
        the order of the files, which training and the record's fingerprints depend on.

    Raises:
        ValueError: a broken row, an overlap with ``overlap: error``, an empty split, rows without options where
            confidence is measured, a domain that is both ID and OOD, or an id that occurs twice among
            the items to be scored.
    """
    rows = {
        "train": take_by_domain(_load(data.train_sources), data.domain_limit, data.split_seed),
        "upper": _load(data.upper_sources),
        "calibration": _load(data.calibration_sources),
        "test_id": _load(data.test_id),
        "test_ood": _load(data.test_ood),
    }
    shares = {("test_id" if name == "test" else name): share for name, share in data.held_out()}
    if shares:
        rows |= split_rows(rows["train"], {"train": 1 - sum(shares.values()), **shares}, data.split_seed)
    before = {name: len(rows[name]) for name in NAMES}
    if data.overlap == "drop":
        rows = drop_overlaps(rows)
    check_disjoint(rows)
    dropped = {name: before[name] - len(rows[name]) for name in NAMES if before[name] > len(rows[name])}
    seed = data.split_seed
    cut: dict[str, Sequence[Row]] = {
        "train": take(rows["train"], data.train_limit, seed),
        "upper": take(rows["upper"], data.upper_limit, seed),
        "calibration": take(rows["calibration"], data.calibration_limit, seed),
        "test_id": take_by_domain(rows["test_id"], data.test_limit, seed),
        "test_ood": take_by_domain(rows["test_ood"], data.test_limit, seed),
    }
    check_usable(cut)
    return Splits(cut, dropped)


def load_scored(data: DataSettings) -> Splits:
    """The rows on which a model is scored that is not trained: calibration (there may be none) and test.

    Raises:
        ValueError: see :func:`build_splits`.
    """
    rows: dict[str, Sequence[Row]] = {
        "train": [],
        "upper": [],
        "calibration": _load(data.calibration_sources),
        "test_id": _load(data.test_id),
        "test_ood": _load(data.test_ood),
    }
    before = {name: len(rows[name]) for name in NAMES}
    if data.overlap == "drop":
        rows = {**drop_overlaps(rows)}
    check_disjoint(rows)
    dropped = {name: before[name] - len(rows[name]) for name in NAMES if before[name] > len(rows[name])}
    rows["calibration"] = take(rows["calibration"], data.calibration_limit, data.split_seed)
    for name in ("test_id", "test_ood"):
        rows[name] = take_by_domain(rows[name], data.test_limit, data.split_seed)
    check_usable(rows, trains=False)
    return Splits(rows, dropped)


def drop_overlaps(rows: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """Leave each question in the split that may learn least from it: test, calibration, upper, then train."""
    taken: set[str] = set()
    kept: dict[str, list[Row]] = {}
    for name in KEEP_ORDER:
        keys = [question_key(row) for row in rows[name]]
        kept[name] = [row for row, key in zip(rows[name], keys, strict=True) if key not in taken]
        taken.update(keys)
    return {name: kept[name] for name in NAMES}


def take(rows: Sequence[Row], limit: int | None, seed: int) -> list[Row]:
    """At most ``limit`` rows, drawn by a hash of (seed, id), in their original order; never simply the first ones."""
    if limit is None or len(rows) <= limit:
        return list(rows)
    drawn = sorted(range(len(rows)), key=lambda index: _rank(rows[index], seed))[:limit]
    return [rows[index] for index in sorted(drawn)]


def take_by_domain(rows: Sequence[Row], limit: int | None, seed: int) -> list[Row]:
    """At most ``limit`` rows of each domain."""
    by_domain: dict[str, list[Row]] = {}
    for row in rows:
        by_domain.setdefault(row.domain, []).append(row)
    return [row for part in by_domain.values() for row in take(part, limit, seed)]


def check_usable(rows: Mapping[str, Sequence[Row]], *, trains: bool = True) -> None:
    """Raise where a split cannot do its work.

    Args:
        trains: whether there must be rows to train on.

    Raises:
        ValueError: see :func:`build_splits`.
    """
    faults = [
        f"the split {name} is empty; give {setting}"
        for name, setting in (
            ("train", "more train_sources, or smaller shares"),
            ("upper", "upper_sources, or an upper_share above 0"),
            ("calibration", "calibration_sources, or a calibration_share above 0"),
        )
        if trains and not rows[name]
    ]
    if not rows["test_id"] and not rows["test_ood"]:
        faults.append("there are no test rows; give test_id, test_ood, or a test_share above 0")
    faults += _kind_faults(rows)
    for name, scored in (("calibration", rows["calibration"]), ("test", [*rows["test_id"], *rows["test_ood"]])):
        repeated = [row_id for row_id, count in Counter(row.id for row in scored).items() if count > 1]
        if repeated:
            faults.append(f"the id {repeated[0]!r} occurs more than once among the {name} rows; ids must differ")
    both = {row.domain for row in rows["test_id"]} & {row.domain for row in rows["test_ood"]}
    if both:
        faults.append(f"the domain {min(both)!r} is in test_id and in test_ood; a domain is one or the other")
    if faults:
        raise ValueError("\n".join(faults))


def _kind_faults(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """Confidence is measured on questions with options, or on open ones, never on both in one run."""
    faults = []
    kinds: dict[str, str] = {}
    for name in SCORED:
        setting = name if name.startswith("test") else f"{name}_sources"
        for kind, words in ((MultipleChoice, "with options"), (OpenQuestion, "open questions")):
            of_kind = next((row.id for row in rows[name] if isinstance(row, kind)), None)
            if of_kind is not None:
                kinds.setdefault(words, f"{name} (e.g. {of_kind!r})")
        other = next((row for row in rows[name] if not isinstance(row, MultipleChoice | OpenQuestion)), None)
        if other is not None:
            faults.append(
                f"the split {name} has rows without options, e.g. {other.id!r}; confidence is measured on multiple "
                f"choice or open questions, so give {setting} with options or with accepted answers"
            )
    if len(kinds) > 1:
        told = ", ".join(f"{words} in {where}" for words, where in kinds.items())
        faults.append(f"the scored splits hold questions of two kinds: {told}; give one kind to a run")
    return faults


def _load(sources: Sequence[str]) -> list[Row]:
    return [row for source in sources for row in load_rows(source)]


def _rank(row: Row, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\x00{row.id}".encode()).digest()
