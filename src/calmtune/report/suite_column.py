"""One column of a suite's table: every row with its seeds, resampled together on the same items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calmtune.metrics.resampled import Sums, class_sums, confidence_sums, draw_counts, draw_swaps, mean_sums
from calmtune.metrics.seeds import seed_difference, seed_interval, seed_spread
from calmtune.report.measures import MEASURES
from calmtune.report.numbers import Difference, Estimate
from calmtune.report.suite_runs import Seed

RESAMPLED = ("conf_ece", "cw_ece", "accuracy", "nll", "gap")
"""Measures with an interval."""
POINT_ONLY = ("smooth_ece",)
"""Measures that are not a sum over items and would take hours to resample: mean and spread over seeds alone."""
ALL_MEASURES = (*RESAMPLED, *POINT_ONLY)
NULL_SHARE = 5
"""The band of a calibrated model is drawn this many times less often."""

_LIMITS = {"conf_ece": (0, 1), "cw_ece": (0, 1), "accuracy": (0, 1), "nll": (0, np.inf), "gap": (-1, 1)}
# numbers of a block of counts, so that memory does not grow with the number of resamples
_BLOCK = 4_000_000

Key = tuple[str, Seed]
"""Row label and seed of a reading."""
Pair = tuple[tuple[Key, ...], tuple[Key, ...]]
"""Readings of two rows, seed by seed."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """What a column is measured by.

    Args:
        resampled: measures with an interval. sums: (measure, reading, bins) -> the measure as sums over items.
        limits: of each of them. bca: those whose interval is corrected for resampling pushing them up.
        point_only: measures without an interval, by name: (reading, bins) -> value.
    """

    resampled: tuple[str, ...]
    sums: Callable[[str, Any, int], Sums]
    limits: Mapping[str, tuple[float, float]]
    bca: frozenset[str]
    point_only: Mapping[str, Callable[[Any, int], float]]


def sums_of(measure: str, reading: Any, n_bins: int) -> Sums:
    """A measure of :data:`RESAMPLED` on a reading, as sums over items."""
    if measure == "conf_ece":
        return confidence_sums(reading.confidence, reading.correct, n_bins)
    if measure == "cw_ece":
        return class_sums(reading.probabilities, reading.labels, n_bins, reading.n_options)
    if measure == "nll":
        with np.errstate(divide="ignore"):
            return mean_sums(-np.log(reading.probabilities[np.arange(len(reading)), reading.labels]))
    correct = reading.correct.astype(np.float64)
    return mean_sums(correct if measure == "accuracy" else reading.confidence - correct)


@dataclass(frozen=True)
class Spread:
    """A row on a column in one measure, over its seeds.

    Args:
        values: one a seed, in the order of the seeds.
        estimate: their mean with its interval over items and seeds; NaN ends for measures without one.
        deviation: standard deviation over seeds, NaN for a single one.
    """

    values: tuple[float, ...]
    estimate: Estimate
    deviation: float


OPTIONS = Measured(
    RESAMPLED,
    sums_of,
    _LIMITS,
    frozenset(measure for measure in RESAMPLED if MEASURES[measure].interval == "bca"),
    {
        measure: lambda reading, bins, m=measure: MEASURES[m].function(reading.confidence, reading.correct, bins)  # type: ignore[misc]
        for measure in POINT_ONLY
    },
)
"""Questions with options."""


class ColumnStatistics:
    """All readings of one column, resampled once.

    Args:
        readings: by row label and seed, all on the same items in the same order; with a ``confidence``.
        n_bins: bins of the binned errors.
        n_resamples: resamples, and exchanges.
        seed: of both.
        of: the measures.
    """

    def __init__(
        self, readings: Mapping[Key, Any], *, n_bins: int, n_resamples: int, seed: int, of: Measured = OPTIONS
    ) -> None:
        self.readings, self.n_bins, self.n_resamples, self.seed, self.of = readings, n_bins, n_resamples, seed, of
        self.n = len(next(iter(readings.values())))
        self.sums = {
            measure: {key: of.sums(measure, reading, n_bins) for key, reading in readings.items()}
            for measure in of.resampled
        }
        self.values = {
            measure: {key: one.value() for key, one in of_key.items()} for measure, of_key in self.sums.items()
        }
        for measure, function in of.point_only.items():
            self.values[measure] = {key: function(reading, n_bins) for key, reading in readings.items()}
        self.resampled: dict[str, dict[Key, Floats]] = {}
        self.swapped: dict[str, dict[Pair, Floats]] = {}

    def resample(self, pairs: Mapping[str, Iterable[Pair]]) -> None:
        """Draw all resamples; ``pairs`` are the rows whose items are exchanged, by measure."""
        room = np.full(self.n_resamples, np.nan)
        self.resampled = {m: {key: room.copy() for key in self.readings} for m in self.of.resampled}
        self.swapped = {m: {pair: room.copy() for pair in pairs.get(m, ())} for m in self.of.resampled}
        drawing, exchanging = np.random.default_rng(self.seed), np.random.default_rng([self.seed, 1])
        size = max(1, _BLOCK // self.n)
        for start in range(0, self.n_resamples, size):
            rows = slice(start, min(start + size, self.n_resamples))
            counts = draw_counts(self.n, rows.stop - rows.start, drawing)
            swaps = draw_swaps(self.n, rows.stop - rows.start, exchanging)
            for measure in self.of.resampled:
                self._block(measure, rows, counts, swaps)

    def spread(self, measure: str, keys: tuple[Key, ...]) -> Spread:
        """Mean, interval and deviation over the seeds of one row."""
        values = tuple(self.values[measure][key] for key in keys)
        if measure in self.of.point_only:
            mean = float(np.mean(values))
            return Spread(values, Estimate(mean, float("nan"), float("nan"), self.n), seed_spread(values))
        left_out = None
        if measure in self.of.bca and self.n > 1:
            left_out = [self.sums[measure][key].left_out() for key in keys]
        drawn = [self.resampled[measure][key] for key in keys]
        found = seed_interval(values, drawn, left_out, seed=self.seed)
        low, high = np.clip([found.low, found.high], *self.of.limits[measure])
        return Spread(values, Estimate(found.estimate, float(low), float(high), self.n), seed_spread(values))

    def difference(self, measure: str, pair: Pair) -> Difference:
        """First row minus second, over the seeds of the pair."""
        sides = [
            (
                [self.values[measure][key] for key in keys],
                [self.resampled[measure][key] for key in keys],
            )
            for keys in pair
        ]
        (a, drawn_a), (b, drawn_b) = sides
        found = seed_difference(a, b, drawn_a, drawn_b, self.swapped[measure][pair], seed=self.seed)
        return Difference(found.estimate, found.low, found.high, found.p_value, self.n)

    def null_band(self, keys: tuple[Key, ...]) -> Estimate:
        """conf-ECE if the labels were drawn from the row's own confidences: mean over seeds, and its 95 % band."""
        n = max(1, self.n_resamples // NULL_SHARE)
        drawing = np.random.default_rng([self.seed, 2]).random((n, self.n))
        total = np.zeros(n)
        for key in keys:
            confidence = self.readings[key].confidence
            # with nothing right each item leaves minus its confidence in its bin, which is never 0
            table = confidence_sums(confidence, np.zeros(self.n), self.n_bins)
            bins = (table.features != 0).astype(np.float64)
            sums = (drawing < confidence) @ bins - confidence @ bins
            total += table.of_sums(sums, table.presence.sum(axis=0)) / len(keys)
        low, high = np.quantile(total, [0.025, 0.975])
        return Estimate(float(total.mean()), float(low), float(high), self.n)

    def _block(self, measure: str, rows: slice, counts: Floats, swaps: Floats) -> None:
        moved = {}
        for key, sums in self.sums[measure].items():
            self.resampled[measure][key][rows] = sums.of_counts(counts)
            moved[key] = swaps @ sums.features
        for pair, room in self.swapped[measure].items():
            total = np.zeros(len(counts))
            for key_a, key_b in zip(*pair, strict=True):
                a, b = self.sums[measure][key_a], self.sums[measure][key_b]
                change, presence = moved[key_b] - moved[key_a], a.presence.sum(axis=0)
                left = a.of_sums(a.features.sum(axis=0) + change, presence)
                right = b.of_sums(b.features.sum(axis=0) - change, presence)
                with np.errstate(invalid="ignore"):  # inf - inf is NaN, and told as such
                    total += (left - right) / len(pair[0])
            room[rows] = total


def paired_keys(a: Mapping[Seed, Key], b: Mapping[Seed, Key]) -> Pair:
    """Two rows seed by seed: the seeds that both have, or every seed of one beside the other one's only reading.

    >>> paired_keys({0: ("a", 0), 1: ("a", 1)}, {None: ("base", None)})
    ((('a', 0), ('a', 1)), (('base', None), ('base', None)))
    """
    if None in a:
        return (a[None],) * len(b), tuple(b.values())
    if None in b:
        return tuple(a.values()), (b[None],) * len(a)
    common = [seed for seed in a if seed in b]
    return tuple(a[seed] for seed in common), tuple(b[seed] for seed in common)
