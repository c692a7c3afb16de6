"""What a suite's report is made from: runs of several settings, models, methods and seeds, checked and read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from calmtune import metrics
from calmtune.predictions import Predictions
from calmtune.report.choice import Choice, choose_row
from calmtune.report.comparison import Comparison, Row, Shift, Variant, align
from calmtune.report.fitted import FittedRow
from calmtune.report.numbers import Estimate
from calmtune.report.readings import Reading, read
from calmtune.report.scaling import TemperatureFit, VectorFit, fit_scaling

BASE = "base"
SAME_BASE = 0.01
"""Bases whose option probabilities differ by more than this on average are not one model scored in one way."""

Seed = int | None
"""A training seed; the base has none."""


@dataclass(frozen=True)
class SuiteRun:
    """One training run with its base, both scored.

    Args:
        setting: what it belongs to, e.g. ``"ood_mcqa"``; each has tables of its own.
        model: the base model's name, a group of columns.
        method: the training method's name, a group of rows.
        seed: of the training.
        base: predictions of the model before training.
        tuned: predictions of the model after it.
        shifts: ``"ID"`` or ``"OOD"`` for each test domain, in the order of the columns.
        settings: the resolved configuration, JSON values only.
        training_log: the trainer's log history.
        decision: as :func:`calmtune.report.selection.decide` records it; None lets the report decide.
    """

    setting: str
    model: str
    method: str
    seed: int
    base: Variant
    tuned: Variant
    shifts: Mapping[str, Shift]
    settings: Mapping[str, Any]
    training_log: Sequence[Mapping[str, Any]] = ()
    decision: Mapping[str, Any] | None = None

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Setting, model, method and seed."""
        return self.setting, self.model, self.method, self.seed

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.setting} / {self.model} / {self.method} / seed {self.seed}"


@dataclass
class ModelReadings:
    """The runs of one model in one setting as arrays.

    Args:
        shifts: of its test domains.
        rows: what there is to read, in order: those of the base, then those of each method.
        readings: by row label, seed and domain.
        choices: what each run is used as, by method and seed.
        left_out: variants without rows of vector scaling, and why.
    """

    shifts: Mapping[str, Shift]
    rows: list[Row] = field(default_factory=list)
    readings: dict[str, dict[Seed, dict[str, Reading]]] = field(default_factory=dict)
    choices: dict[str, dict[int, Choice]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def keep(self, row: Row, seed: Seed, readings: Mapping[str, Reading]) -> None:
        """Add what one run says as one row."""
        if row not in self.rows:
            self.rows.append(row)
        self.readings.setdefault(row.label, {})[seed] = dict(readings)


def read_model(
    runs: Sequence[SuiteRun], *, n_bins: int, fit_temperature: TemperatureFit, fit_vector: VectorFit | None
) -> ModelReadings:
    """Fit and read every row of one model's runs in one setting.

    Args:
        runs: at least one, none twice.
        n_bins: bins of conf-ECE, where a choice is made by it.
        fit_temperature, fit_vector: see :class:`calmtune.report.comparison.Comparison`.

    Raises:
        ValueError: runs on other items, labels, domains or another base; the message names run, domain and item.
    """
    found = ModelReadings(runs[0].shifts)
    for place, run in enumerate(runs):
        comparison = _checked(run, runs[0], fit_temperature=fit_temperature, fit_vector=fit_vector)
        found.left_out |= comparison.left_out
        # the first run's order of items holds for all of them
        tests = {domain: runs[0].base.tests[domain].ids for domain in found.shifts}
        fitted = tuple(_fit(row, comparison) for row in comparison.rows)
        try:
            choice = choose_row(fitted, comparison, n_bins)
        except ValueError as error:
            raise ValueError(f"run {run.name}: {error}") from error
        found.choices.setdefault(run.method, {})[run.seed] = choice
        for one in fitted:
            is_base = one.row.variant == BASE
            if is_base and place:
                continue
            variant = comparison.variant(one.row.variant)
            readings = {domain: one.read(align(variant.tests[domain], ids)) for domain, ids in tests.items()}
            found.keep(one.row, None if is_base else run.seed, readings)
    return found


def _checked(run: SuiteRun, first: SuiteRun, **fits: Any) -> Comparison:
    """The run as a comparison of its base with its tuned model, held against the first run of its model."""
    if run.method == BASE:
        raise ValueError(f"run {run.name}: a method cannot be called {BASE!r}, which is the untrained model's name")
    try:
        comparison = Comparison(
            variants=[replace(run.base, name=BASE), replace(run.tuned, name=run.method)],
            shifts=run.shifts,
            settings=run.settings,
            decision=run.decision,
            **fits,
        )
    except ValueError as error:
        raise ValueError(f"run {run.name}: {error}") from error
    if dict(run.shifts) != dict(first.shifts):
        raise ValueError(
            f"run {run.name} has the test domains {dict(run.shifts)}, but {first.name} has {dict(first.shifts)}; "
            "one table needs the same domains in every run"
        )
    for domain in run.shifts:
        _same_items(f"test domain {domain!r}", run, run.base.tests[domain], first, first.base.tests[domain])
    _same_items("the calibration split", run, run.base.calibration, first, first.base.calibration)
    return comparison


def _same_items(where: str, run: SuiteRun, mine: Predictions, first: SuiteRun, theirs: Predictions) -> None:
    """Raise unless both bases say the same about the same items."""
    if mine is theirs:
        return
    apart = sorted(set(mine.ids) ^ set(theirs.ids))
    if apart:
        raise ValueError(
            f"{where}: {len(apart)} items are not shared by {run.name} and {first.name}, e.g. "
            f"{', '.join(map(repr, apart[:3]))}; give all seeds and methods the same items (split_seed, limits)"
        )
    mine = align(mine, theirs.ids)
    for a, b in zip(mine, theirs, strict=True):
        if a.label != b.label or len(a.scores) != len(b.scores):
            raise ValueError(
                f"{where}, item {a.id!r}: label {a.label} of {len(a.scores)} options in {run.name}, but label "
                f"{b.label} of {len(b.scores)} in {first.name}"
            )
    change = float(np.abs(mine.probabilities() - theirs.probabilities()).max(axis=1).mean())
    if change > SAME_BASE:
        raise ValueError(
            f"{where}: the bases of {run.name} and {first.name} give probabilities that differ by {change:.3f} on "
            "average; was one of them another model, or scored otherwise?"
        )


def _fit(row: Row, comparison: Comparison) -> FittedRow:
    """The row with its fit; of its likelihood on the calibration split the value alone, as no page shows more."""
    calibration = comparison.variant(row.variant).calibration
    fitted = fit_scaling(
        row.scaling,
        calibration,
        adjusted=row.adjusted,
        fit_temperature=comparison.fit_temperature,
        fit_vector=comparison.fit_vector,
    )
    there = read(calibration, adjusted=row.adjusted, temperature=fitted.temperature, vector=fitted.vector)
    nll = metrics.negative_log_likelihood(there.probabilities, there.labels)
    return FittedRow(row, fitted, Estimate(nll, float("nan"), float("nan"), len(there)))
