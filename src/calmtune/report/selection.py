"""Which distribution of a model is used, chosen on the calibration split alone; no test item is looked at.

The candidates are the raw and the adjusted distribution, each as it is, with temperature scaling (TS) and with vector
scaling (VS). A fit was made on the very items that it would be judged on, so it is judged by cross-fitting: five folds
by a hash of the item id, fitted on four, read on the fifth. That charges a fit for its parameters, so no further rule
of parsimony is needed; where two scores differ by less than :data:`HAIR`, the simpler candidate is taken.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from calmtune.predictions import Predictions
from calmtune.report.measures import MEASURES, arrays_of
from calmtune.report.readings import Reading, concatenate, read, take
from calmtune.report.scaling import (
    SCALINGS,
    Fitted,
    Scaling,
    TemperatureFit,
    VectorFit,
    fit_scaling,
    vector_fault,
    widest,
)

FOLDS = 5
HAIR = 1e-4
"""Scores closer than this count as equal; no calibration split could tell them apart."""

Metric = Literal["nll", "brier", "conf_ece"]
Pooling = Literal["pooled", "worst"]


@dataclass(frozen=True)
class Rule:
    """How the choice is made.

    Args:
        metric: which score, lower is better.
        domains: ``"pooled"`` over all calibration items, or ``"worst"``: of the domain in which it is worst.
        accuracy_drop: how far the accuracy may lie below the base's, in [0, 1].
        n_bins: bins of conf-ECE.

    Raises:
        ValueError: a value that cannot work; the message names the setting.
    """

    metric: Metric = "nll"
    domains: Pooling = "pooled"
    accuracy_drop: float = 0.02
    n_bins: int = 10

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("selection_metric", self.metric, get_args(Metric)),
            ("selection_domains", self.domains, get_args(Pooling)),
        ):
            if value not in allowed:
                raise ValueError(f"{name}: expected one of {', '.join(allowed)}, got {value!r}")
        if not 0.0 <= self.accuracy_drop <= 1.0:
            raise ValueError(f"selection_accuracy_drop: expected a number in [0, 1], got {self.accuracy_drop!r}")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Rule:
        """From a run's settings; runs from before a setting existed have its default.

        >>> Rule.of({"selection_metric": "brier", "eta": 1})
        Rule(metric='brier', domains='pooled', accuracy_drop=0.02, n_bins=10)
        """
        return cls(
            settings.get("selection_metric", cls.metric),
            settings.get("selection_domains", cls.domains),
            float(settings.get("selection_accuracy_drop", cls.accuracy_drop)),
            int(settings.get("n_bins", cls.n_bins)),
        )


@dataclass(frozen=True)
class Candidate:
    """One way to use a model.

    Args:
        label: its name, e.g. ``"raw + TS"``.
        reading: the calibration split, read in this way; a fit read on items that it was not fitted on. None where
            there is no such reading, which ``fault`` then explains.
        fault: why it may not be chosen whatever its score, or nothing.
    """

    label: str
    reading: Reading | None
    fault: str = ""


@dataclass(frozen=True)
class Selection:
    """What was chosen.

    Args:
        label: the candidate.
        chosen_by: the rule in words, with the split's size.
        scores: the metric by candidate; none for candidates without a reading.
        refused: why the others of them could not be chosen, by candidate.
    """

    label: str
    chosen_by: str
    scores: Mapping[str, float]
    refused: Mapping[str, str]


def choose(
    candidates: Sequence[Candidate],
    base: Reading,
    item_domains: Sequence[str],
    *,
    metric: Metric = "nll",
    domains: Pooling = "pooled",
    accuracy_drop: float = 0.02,
    n_bins: int = 10,
) -> Selection:
    """The candidate with the lowest score among those that are accurate enough, the simpler one within a hair.

    Eligible: no fault, and accuracy >= accuracy of the base - accuracy_drop. If none is accurate enough, those with
    the highest accuracy are eligible, and ``chosen_by`` says so.

    Args:
        candidates: simplest first, all read on the same items in the same order.
        base: the base model as it is on the same items, which sets the accuracy to be held.
        item_domains: the domain of each item.
        metric, domains, accuracy_drop, n_bins: see :class:`Rule`.

    Raises:
        ValueError: no candidate without a fault, or numbers of items that differ.
    """
    rule = Rule(metric, domains, accuracy_drop, n_bins)
    readings = {one.label: one.reading for one in candidates if one.reading is not None}
    lengths = {"base": len(base), "item_domains": len(item_domains), **{k: len(v) for k, v in readings.items()}}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"expected everything on the same items, got {lengths}")
    scores = {label: score(reading, item_domains, rule) for label, reading in readings.items()}
    accuracy = {label: float(reading.correct.mean()) for label, reading in readings.items()}
    refused = {one.label: one.fault for one in candidates if one.fault}
    sound = [label for label in readings if label not in refused]
    if not sound:
        raise ValueError(f"expected a candidate that can be chosen, got none: {refused}")
    floor = float(base.correct.mean()) - accuracy_drop
    eligible = [label for label in sound if accuracy[label] >= floor - 1e-12]
    flagged = not eligible
    if flagged:
        highest = max(accuracy[label] for label in sound)
        eligible = [label for label in sound if accuracy[label] >= highest - 1e-12]
    for label in sound:
        if label not in eligible:
            refused[label] = f"accuracy {accuracy[label]:.3f}"
    lowest = min(scores[label] for label in eligible)
    chosen = next(label for label in eligible if scores[label] <= lowest + HAIR)
    return Selection(chosen, _in_words(rule, len(base), floor, flagged), scores, refused)


def score(reading: Reading, item_domains: Sequence[str], rule: Rule) -> float:
    """The rule's metric on the reading, over all items or of the domain in which it is worst."""
    measure = MEASURES[rule.metric]
    names = np.array(item_domains)
    every = [np.ones(len(names), dtype=bool)]
    parts = [names == name for name in dict.fromkeys(item_domains)] if rule.domains == "worst" else every
    return max(measure.function(*arrays_of(measure, take(reading, part)), rule.n_bins) for part in parts)


def folds(ids: Sequence[str], n_folds: int = FOLDS) -> NDArray[np.intp]:
    """The fold of each item, int [N]: ids in the order of their hashes are dealt out, so that sizes differ by at most
    one and the order of the items does not matter.

    >>> np.bincount(folds([f"item {n}" for n in range(7)], 5)).tolist()
    [2, 2, 1, 1, 1]
    """
    order = sorted(range(len(ids)), key=lambda place: hashlib.sha256(ids[place].encode()).digest())
    found = np.empty(len(ids), dtype=np.intp)
    found[order] = np.arange(len(ids)) % n_folds
    return found


def cross_fit(
    calibration: Predictions,
    scaling: Scaling,
    *,
    adjusted: bool,
    fit_temperature: TemperatureFit,
    fit_vector: VectorFit | None = None,
) -> tuple[Reading | None, str]:
    """Each item read under a fit that was made without it.

    Returns:
        The reading in the order of the items, or None, and what speaks against choosing the fit, or "".
    """
    if scaling == "none":
        return read(calibration, adjusted=adjusted), ""
    if len(calibration) < 2:
        return None, "one calibration item is too few to fit without it"
    fold = folds(calibration.ids)
    parts, unclear = [], 0
    for held_out in np.unique(fold):
        apart, fitted_on = _items(calibration, fold == held_out), _items(calibration, fold != held_out)
        if scaling == "VS" and vector_fault(fitted_on, [("a fold", widest(apart))]):
            return None, f"without its own fold no calibration item has {widest(apart)} options"
        fitted = fit_scaling(
            scaling, fitted_on, adjusted=adjusted, fit_temperature=fit_temperature, fit_vector=fit_vector
        )
        unclear += not fitted.identified
        parts.append(read(apart, adjusted=adjusted, temperature=fitted.temperature, vector=fitted.vector))
    back = np.argsort(np.argsort(fold, kind="stable"), kind="stable")
    fault = f"not identified in {unclear} of {len(parts)} folds" if unclear else ""
    return take(concatenate(parts), back), fault


def decide(
    variant: Predictions,
    base: Predictions,
    settings: Mapping[str, Any],
    *,
    fit_temperature: TemperatureFit,
    fit_vector: VectorFit | None = None,
    options: int = 0,
) -> dict[str, Any]:
    """Choose how a model is used, as a record for ``calibration.json``.

    Args:
        variant: what the model said about the calibration split.
        base: what the base said about the same items.
        settings: of the run; ``selection_metric``, ``selection_domains``, ``selection_accuracy_drop`` and ``n_bins``
            are read, see :class:`Rule` for what is taken where they are missing.
        fit_temperature, fit_vector: see :func:`calmtune.report.scaling.fit_scaling`; without the latter vector
            scaling is no candidate.
        options: the largest number of options of the items that the model is to be used on; vector scaling is no
            candidate where the calibration split has fewer.

    Returns:
        ``distribution`` (raw, adjusted), ``scaling`` (none, TS, VS), ``temperature``, ``scale`` and ``shift`` (lists
        or None) as fitted on the whole split, ``chosen_by``, ``n``, ``candidates`` (the metric by candidate) and
        ``refused`` (why not, by candidate).

    Raises:
        ValueError: other items than the base's, or a setting that cannot work.
    """
    rule = Rule.of(settings)
    _check_same_items(variant, base)
    fits: dict[str, tuple[bool, Scaling, Fitted]] = {}
    candidates = []
    for scaling in SCALINGS if fit_vector is not None else SCALINGS[:2]:
        fault = vector_fault(variant, [("the test split", options)]) if scaling == "VS" else ""
        for adjusted in (False, True) if variant.has_adjusted else (False,):
            label = key_of(adjusted, scaling)
            if fault:
                candidates.append(Candidate(label, None, fault))
                continue
            how: Any = {"adjusted": adjusted, "fit_temperature": fit_temperature, "fit_vector": fit_vector}
            fitted = fit_scaling(scaling, variant, **how)
            reading, doubt = cross_fit(variant, scaling, **how)
            fits[label] = adjusted, scaling, fitted
            candidates.append(Candidate(label, reading, doubt if fitted.identified else "not identified"))
    item_domains = [item.domain for item in variant]
    found = choose(candidates, read(base, adjusted=False), item_domains, **vars(rule))
    adjusted, scaling, fitted = fits[found.label]
    return {
        "distribution": "adjusted" if adjusted else "raw",
        "scaling": scaling,
        **fitted.to_record(),
        "chosen_by": found.chosen_by,
        "n": len(variant),
        "candidates": {label: value if math.isfinite(value) else "inf" for label, value in found.scores.items()},
        "refused": dict(found.refused),
    }


def key_of(adjusted: bool, scaling: Scaling) -> str:
    """A candidate's name in a record.

    >>> key_of(False, "none"), key_of(True, "VS")
    ('raw', 'adjusted + VS')
    """
    return ("adjusted" if adjusted else "raw") + ("" if scaling == "none" else f" + {scaling}")


def _items(predictions: Predictions, rows: NDArray[np.bool_]) -> Predictions:
    return Predictions(tuple(predictions[int(row)] for row in np.flatnonzero(rows)), predictions.meta)


def _check_same_items(variant: Predictions, base: Predictions) -> None:
    if not len(variant):
        raise ValueError("the calibration split is empty; a choice needs items")
    apart = sorted(set(variant.ids) ^ set(base.ids))
    if apart:
        raise ValueError(
            f"the calibration splits of model and base differ in {len(apart)} items, e.g. {apart[0]!r}; the choice "
            "compares their accuracy on the same items, score the missing ones first"
        )


def _in_words(rule: Rule, n: int, floor: float, flagged: bool) -> str:
    where = " of the domain in which it is worst" if rule.domains == "worst" else ""
    title = MEASURES[rule.metric].title
    split = f"on the calibration split (n = {n})"
    drop = f"{rule.accuracy_drop:g} below the base's {floor + rule.accuracy_drop:.3f}"
    fits = f"post-hoc fits judged by {FOLDS}-fold cross-fitting"
    if flagged:
        first = f"highest accuracy {split}, then lowest {title}{where}"
        return f"{first}, {fits}; every row's accuracy there is more than {drop}"
    return f"lowest {title}{where} {split}, {fits}, among rows whose accuracy there is at most {drop}"
