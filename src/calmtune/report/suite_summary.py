"""Every number of a suite's report, computed once; the drawing files only lay it out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from calmtune.report.comparison import Row
from calmtune.report.measures import MEASURES
from calmtune.report.numbers import Difference
from calmtune.report.readings import Reading, concatenate
from calmtune.report.scaling import TemperatureFit, VectorFit
from calmtune.report.suite_column import ALL_MEASURES, RESAMPLED, ColumnStatistics, Key, paired_keys
from calmtune.report.suite_glossary import suite_definitions
from calmtune.report.suite_records import (
    BEST_OF,
    ModelPart,
    Planned,
    SettingPart,
    SuiteCell,
    SuiteRow,
    SuiteSummary,
    chosen_label,
)
from calmtune.report.suite_runs import BASE, ModelReadings, Seed, SuiteRun, read_model
from calmtune.report.summary import Column


def summarise_suite(
    runs: Sequence[SuiteRun],
    *,
    title: str,
    n_bins: int,
    n_resamples: int,
    fit_temperature: TemperatureFit,
    fit_vector: VectorFit | None = None,
    planned: Iterable[Planned] = (),
    seed: int = 0,
) -> SuiteSummary:
    """Compute every number of a suite's report.

    Args:
        runs: those that are done, in any number; at least one.
        title: of the page.
        n_bins: bins of the binned errors, equal width.
        n_resamples: resamples of the items, and exchanges.
        fit_temperature, fit_vector: see :class:`calmtune.report.comparison.Comparison`.
        planned: every run that the suite shall have, which also gives the order; without it, every method is expected
            to have every seed of its setting, in every model.
        seed: of every resampling.

    Raises:
        ValueError: no run, a run twice, or runs that do not fit together (see :func:`read_model`).
    """
    if not runs:
        raise ValueError("expected at least one run, got none; run one of the suite first")
    keys = [run.key for run in runs]
    for run in runs:
        if keys.count(run.key) > 1:
            raise ValueError(f"run {run.name} is given {keys.count(run.key)} times; expected once")
    expected = list(dict.fromkeys([*planned, *keys])) if planned else _grid(keys)
    known = {key[0] for key in keys}
    options = {"n_bins": n_bins, "n_resamples": n_resamples, "seed": seed}
    settings = tuple(
        _setting(
            name,
            [run for run in runs if run.setting == name],
            [key for key in expected if key[0] == name],
            options,
            {"fit_temperature": fit_temperature, "fit_vector": fit_vector},
        )
        for name in dict.fromkeys(key[0] for key in expected)
        if name in known
    )
    not_started = tuple(name for name in dict.fromkeys(key[0] for key in expected) if name not in known)
    return SuiteSummary(title, settings, not_started, suite_definitions(options), tuple(runs))


def _grid(keys: Sequence[Planned]) -> list[Planned]:
    """Every model with every method and seed of its setting."""
    axes: dict[str, list[dict[Any, None]]] = {}
    for setting, *rest in keys:
        for axis, value in zip(axes.setdefault(setting, [{}, {}, {}]), rest, strict=True):
            axis[value] = None
    return [
        (setting, model, method, seed)
        for setting, (models, methods, seeds) in axes.items()
        for model in models
        for method in methods
        for seed in sorted(seeds)
    ]


def _setting(
    name: str,
    runs: Sequence[SuiteRun],
    expected: Sequence[Planned],
    options: Mapping[str, int],
    fits: Mapping[str, Any],
) -> SettingPart:
    models = tuple(dict.fromkeys(key[1] for key in expected))
    methods = tuple(dict.fromkeys(key[2] for key in expected))
    found = {
        model: read_model(of_model, n_bins=options["n_bins"], **fits)
        for model in models
        if (of_model := [run for run in runs if run.model == model])
    }
    rows = _rows(methods, [row for one in found.values() for row in one.rows])
    plain = next((run.method for run in runs if run.settings.get("method", run.method) == "sft"), None)
    label = next((row.label for row in rows if row.method == plain and row.kind == "raw"), None)
    blank = next(iter(found.values()))
    parts = []
    for model in models:
        seeds = {m: tuple(key[3] for key in expected if key[1:3] == (model, m)) for m in methods}
        parts.append(_model(model, found.get(model), blank, rows, seeds, label, options))
    return SettingPart(name, rows, tuple(parts), label)


def _rows(methods: Sequence[str], read: Sequence[Row]) -> tuple[SuiteRow, ...]:
    """All rows of a setting in order: as read, a chosen one for each method, and one for methods without a run."""
    found: list[SuiteRow] = []
    for method in (BASE, *methods):
        of_method = {row.label: row for row in read if row.variant == method}
        for row in sorted(of_method.values(), key=lambda row: (row.adjusted, ("none", "TS", "VS").index(row.scaling))):
            main = row.scaling == "none" or (method == BASE and row.scaling == "TS")
            found.append(SuiteRow(row.label, method, "adjusted" if row.adjusted else "raw", row.scaling, main))
        if method != BASE:
            if not of_method:
                found.append(SuiteRow(method, method, "raw", "none", True))
            found.append(SuiteRow(chosen_label(method), method, "chosen", "none", True))
    return tuple(found)


def _model(
    model: str,
    found: ModelReadings | None,
    blank: ModelReadings,
    rows: Sequence[SuiteRow],
    planned: Mapping[str, tuple[int, ...]],
    plain: str | None,
    options: Mapping[str, int],
) -> ModelPart:
    """One model; a model without a run has the columns of ``blank`` and no cells."""
    there = {method: set(found.choices.get(method, ())) if found else set() for method in planned}
    missing = tuple((method, s) for method, seeds in planned.items() for s in seeds if s not in there[method])
    columns = _columns(found or blank)
    if found is None:
        return ModelPart(model, columns, {}, {}, {}, {}, planned, missing, {}, {})
    sources = _sources(found, rows)
    same_as = _same_as(sources, rows)
    cells: dict[tuple[str, str], SuiteCell] = {}
    lowest: dict[tuple[str, str], str] = {}
    lowest_trained: dict[str, str] = {}
    references = [BASE, f"{BASE} + TS", *([plain] if plain else [])]
    for column in columns:
        statistics = ColumnStatistics(_joined(found, column), **options)
        of_all = _lowest(statistics, {label: one for label, one in sources.items() if label not in same_as})
        trained = {row.label: sources[row.label] for row in rows if row.is_trained and row.label in sources}
        beside = {m: [*references, *([of_all[m]] if m in of_all else [])] for m in RESAMPLED}
        if first := _lowest(statistics, trained).get("conf_ece"):
            lowest_trained[column.name] = first
            beside["conf_ece"].append(first)
        versus = _versus(statistics, sources, beside)
        best = {} if missing else _best(versus, of_all, sources, same_as)
        lowest |= {(column.name, measure): label for measure, label in of_all.items()}
        for label, seeds in sources.items():
            cells[label, column.name] = _cell(statistics, seeds, label, versus, best)
    return ModelPart(
        model, columns, cells, lowest, lowest_trained, same_as, planned, missing, found.choices, found.left_out
    )


def _joined(found: ModelReadings, column: Column) -> dict[Key, Reading]:
    """Every row and seed on all domains of a column."""
    return {
        (label, seed): concatenate([by_domain[domain] for domain in column.domains])
        for label, of_label in found.readings.items()
        for seed, by_domain in of_label.items()
    }


def _columns(found: ModelReadings) -> tuple[Column, ...]:
    sizes = {domain: len(reading) for domain, reading in found.readings[BASE][None].items()}
    columns = []
    for shift in ("ID", "OOD"):
        domains = tuple(domain for domain, one in found.shifts.items() if one == shift)
        columns += [Column(domain, shift, (domain,), sizes[domain]) for domain in domains]
        if len(domains) > 1:
            columns.append(Column(f"{shift} (all)", shift, domains, sum(sizes[domain] for domain in domains)))
    return tuple(columns)


def _sources(found: ModelReadings, rows: Sequence[SuiteRow]) -> dict[str, dict[Seed, Key]]:
    """Which reading each row is, seed by seed; a chosen row is another row's reading."""
    sources: dict[str, dict[Seed, Key]] = {}
    for row in rows:
        if row.kind == "chosen":
            chosen = found.choices.get(row.method, {})
            seeds: dict[Seed, Key] = {seed: (chosen[seed].row, seed) for seed in sorted(chosen)}
        else:
            there = found.readings.get(row.label, {})
            seeds = {seed: (row.label, seed) for seed in sorted(there, key=lambda seed: -1 if seed is None else seed)}
        if seeds:
            sources[row.label] = seeds
    return sources


def _same_as(sources: Mapping[str, Mapping[Seed, Key]], rows: Sequence[SuiteRow]) -> dict[str, str]:
    """Chosen rows that are one and the same row in every seed."""
    found = {}
    for row in rows:
        labels = {key[0] for key in sources.get(row.label, {}).values()}
        if row.kind == "chosen" and len(labels) == 1:
            label = labels.pop()
            if set(sources[label]) == set(sources[row.label]):
                found[row.label] = label
    return found


def _versus(
    statistics: ColumnStatistics, sources: Mapping[str, Mapping[Seed, Key]], beside: Mapping[str, Sequence[str]]
) -> dict[str, dict[tuple[str, str], Difference]]:
    """Resample the column; then, by measure, every row minus each row beside it, where they have a seed in common."""
    pairs = {
        m: {
            (label, other): pair
            for label in sources
            for other in dict.fromkeys(others)
            if label != other and other in sources and (pair := paired_keys(sources[label], sources[other]))[0]
        }
        for m, others in beside.items()
    }
    statistics.resample({m: set(of_measure.values()) for m, of_measure in pairs.items()})
    return {
        m: {labels: statistics.difference(m, pair) for labels, pair in of_measure.items()}
        for m, of_measure in pairs.items()
    }


def _cell(
    statistics: ColumnStatistics,
    sources: Mapping[Seed, Key],
    label: str,
    versus: Mapping[str, Mapping[tuple[str, str], Difference]],
    best: Mapping[str, frozenset[str]],
) -> SuiteCell:
    keys = tuple(sources.values())
    others = dict.fromkeys(other for of_measure in versus.values() for one, other in of_measure if one == label)
    return SuiteCell(
        seeds=tuple(sources),
        spreads={measure: statistics.spread(measure, keys) for measure in ALL_MEASURES},
        null_band=statistics.null_band(keys),
        versus={
            other: {m: of_measure[label, other] for m, of_measure in versus.items() if (label, other) in of_measure}
            for other in others
        },
        best=tuple(m for m in BEST_OF if label in best.get(m, ())),
    )


def _lowest(statistics: ColumnStatistics, sources: Mapping[str, Mapping[Seed, Key]]) -> dict[str, str]:
    """The row with the best mean in each measure."""
    found = {}
    for measure in BEST_OF:
        sign = -1.0 if MEASURES[measure].better == "higher" else 1.0
        means = {
            label: sign * float(np.mean([statistics.values[measure][key] for key in seeds.values()]))
            for label, seeds in sources.items()
        }
        finite = {label: mean for label, mean in means.items() if np.isfinite(mean)}
        if finite:
            found[measure] = min(finite, key=lambda label: finite[label])
    return found


def _best(
    versus: Mapping[str, Mapping[tuple[str, str], Difference]],
    lowest: Mapping[str, str],
    sources: Mapping[str, Mapping[Seed, Key]],
    same_as: Mapping[str, str],
) -> dict[str, frozenset[str]]:
    """The rows that are shown to be better than every other one, by measure, with their copies by construction."""
    found = {}
    for measure, first in lowest.items():
        copies = {label for label in sources if _is_copy(label, first, measure, same_as)}
        sign = -1.0 if MEASURES[measure].better == "higher" else 1.0
        others = [label for label in sources if label not in copies]
        against = [versus[measure].get((label, first)) for label in others]
        ahead = [one is not None and one.shown and sign * one.value > 0 for one in against]
        if others and all(ahead):
            found[measure] = frozenset(copies)
    return found


def _is_copy(label: str, other: str, measure: str, same_as: Mapping[str, str]) -> bool:
    """Whether two rows are one by construction: a chosen row is what it chose, and a temperature changes no answer."""
    a, b = same_as.get(label, label), same_as.get(other, other)
    if measure == "accuracy":
        a, b = a.removesuffix(" + TS"), b.removesuffix(" + TS")
    return a == b
