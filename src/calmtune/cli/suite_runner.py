"""The loop of a suite: one run after another in this process, beside other workers on the same folders."""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path
from typing import TYPE_CHECKING

from calmtune.cli.console import live_line, note, progress, warn
from calmtune.cli.suite_folder import alone, can_share, computing, durations
from calmtune.cli.suite_plan import Entry, about, failure_line, headline, look, names_of, remaining
from calmtune.run_key import base_digest
from calmtune.suite import Suite

if TYPE_CHECKING:
    from calmtune.report.suite import Planned, SuiteRun
    from calmtune.report.suite_openqa import OpenSuiteRun

POLL_SECONDS = 5.0


class SuiteError(RuntimeError):
    """Runs of a suite failed; the message names each."""


def run_suite(suite: Suite, plan: Sequence[Entry], *, keep_code: bool = False) -> list[Entry]:
    """Train and score every run that is not done.

    A run that another worker holds is left to it and looked at again at the end; one that fails is written down and
    the others go on.

    Returns:
        The plan as it is afterwards: every run is done, or failed.
    """
    note(headline(suite, plan), style="bold")
    if not can_share():
        warn("this system has no flock, so two workers would do the same runs; start one only")
    loop = _Loop(suite, plan, keep_code)
    with _quiet_libraries():
        while loop.queue:
            before = len(loop.queue)
            for _ in range(before):
                loop.step(loop.queue.popleft())
            if len(loop.queue) == before:
                loop.wait()
    return [loop.entries[entry.run.name] for entry in plan]


def run_one(entry: Entry) -> None:
    """Train and score one run, from where an earlier try left it; its lock is held by the caller."""
    from calmtune.cli.evaluate import score_run, write_decision
    from calmtune.cli.train import run_training
    from calmtune.training.checkpoint import last_complete_checkpoint

    start = time.monotonic()
    folder, run = entry.folder, entry.run
    base = base_digest(run.config, computing())
    # how long a run takes is told by those that were done in one go
    begun = folder.run.is_trained or last_complete_checkpoint(folder.path) is not None
    folder.write(run, entry.key, base)
    folder.forget_failure()
    with progress("training") as advance:
        run_training(run.placed(folder.path), advance)
    source = folder.take_base(base)
    if source is not None:
        note(f"the base's answers are those of {source.name}")
    write_decision(score_run(folder.path))
    seconds = time.monotonic() - start
    folder.write(run, entry.key, base, finished=True, seconds=None if begun else round(seconds, 3))


def report_suite(suite: Suite, plan: Sequence[Entry]) -> Path:
    """Write the tables and the page of every run that is done; returns the page's path.

    Raises:
        ValueError: no run is done.
    """
    from calmtune.cli.comparison import FITS
    from calmtune.report.suite import write_suite_report

    done = [entry for entry in plan if entry.is_done]
    if not done:
        raise ValueError(f"no run of {suite.path} is done yet, so there is nothing to report")
    note(f"writing the report of {len(done)} run{'s' * (len(done) > 1)}")
    how = suite.runs[0].config.evaluation
    planned = [(run.setting, run.model, run.method, run.seed) for run in suite.runs]
    kinds = {entry.folder.run.is_open for entry in done}
    if len(kinds) > 1:
        raise ValueError(
            f"{suite.path} has runs on open questions and on questions with options, which have no table in common; "
            "make two suites of them"
        )
    if kinds == {True}:
        return _report_open(suite, done, _title(suite, plan), planned)
    runs = [_read_run(entry) for entry in done]
    with alone(suite.output_dir / "report.lock"):
        return write_suite_report(
            runs,
            suite.output_dir,
            title=_title(suite, plan),
            n_bins=how.n_bins,
            n_resamples=how.n_resamples,
            planned=planned,
            **FITS,
        )


def _report_open(suite: Suite, done: Sequence[Entry], title: str, planned: Sequence[Planned]) -> Path:
    """The same for open questions; grades are made anew where the suite's rules are others."""
    from calmtune.report.suite_openqa import summarise_open_suite
    from calmtune.report.suite_openqa_write import write_open_suite

    how = suite.runs[0].config.evaluation
    with alone(suite.output_dir / "report.lock"):
        runs = [_read_open_run(entry) for entry in done]
        summary = summarise_open_suite(
            runs, title=title, n_bins=how.n_bins, n_resamples=how.n_resamples, planned=planned
        )
        return write_open_suite(summary, suite.output_dir)


def _read_open_run(entry: Entry) -> OpenSuiteRun:
    """What one run on open questions left, as the report takes it."""
    from calmtune.cli.openqa import decide_open_run, grade_run
    from calmtune.graded import load_graded
    from calmtune.report.suite_openqa import OpenSuiteRun

    folder, run = entry.folder.run, entry.run
    grade_run(folder, run.config)
    shifts = folder.read_splits()["shifts"]
    by_domain = {}
    for stored in ("base", "tuned", "adjusted"):
        if folder.grades(stored, "test").is_file():
            graded = load_graded(folder.grades(stored, "test"))
            by_domain[stored] = {domain: graded.of_domain(domain) for domain in shifts}
    base, tuned = by_domain.pop("base"), by_domain.pop("tuned")
    return OpenSuiteRun(
        setting=run.setting,
        model=run.model,
        method=run.method,
        seed=run.seed,
        base=base,
        tuned={"raw": tuned, **by_domain},
        shifts=shifts,
        settings=folder.read_settings(),
        decision=decide_open_run(folder),
    )


def _read_run(entry: Entry) -> SuiteRun:
    """What one run left, as the report takes it."""
    from calmtune.cli.comparison import decide_run, read_variant
    from calmtune.report.suite import SuiteRun

    folder, run = entry.folder.run, entry.run
    shifts = folder.read_splits()["shifts"]
    return SuiteRun(
        setting=run.setting,
        model=run.model,
        method=run.method,
        seed=run.seed,
        base=read_variant(folder, "base", "base", shifts),
        tuned=read_variant(folder, "tuned", run.method, shifts),
        shifts=shifts,
        settings=folder.read_settings(),
        training_log=folder.read_training_log(),
        # made anew, like every fit of the report: a stored one may be that of older code
        decision=decide_run(folder),
    )


class _Loop:
    """What is left to do, and what came of the rest."""

    def __init__(self, suite: Suite, plan: Sequence[Entry], keep_code: bool) -> None:
        self.suite, self.keep_code = suite, keep_code
        self.entries = {entry.run.name: entry for entry in plan}
        self.queue = deque(entry for entry in plan if not entry.is_done)
        self.settled = len(plan) - len(self.queue)
        self.start = time.monotonic()
        self.said: set[str] = set()
        self.is_waiting = False
        self.widths = [max(len(names[column]) for names in map(names_of, plan)) for column in range(4)]

    def step(self, entry: Entry) -> None:
        """Do one run, unless another worker holds it or has done it meanwhile."""
        with entry.folder.hold() as ours:
            if not ours:
                self.queue.append(entry)
                return
            now = look(self.suite.output_dir, entry.run, entry.key, keep_code=self.keep_code)
            if now.is_done:
                self._settle(now, "done by another worker", "green")
            elif now.state == "failed" and now.folder.failure != entry.failure:
                self._settle(now, "failed at another worker", "red")
            else:
                self._do(now)

    def wait(self) -> None:
        """Other workers hold all that is left."""
        if not self.is_waiting:
            self.is_waiting = True
            note(f"waiting for {len(self.queue)} held by other workers; should one of them end, its run goes on here")
        time.sleep(POLL_SECONDS)

    def _do(self, entry: Entry) -> None:
        start = time.monotonic()
        word, style = "done", "green"
        with live_line(self._title(entry), self.said):
            try:
                run_one(entry)
            except Exception as error:  # noqa: BLE001 - kept with its traceback and told; the other runs go on
                entry.folder.keep_failure(error)
                word, style = "failed", "red"
        _free_memory()
        now = look(self.suite.output_dir, entry.run, entry.key)
        self._settle(now, f"{word} in {about(time.monotonic() - start)}", style)

    def _settle(self, entry: Entry, what: str, style: str) -> None:
        """A run is done or has failed: say so, and how long the rest will take."""
        title = self._title(entry)
        self.entries[entry.run.name] = entry
        self.settled += 1
        left = about(remaining(self.queue, durations(self.suite.output_dir)), ", about ", " left")
        rest = f"; {about(time.monotonic() - self.start)} so far{left}" if self.queue else ""
        note(f"{title}  {what}{rest}", style=style)
        if entry.state == "failed":
            note(f"  {failure_line(entry)}", style=style)

    def _title(self, entry: Entry) -> str:
        count = len(self.entries)
        names = "  ".join(name.ljust(width) for name, width in zip(names_of(entry), self.widths, strict=True))
        return f"[{self.settled + 1:{len(str(count))}}/{count}] {names}"


def _title(suite: Suite, plan: Sequence[Entry]) -> str:
    """The report's title; runs that other code made are told in it."""
    kept = sum(entry.state == "kept" for entry in plan)
    return f"{suite.title} ({kept} of {len(plan)} runs made by other code)" if kept else suite.title


def _free_memory() -> None:
    """A run's model is garbage by now; the next one needs its place."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Bars of loading and saving would break the line that shows how far a run is."""
    from tqdm.auto import tqdm

    # transformers' own switch does not reach the bar of GGUF files
    shown = tqdm.__init__
    tqdm.__init__ = partialmethod(shown, disable=True)  # type: ignore[method-assign]
    try:
        yield
    finally:
        tqdm.__init__ = shown  # type: ignore[method-assign]
