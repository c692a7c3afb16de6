"""Every number of a report on open questions, computed once from graded answers; the drawing files only lay it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calmtune import metrics
from calmtune.graded import GradedAnswers, GradedQuestion
from calmtune.report.numbers import Estimate
from calmtune.report.openqa_column import OPEN
from calmtune.report.openqa_measures import NOT_TEMPERED, OPEN_COMPARED, OPEN_MEASURES, risk_coverage
from calmtune.report.openqa_readings import WITHIN_CLASS, OpenReading, align, join, read_open
from calmtune.report.openqa_records import (
    Cluster,
    OpenCell,
    OpenComparison,
    OpenRow,
    OpenSummary,
    OpenVariant,
    RuleRow,
    WorstQuestion,
)
from calmtune.report.openqa_temperature import (
    ClassTemperature,
    find_sampler_temperature,
    fit_class_temperature,
)
from calmtune.report.suite_column import ColumnStatistics, Key, Pair
from calmtune.report.summary import Column

N_WORST = 6
CURVE = (2, 3, 5, 7, 10, 15, 20, 30, 40, 50)
"""Numbers of samples at which the curve over n is computed, as far as there are that many."""
CURVE_REPEATS = 5
SLOW_SHARE = 5
"""The curve is resampled this many times less often; stated in the definitions."""


def summarise_open(
    comparison: OpenComparison, *, n_bins: int = 10, seed: int = 0, n_resamples: int = 1000
) -> OpenSummary:
    """Compute every number.

    Args:
        comparison: what was said. n_bins: of the binned errors. seed: of ties, half splits and resampling.
        n_resamples: of the bootstrap over questions.

    Raises:
        ValueError: the models were asked other questions, sampled or graded otherwise.
    """
    options = {"n_bins": n_bins, "seed": seed, "n_resamples": n_resamples}
    comparison = _aligned(comparison)
    temperatures = {
        variant.name: fit_class_temperature(variant.calibration, seed=seed)
        for variant in comparison.variants
        if variant.calibration is not None
    }
    rows = _rows(comparison, temperatures)
    columns = _columns(comparison)
    cells: dict[tuple[str, str], OpenCell] = {}
    rules: dict[tuple[str, str], Sequence[RuleRow]] = {}
    for column in columns:
        readings: dict[Key, OpenReading] = {
            (row.label, None): _reading(comparison, row, column, temperatures, seed) for row in rows
        }
        statistics = ColumnStatistics(readings, **options, of=OPEN)
        statistics.resample({m: [_pair(row.label, rows[0].label) for row in rows[1:]] for m in OPEN_COMPARED})
        for row in rows:
            graded = _graded(comparison, row.variant, column)
            cells[row.label, column.name] = _cell(row, statistics, rows[0].label, graded, options)
            if not row.tempered:
                rules[row.label, column.name] = _rule_rows(graded, options)
    sampler = {
        variant.name: find_sampler_temperature({1.0: variant.calibration, **variant.grid}, seed=seed)
        for variant in comparison.variants
        if variant.calibration is not None and variant.grid
    }
    chosen = _chosen(comparison)
    worst = _worst(comparison, rows[0].variant, chosen, seed)
    definitions = _definitions(comparison, options)
    return OpenSummary(comparison, rows, columns, cells, rules, temperatures, sampler, worst, chosen, definitions)


def _aligned(comparison: OpenComparison) -> OpenComparison:
    """Every model's answers in the order of the first one's questions, graded and sampled in one way."""
    first = comparison.variants[0]
    variants = []
    for variant in comparison.variants:
        tests = {}
        for domain in comparison.shifts:
            mine, theirs = variant.tests[domain], first.tests[domain]
            refuse_other_ways(mine, theirs, f"{variant.name}, {domain}", first.name)
            tests[domain] = align(mine, theirs.ids, f"{variant.name}, {domain}:")
        variants.append(OpenVariant(variant.name, tests, variant.calibration, variant.grid))
    return OpenComparison(
        variants, comparison.shifts, comparison.title, comparison.settings, comparison.training_log, comparison.decision
    )


def refuse_other_ways(mine: GradedAnswers, theirs: GradedAnswers, name: str, first: str) -> None:
    for key in ("rules", "rule", "grade", "normaliser", "refusal", "models"):
        if mine.meta.get(key) != theirs.meta.get(key):
            raise ValueError(
                f"{name} was graded otherwise than {first} ({key}: {mine.meta.get(key)!r} and "
                f"{theirs.meta.get(key)!r}); evaluate both again with one set of rules"
            )
    a, b = (one.meta.get("samples", {}).get("sampling") for one in (mine, theirs))
    if a != b:
        raise ValueError(f"{name} was sampled otherwise than {first} ({a} and {b}); sample both in one way")


def _rows(comparison: OpenComparison, temperatures: Mapping[str, ClassTemperature]) -> tuple[OpenRow, ...]:
    rows = []
    for variant in comparison.variants:
        rows.append(OpenRow(variant.name, variant.name, False))
        if variant.name in temperatures:
            rows.append(OpenRow(f"{variant.name} + T", variant.name, True))
    return tuple(rows)


def _columns(comparison: OpenComparison) -> tuple[Column, ...]:
    sizes = {domain: len(graded) for domain, graded in comparison.variants[0].tests.items()}
    columns = []
    for shift in ("ID", "OOD"):
        domains = tuple(domain for domain, one in comparison.shifts.items() if one == shift)
        columns += [Column(domain, shift, (domain,), sizes[domain]) for domain in domains]
        if len(domains) > 1:
            columns.append(Column(f"{shift} (all)", shift, domains, sum(sizes[domain] for domain in domains)))
    return tuple(columns)


def _variant(comparison: OpenComparison, name: str) -> OpenVariant:
    return next(variant for variant in comparison.variants if variant.name == name)


def _graded(comparison: OpenComparison, variant: str, column: Column) -> list[GradedAnswers]:
    return [_variant(comparison, variant).tests[domain] for domain in column.domains]


def _reading(
    comparison: OpenComparison,
    row: OpenRow,
    column: Column,
    temperatures: Mapping[str, ClassTemperature],
    seed: int,
) -> OpenReading:
    temperature = temperatures[row.variant].temperature if row.tempered else 1.0
    return join(
        [read_open(one, seed=seed, temperature=temperature) for one in _graded(comparison, row.variant, column)]
    )


def _pair(label: str, other: str) -> Pair:
    return ((label, None),), ((other, None),)


def _cell(
    row: OpenRow,
    statistics: ColumnStatistics,
    first: str,
    graded: Sequence[GradedAnswers],
    options: Mapping[str, int],
) -> OpenCell:
    key = (row.label, None)
    reading: OpenReading = statistics.readings[key]
    left_out = NOT_TEMPERED if row.tempered else frozenset()
    if np.isnan(reading.likelihood_entropy).any():
        left_out |= {"likelihood_entropy"}
    nowhere = Estimate(float("nan"), float("nan"), float("nan"), len(reading))
    coverage, risk = risk_coverage(reading)
    return OpenCell(
        estimates={
            measure: nowhere if measure in left_out else statistics.spread(measure, (key,)).estimate
            for measure in OPEN_MEASURES
        },
        null_band=statistics.null_band((key,)),
        versus_first={
            measure: statistics.difference(measure, _pair(row.label, first))
            for measure in OPEN_COMPARED
            if row.label != first and measure not in left_out
        },
        reliability=metrics.reliability_table(reading.sem1, reading.correct, options["n_bins"]),
        reliability2=metrics.reliability_table(reading.sem2, reading.correct, options["n_bins"]),
        coverage=coverage,
        risk=risk,
        curve={} if row.tempered else _curve(graded, options),
        n_ties=int(reading.ties.sum()),
    )


def _curve(graded: Sequence[GradedAnswers], options: Mapping[str, int]) -> dict[str, Any]:
    """Sem1 and Sem2 for fewer samples than there are."""
    items = [item for part in graded for item in part]
    most = min(len(item.texts) for item in items)
    budgets = sorted({n for n in CURVE if n <= most} | {most})
    return {
        estimator: metrics.semantic_curve(
            [classes for part in graded for classes in part.classes()],
            [item.correct for item in items],
            budgets,
            estimator,
            options["n_bins"],
            options["seed"],
            repeats=CURVE_REPEATS,
            refused=[item.refused for item in items],
            ids=[f"{place}/{item.id}" for place, part in enumerate(graded) for item in part],
            within_class=WITHIN_CLASS,
            n_resamples=max(10, options["n_resamples"] // SLOW_SHARE),
        )
        for estimator in ("sem1", "sem2")
    }


def _rule_rows(graded: Sequence[GradedAnswers], options: Mapping[str, int]) -> tuple[RuleRow, ...]:
    """Each class rule's figures on the same samples and grades, and their difference from the headline rule's."""
    rules, headline = tuple(graded[0].meta["rules"]), graded[0].rule
    readings: dict[Key, OpenReading] = {
        (rule, None): join([read_open(part, rule=rule, seed=options["seed"]) for part in graded]) for rule in rules
    }
    statistics = ColumnStatistics(readings, **options, of=OPEN)
    others = [rule for rule in rules if rule != headline]
    statistics.resample({m: [_pair(rule, headline) for rule in others] for m in OPEN_COMPARED})
    return tuple(
        RuleRow(
            rule,
            {m: statistics.spread(m, ((rule, None),)).estimate for m in OPEN_COMPARED},
            {m: statistics.difference(m, _pair(rule, headline)) for m in OPEN_COMPARED if rule != headline},
        )
        for rule in rules
    )


def _chosen(comparison: OpenComparison) -> str:
    """The row that the tuned model is used as: what was decided, else the last one."""
    names = [variant.name for variant in comparison.variants]
    if comparison.decision is not None:
        adjusted = comparison.decision.get("distribution") == "adjusted"
        tuned = [name for name in names if name.endswith(" adjusted") == adjusted and name != names[0]]
        if tuned:
            return tuned[-1]
    return names[-1]


def _worst(comparison: OpenComparison, first: str, chosen: str, seed: int) -> tuple[WorstQuestion, ...]:
    """The most confident errors of the first and of the chosen model."""
    found = []
    for side, name in (("before", first), *((("after", chosen),) if chosen != first else ())):
        candidates = []
        for domain in comparison.shifts:
            graded = _variant(comparison, name).tests[domain]
            reading = read_open(graded, seed=seed)
            candidates += [(float(reading.sem1[i]), domain, i) for i in np.flatnonzero(~reading.correct).tolist()]
        for _, domain, i in sorted(candidates, key=lambda one: (-one[0], one[1], one[2]))[:N_WORST]:
            before, after = (_variant(comparison, model).tests[domain] for model in (first, chosen))
            item = before[i]
            found.append(
                WorstQuestion(
                    item.id,
                    domain,
                    item.question,
                    item.accepted,
                    side,
                    clusters_of(before[i], before.rule),
                    clusters_of(after[i], after.rule),
                )
            )
    return tuple(found)


def clusters_of(item: GradedQuestion, rule: str) -> tuple[Cluster, ...]:
    """The classes of a question, largest first; the most frequent text stands for a class."""
    members: dict[int | str, list[int]] = {}
    for index, number in enumerate(item.classes[rule]):
        members.setdefault("refused" if item.refused[index] else number, []).append(index)
    found = []
    for name, where in members.items():
        texts = [item.texts[i].splitlines()[0] if item.texts[i] else "" for i in where]
        distinct = sorted(dict.fromkeys(texts), key=lambda text: -texts.count(text))
        right = 2 * sum(item.correct[i] for i in where) > len(where)
        kind = "refused" if name == "refused" else "right" if right else "wrong"
        found.append(Cluster(distinct[0], len(where), kind, tuple(distinct[1:])))
    return tuple(sorted(found, key=lambda one: -one.count))


def _definitions(comparison: OpenComparison, options: Mapping[str, int]) -> dict[str, Any]:
    """What stands behind the numbers; JSON values only."""
    meta = comparison.variants[0].tests[next(iter(comparison.shifts))].meta
    sampling = meta.get("samples", {}).get("sampling", {})
    graded = [graded for variant in comparison.variants for graded in variant.tests.values()]
    return {
        **options,
        "n_samples": min(one.n_samples for one in graded),
        "sampling": sampling,
        "rule": meta["rule"],
        "rules": meta["rules"],
        "grade": meta["grade"],
        "normaliser": meta["normaliser"],
        "refusal": meta["refusal"],
        "models": meta.get("models", {}),
        "within_class": WITHIN_CLASS,
        "curve_repeats": CURVE_REPEATS,
        "curve_resamples": max(10, options["n_resamples"] // SLOW_SHARE),
        "bin_rule": "equal width, [low, high), last bin closed; mean confidence of the bin, never its centre",
        "interval": "95 %, bootstrap over questions, never over samples; BCa for Sem-ECE, percentiles for the rest",
    }
