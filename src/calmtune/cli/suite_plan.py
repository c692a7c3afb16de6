"""What of a suite is done, what is missing, and which runs of older settings, code or data lie beside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from calmtune.cli.console import say
from calmtune.cli.suite_folder import SuiteFolder, durations, place, siblings
from calmtune.run_key import RunKey, changes, code_changes, run_key
from calmtune.suite import PlannedRun, Suite

State = Literal["done", "kept", "missing", "interrupted", "failed"]
WORDS = {
    "done": "done",
    "kept": "done by other code",
    "missing": "missing",
    "interrupted": "interrupted",
    "failed": "failed",
}
STYLES = {"done": "green", "kept": "green", "missing": "", "interrupted": "yellow", "failed": "red"}


@dataclass(frozen=True)
class Entry:
    """One run of a plan.

    Args:
        run, key, folder: what it is and where. state: how far it is.
        failure: what the last try left, if it failed.
        code: what differs in the code, for a run that is kept in spite of it.
        stale: other folders of the same run with what changed since.
    """

    run: PlannedRun
    key: RunKey
    folder: SuiteFolder
    state: State
    failure: str | None = None
    code: tuple[str, ...] = ()
    stale: tuple[tuple[Path, tuple[str, ...]], ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether its predictions can be used."""
        return self.state in ("done", "kept")


def make_plan(suite: Suite, *, keep_code: bool = False) -> list[Entry]:
    """Look at every run of a suite; nothing is loaded or written."""
    return [look(suite.output_dir, run, run_key(run.config), keep_code=keep_code) for run in suite.runs]


def look(root: Path, run: PlannedRun, key: RunKey, *, keep_code: bool = False) -> Entry:
    """How far one run is.

    Args:
        root: the suite's output_dir.
        keep_code: take a finished run that differs in the code alone.

    Raises:
        ValueError: the folder of this key holds another run.
    """
    folder = place(root, run, key)
    record = folder.read()
    if record is not None and record["key"] != key.digest:
        raise ValueError(f"{folder.path} holds another run (its key is {record['key'][:16]}); move it away")
    others = [
        (other, found)
        for other in siblings(folder.path.parent)
        if other.path != folder.path
        and (found := other.read()) is not None
        and (found["method"], found["seed"]) == (run.method, run.seed)
    ]
    told = {other.path: tuple(changes(found["parts"], key)) for other, found in others}
    state: State = "missing"
    if folder.is_finished:
        state = "done"
    elif folder.failure is not None:
        state = "failed"
    elif record is not None:
        state = "interrupted"
    if keep_code and state != "done":
        for other, found in others:
            code = tuple(code_changes(found["parts"], key))
            if other.is_finished and told[other.path] == code:
                rest = tuple((path, lines) for path, lines in told.items() if path != other.path)
                return Entry(run, key, other, "kept", code=code, stale=rest)
    return Entry(run, key, folder, state, folder.failure, stale=tuple(told.items()))


def show_plan(suite: Suite, plan: Sequence[Entry]) -> None:
    """Say of each run how far it is, and what would be trained."""
    say(headline(suite, plan), style="bold")
    widths = [max(len(names[column]) for names in map(names_of, plan)) for column in range(4)]
    for entry in plan:
        names = "  ".join(name.ljust(width) for name, width in zip(names_of(entry), widths, strict=True))
        say(f"  {names}  {WORDS[entry.state]:<18}  {entry.folder.path.name}".rstrip(), style=STYLES[entry.state])
        if entry.state == "failed":
            say(f"      {failure_line(entry)} ({entry.folder.path / 'failed.txt'})", style="red")
        for line in entry.code:
            say(f"      kept, although other: {line}", style="yellow")
        for path, lines in entry.stale:
            say(f"      stale: {path.name}", style="yellow")
            for line in lines or ("nothing that is known; it was made by another version",):
                say(f"        {line}", style="yellow")
    todo = [entry for entry in plan if not entry.is_done]
    if todo:
        say(f"to train: {len(todo)}{about(remaining(todo, durations(suite.output_dir)), ', about ')}")
    else:
        say("nothing to train")


def headline(suite: Suite, plan: Sequence[Entry]) -> str:
    """The suite in one line."""
    counts = Counter(WORDS[entry.state] for entry in plan)
    axes = ", ".join(
        f"{len(names)} {word if len(names) == 1 else word + 's'}"
        for word in ("setting", "model", "method", "seed")
        if (names := {getattr(entry.run, word) for entry in plan})
    )
    states = ", ".join(f"{counts[word]} {word}" for word in WORDS.values() if counts[word])
    return f"{suite.title}: {len(plan)} run{'s' * (len(plan) != 1)} ({axes}): {states}"


def remaining(todo: Sequence[Entry], known: Mapping[str, Sequence[float]]) -> float | None:
    """Seconds that the runs will take: the mean of their method's finished runs, or of all; None without any.

    >>> remaining([], {"sft": [2.0]})
    0.0
    """
    everything = [seconds for one in known.values() for seconds in one]
    if not everything:
        return None
    return sum((_mean(known.get(entry.run.method) or everything) for entry in todo), 0.0)


def about(seconds: float | None, before: str = "", after: str = "") -> str:
    """A duration for people, or nothing where it is not known.

    >>> about(7384, "about "), about(59.6), about(192, after=" left"), about(None, "about ")
    ('about 2 h 3 min', '1 min 00 s', '3 min 12 s left', '')
    """
    if seconds is None:
        return ""
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours} h {minutes} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
    return f"{before}{text}{after}"


def failure_line(entry: Entry) -> str:
    """The error that ended the last try, in one line."""
    lines = [line for line in (entry.failure or "").splitlines() if line and not line.startswith(" ")]
    return lines[-1] if lines else ""


def names_of(entry: Entry) -> tuple[str, str, str, str]:
    """The columns that name a run."""
    return entry.run.setting, entry.run.model, entry.run.method, f"seed {entry.run.seed}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
