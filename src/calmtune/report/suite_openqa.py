"""A suite on open questions: every method's figures over seeds, beside the base and paired with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calmtune.graded import GradedAnswers
from calmtune.report.comparison import Shift
from calmtune.report.numbers import Difference, Estimate
from calmtune.report.openqa_column import OPEN
from calmtune.report.openqa_measures import OPEN_MEASURES
from calmtune.report.openqa_readings import OpenReading, align, join, read_open
from calmtune.report.openqa_summary import refuse_other_ways
from calmtune.report.suite_column import ColumnStatistics, Key, Spread, paired_keys
from calmtune.report.suite_records import Planned
from calmtune.report.suite_runs import BASE, Seed
from calmtune.report.summary import Column

SUITE_MEASURES = ("sem1_ece", "sem2_ece", "accuracy", "entropy")
"""Measures with a table of their own."""
KINDS = {"raw": "", "adjusted": " adjusted"}


@dataclass(frozen=True)
class OpenSuiteRun:
    """One training run with its base, both sampled and graded.

    Args:
        setting, model, method, seed: whose it is.
        base: graded answers of the model before training, by test domain.
        tuned: by distribution (``raw`` and, with an alpha, ``adjusted``), graded answers by test domain.
        shifts: ``"ID"`` or ``"OOD"`` by test domain. settings: the resolved configuration.
        decision: which distribution it is used with, or None.
    """

    setting: str
    model: str
    method: str
    seed: int
    base: Mapping[str, GradedAnswers]
    tuned: Mapping[str, Mapping[str, GradedAnswers]]
    shifts: Mapping[str, Shift]
    settings: Mapping[str, Any]
    decision: Mapping[str, Any] | None = None

    @property
    def key(self) -> Planned:
        """Setting, model, method and seed."""
        return self.setting, self.model, self.method, self.seed

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.setting} / {self.model} / {self.method} / seed {self.seed}"


@dataclass(frozen=True)
class OpenSuiteCell:
    """A row on a column: every measure over the seeds that are there, and the differences from the base."""

    seeds: tuple[Seed, ...]
    spreads: Mapping[str, Spread]
    null_band: Estimate
    versus: Mapping[str, Difference]


@dataclass(frozen=True)
class OpenModelPart:
    """One model in one setting: its columns, and its cells by row label and column name."""

    model: str
    columns: tuple[Column, ...]
    cells: Mapping[tuple[str, str], OpenSuiteCell]


@dataclass(frozen=True)
class OpenSettingPart:
    """One setting: row labels in the order of the tables, and its models."""

    name: str
    rows: tuple[str, ...]
    models: tuple[OpenModelPart, ...]


@dataclass(frozen=True)
class OpenSuiteSummary:
    """The computed report.

    Args:
        settings: in order. missing: names of planned runs that are not there. definitions: how numbers were found.
    """

    title: str
    settings: tuple[OpenSettingPart, ...]
    missing: tuple[str, ...]
    definitions: Mapping[str, Any]
    runs: tuple[OpenSuiteRun, ...]


def summarise_open_suite(
    runs: Sequence[OpenSuiteRun],
    *,
    title: str,
    n_bins: int,
    n_resamples: int,
    planned: Iterable[Planned] = (),
    seed: int = 0,
) -> OpenSuiteSummary:
    """Compute every number of a suite on open questions.

    Args:
        runs: those that are done, at least one. planned: every run that the suite shall have, in order.
        n_bins, n_resamples, seed: of the errors and of every resampling.

    Raises:
        ValueError: no run, a run twice, or runs that were asked other questions, sampled or graded otherwise.
    """
    if not runs:
        raise ValueError("expected at least one run, got none; run one of the suite first")
    keys = [run.key for run in runs]
    for run in runs:
        if keys.count(run.key) > 1:
            raise ValueError(f"run {run.name} is given {keys.count(run.key)} times; expected once")
    expected = list(dict.fromkeys([*planned, *keys]))
    options = {"n_bins": n_bins, "n_resamples": n_resamples, "seed": seed}
    settings = []
    for name in dict.fromkeys(key[0] for key in expected):
        mine = [run for run in runs if run.setting == name]
        if mine:
            settings.append(_setting(name, mine, [key for key in expected if key[0] == name], options))
    missing = tuple(" / ".join(map(str, key[:3])) + f" / seed {key[3]}" for key in expected if key not in keys)
    graded = next(iter(runs[0].base.values()))
    definitions = {
        **options,
        "n_samples": graded.n_samples,
        "rule": graded.rule,
        "grade": graded.meta["grade"],
        "normaliser": graded.meta["normaliser"],
        "sampling": graded.meta.get("samples", {}).get("sampling", {}),
    }
    return OpenSuiteSummary(title, tuple(settings), missing, definitions, tuple(runs))


def _setting(
    name: str, runs: Sequence[OpenSuiteRun], expected: Sequence[Planned], options: Mapping[str, int]
) -> OpenSettingPart:
    models = [model for model in dict.fromkeys(key[1] for key in expected) if any(run.model == model for run in runs)]
    methods = list(dict.fromkeys(key[2] for key in expected))
    readings = {model: _read([run for run in runs if run.model == model]) for model in models}
    there = {label for of_model in readings.values() for label in of_model}
    rows = [BASE, *(f"{method}{end}" for method in methods for end in KINDS.values())]
    parts = []
    for model in models:
        shifts = next(run.shifts for run in runs if run.model == model)
        parts.append(_model(model, readings[model], shifts, options))
    return OpenSettingPart(name, tuple(row for row in rows if row in there), tuple(parts))


Readings = dict[str, dict[Seed, dict[str, OpenReading]]]
"""By row label, seed and domain."""


def _read(runs: Sequence[OpenSuiteRun]) -> Readings:
    """Every row of one model in one setting, on the same questions in the same order."""
    first, found = runs[0], Readings()
    for run in runs:
        if dict(run.shifts) != dict(first.shifts):
            raise ValueError(
                f"run {run.name} has the test domains {dict(run.shifts)}, but {first.name} has {dict(first.shifts)}"
            )
        rows = {BASE: run.base, **{f"{run.method}{KINDS[kind]}": graded for kind, graded in run.tuned.items()}}
        for label, by_domain in rows.items():
            if label == BASE and BASE in found:
                continue
            at = None if label == BASE else run.seed
            readings = {}
            for domain in first.shifts:
                theirs = first.base[domain]
                refuse_other_ways(by_domain[domain], theirs, f"run {run.name}, {label}, {domain}", first.name)
                readings[domain] = read_open(align(by_domain[domain], theirs.ids, f"run {run.name}, {domain}:"))
            found.setdefault(label, {})[at] = readings
    return found


def _model(model: str, readings: Readings, shifts: Mapping[str, Shift], options: Mapping[str, int]) -> OpenModelPart:
    sizes = {domain: len(one) for domain, one in readings[BASE][None].items()}
    columns = []
    for shift in ("ID", "OOD"):
        domains = tuple(domain for domain, one in shifts.items() if one == shift)
        columns += [Column(domain, shift, (domain,), sizes[domain]) for domain in domains]
        if len(domains) > 1:
            columns.append(Column(f"{shift} (all)", shift, domains, sum(sizes[domain] for domain in domains)))
    cells: dict[tuple[str, str], OpenSuiteCell] = {}
    for column in columns:
        joined: dict[Key, OpenReading] = {
            (label, seed): join([by_domain[domain] for domain in column.domains])
            for label, of_label in readings.items()
            for seed, by_domain in of_label.items()
        }
        statistics = ColumnStatistics(joined, **options, of=OPEN)
        sources = {label: {seed: (label, seed) for seed in of_label} for label, of_label in readings.items()}
        pairs = {label: paired_keys(keys, sources[BASE]) for label, keys in sources.items() if label != BASE}
        statistics.resample({measure: pairs.values() for measure in SUITE_MEASURES})
        for label, keys in sources.items():
            mine = tuple(keys.values())
            cells[label, column.name] = OpenSuiteCell(
                tuple(keys),
                {measure: statistics.spread(measure, mine) for measure in OPEN_MEASURES},
                statistics.null_band(mine),
                {m: statistics.difference(m, pairs[label]) for m in SUITE_MEASURES} if label in pairs else {},
            )
    return OpenModelPart(model, tuple(columns), cells)
