"""A run of a suite on disk: its folder, what is kept about its key, and the lock of the worker that runs it."""

from __future__ import annotations

import json
import shutil
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from calmtune.cli.folder import RunFolder
from calmtune.predictions import load_predictions
from calmtune.run_key import RunKey
from calmtune.samples import load_samples
from calmtune.suite import PlannedRun

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FORMAT = "calmtune-suite-run/1"
RECORD = "suite_run.json"
FAILURE = "failed.txt"
LOCK = "suite.lock"
# libraries whose versions change the last digits of a score, and so are part of what a stored base depends on
COMPUTING = ("torch", "transformers")
BASE = tuple(f"base.{split}.jsonl" for split in ("calibration", "test"))
# what scored a run is in one of these: options' scores, or sampled answers
STORED = ("predictions", "samples")


@dataclass(frozen=True)
class SuiteFolder:
    """One run's folder: an ordinary run folder with ``suite_run.json`` in it.

    Args:
        path: OUTPUT_DIR/SETTING/MODEL/METHOD-sSEED-HASH.
    """

    path: Path

    @property
    def run(self) -> RunFolder:
        """The same folder as the other commands see it."""
        return RunFolder(self.path)

    def read(self) -> dict[str, Any] | None:
        """What ``suite_run.json`` says; None where there is none."""
        path = self.path / RECORD
        if not path.is_file():
            return None
        advice = "delete the folder, and the run is done again"
        try:
            record = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: not valid JSON ({error}); {advice}") from error
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise ValueError(f"{path}: expected a record with format {FORMAT!r}; {advice}")
        missing = [name for name in ("key", "parts", "base", "finished", "method", "seed") if name not in record]
        if missing:
            raise ValueError(f"{path}: {', '.join(missing)} missing; {advice}")
        return dict(record)

    def write(self, planned: PlannedRun, key: RunKey, base: str, **more: Any) -> None:
        """Keep whose run this is and what it depends on; ``more`` says how far it is."""
        names = {name: getattr(planned, name) for name in ("setting", "model", "method", "seed")}
        record = {"format": FORMAT, **names, "key": key.digest, "parts": key.record(), "base": base}
        self.run.write_json(self.path / RECORD, {**record, "versions": computing(), "finished": False, **more})

    @property
    def is_finished(self) -> bool:
        """Whether the run was trained and scored to the end."""
        record = self.read()
        where = STORED[self.run.is_open]
        stored = [self.path / where / f"tuned.{split}.jsonl" for split in ("calibration", "test")]
        stored += [self.path / where / name for name in BASE]
        if self.run.is_open:
            stored = [path for path in stored if path.is_file() or "test" in path.name]
            stored += self.run.sample_files()
        told = record is not None and record["finished"] and self.run.is_trained and self.run.splits.is_file()
        return bool(told and all(map(_is_whole, stored)))

    @property
    def failure(self) -> str | None:
        """When and how the last try failed, or None."""
        path = self.path / FAILURE
        return path.read_text(encoding="utf-8") if path.is_file() else None

    def keep_failure(self, error: BaseException) -> None:
        """Write down a failed try with its traceback."""
        text = "".join(traceback.format_exception(error))
        when = datetime.now(UTC).isoformat(timespec="seconds")
        (self.path / FAILURE).write_text(f"{when}\n{text}", encoding="utf-8")

    def forget_failure(self) -> None:
        """A new try begins."""
        (self.path / FAILURE).unlink(missing_ok=True)

    @contextmanager
    def hold(self) -> Iterator[bool]:
        """Make the run this process's own inside the block, and give whether it is.

        The system releases the lock when the process ends, however it ends. Without flock (Windows) every worker gets
        every run, so there must be one only; :func:`can_share` tells.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / LOCK).open("a") as file:
            if can_share():
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    yield False
                    return
            yield True

    def take_base(self, base: str) -> Path | None:
        """Copy what the base model said from another run on the same base, and give that run's folder.

        Whether it really was the same (weights, prompts, items, versions) is checked again, item by item, when the run
        is scored: a stored base of another kind is refused there.
        """
        if any(all(_is_whole(self.path / where / name) for name in BASE) for where in STORED):
            return None
        for other in siblings(self.path.parent):
            record = other.read()
            if other.path == self.path or record is None or record["base"] != base:
                continue
            stored = _stored_base(other.path)
            if stored and all(map(_is_whole, stored)):
                for path in stored:
                    _copy(path, self.path / path.parent.name / path.name)
                return other.path
        return None


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait until no other worker is inside a block with this lock file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        if can_share():
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def place(root: Path, planned: PlannedRun, key: RunKey) -> SuiteFolder:
    """The folder of a run under a suite's output_dir."""
    name = f"{planned.method}-s{planned.seed}-{key.digest[:8]}"
    return SuiteFolder(root / planned.setting / planned.model / name)


def siblings(directory: Path) -> list[SuiteFolder]:
    """Every run of a setting and model, by name."""
    return [SuiteFolder(path.parent) for path in sorted(directory.glob(f"*/{RECORD}"))]


def computing() -> dict[str, str]:
    """Versions of the libraries in :data:`COMPUTING`."""
    return {name: version(name) for name in COMPUTING}


def can_share() -> bool:
    """Whether two workers can share a suite on this system."""
    return fcntl is not None


def durations(root: Path) -> Mapping[str, list[float]]:
    """Seconds of each finished run by method; runs that were interrupted in between are left out."""
    found: dict[str, list[float]] = {}
    for path in sorted(root.glob(f"*/*/*/{RECORD}")):
        record = SuiteFolder(path.parent).read()
        if record and record["finished"] and record.get("seconds") is not None:
            found.setdefault(record["method"], []).append(record["seconds"])
    return found


def _stored_base(path: Path) -> list[Path]:
    """What the base said in a run's folder: its scores, or its answers at every temperature; nothing if one lacks."""
    for where in STORED:
        if all((path / where / name).is_file() for name in BASE):
            return sorted((path / where).glob("base.*.jsonl"))
    return []


def _is_whole(path: Path) -> bool:
    """Whether a file of predictions or samples has an item for each that was meant."""
    if not path.is_file():
        return False
    try:
        said = load_samples(path) if path.parent.name == "samples" else load_predictions(path)
    except ValueError:  # a damaged file is not whole; whoever goes on with it gets the reason
        return False
    return len(said) == said.meta.get("n")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    shutil.copyfile(source, partial)
    partial.replace(target)
