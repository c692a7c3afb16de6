"""Bootstrap and paired comparison of binned calibration errors for millions of items.

The distributions are those of :func:`bootstrap_interval` and :func:`paired_difference`, exactly: every resample draws
N items with replacement, every exchange swaps each item with probability 1/2. What differs is the order of the work:
items are taken in parts, and the counts of many resamples for the few items of a tile are multiplied with their
residuals at once, so that the data are read once and not once a resample.

How counts of a part of s items are drawn, T of which fall on it in a resample: T is multinomial over the parts. Every
item gets a Poisson(c) count, c so far below T/s that their sum stays below T; what is missing to T is drawn one by one.
Poisson counts given their sum are multinomial, and so are two multinomial draws together; so the counts are
multinomial(T). The Poisson counts come from a table over 16 random bits; where these do not decide, a double does.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .blocks import BLOCK, ManyItems, error_of_sums
from .bootstrap import Interval, PairedDifference, check_settings, quantiles
from .checks import Floats, Ints, check_count

PART_VALUES = 2**23
"""Residuals of one part: 64 MiB; while it is sorted, a part takes about four times as much."""
TILE_ITEMS, TILE_RESAMPLES = 1024, 128
MARGIN = 8.0
"""Standard deviations that the Poisson counts' sum is kept below what is to be drawn."""
MISSING_AT_ONCE = 2**20
_UNDECIDED = 255.0


def bootstrap_many(
    items: ManyItems, *, seed: int = 0, level: float = 0.95, n_resamples: int = 1000, threads: int = 1
) -> Interval:
    """Percentile bootstrap interval of a binned calibration error over many items.

    Args:
        items: :class:`ConfidenceError` or :class:`ClasswiseError`.
        seed: of the resampling; the same seed gives the same interval, though not that of :func:`bootstrap_interval`.
        level: coverage asked for, in (0, 1).
        n_resamples: number of resamples.
        threads: parts worked on at once, each with its memory; the result is the same.

    Returns:
        (estimate, low, high), fractions.

    Raises:
        ValueError: wrong settings or values.

    Example:
        >>> from calmtune.metrics import ConfidenceError
        >>> interval = bootstrap_many(ConfidenceError([0.8] * 500, [1, 0] * 250), seed=1)
        >>> round(interval.estimate, 6), interval.low < 0.3 < interval.high
        (0.3, True)

    Source: Efron and Tibshirani (1993), chapter 13.
    """
    check_settings(level, n_resamples)
    drawn = _resample((items,), seed, n_resamples, threads, swaps=False).drawn[0]
    return Interval(items.value(), *quantiles(drawn, _tails(level)))


def compare_many(
    a: ManyItems, b: ManyItems, *, seed: int = 0, level: float = 0.95, n_resamples: int = 1000, threads: int = 1
) -> PairedDifference:
    """error(a) - error(b) of two methods on the same many items, with interval and permutation p-value.

    Args:
        a, b: two :class:`ConfidenceError` or two :class:`ClasswiseError`; item i of both is the same one.
        seed: of resampling and exchange; the same seed gives the same result, though not that of
            :func:`paired_difference`.
        level: coverage of the interval, in (0, 1).
        n_resamples: resamples, and exchanges.
        threads: parts worked on at once, each with its memory; the result is the same.

    Returns:
        (estimate, low, high, p_value); the p-value is at least 1 / (1 + n_resamples).

    Raises:
        ValueError: the sides differ in kind, length, classes, bins or numbers of options, or wrong settings or values.

    Example:
        >>> from calmtune.metrics import ConfidenceError
        >>> one = ConfidenceError([0.9, 0.8, 0.7], [1, 0, 1])
        >>> compare_many(one, one)
        PairedDifference(estimate=0.0, low=0.0, high=0.0, p_value=1.0)

    Source: Efron and Tibshirani (1993), chapters 13 and 15.
    """
    check_settings(level, n_resamples)
    shapes = [(type(side).__name__, len(side), side.classes, side.n_bins) for side in (a, b)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"a and b: expected the same kind of error, items, classes and bins, got {shapes[0]} and {shapes[1]}; "
            "align both sides by item id"
        )
    found = _resample((a, b), seed, n_resamples, threads, swaps=True)
    drawn, swapped = (values[0] - values[1] for values in (found.drawn, found.swapped))
    estimate = float(found.values[0] - found.values[1])
    low, high = quantiles(drawn, _tails(level))
    # the slack counts exchanges that give the same difference up to summation order
    extreme = int((np.abs(swapped) >= abs(estimate) - 1e-12).sum())
    return PairedDifference(estimate, low, high, (1 + extreme) / (1 + n_resamples))


@dataclass(frozen=True)
class _Resamples:
    """The error of every side: on the items [S], on each resample [S, R], and after each exchange [S, R]."""

    values: Floats
    drawn: Floats
    swapped: Floats


@dataclass(frozen=True)
class _Part:
    """Some items of all sides, those that lie in the same bins beside each other.

    Columns are (side, class); ``cell`` is the column's bin among the bins of all columns; ``known`` is who has the
    class, one column a class, empty where every item has every class.
    """

    cell: NDArray[np.int32]
    residual: Floats
    known: Floats


class _Totals:
    """Sums over items for every resample and exchange, filled part by part."""

    def __init__(self, sides: tuple[ManyItems, ...], n_resamples: int) -> None:
        first = sides[0]
        self.shape = (len(sides), first.classes, first.n_bins)
        self.cells = len(sides) * first.classes * first.n_bins
        self.ragged = getattr(first, "n_options", None) is not None
        self.all = np.zeros(self.cells)
        self.known = np.zeros(first.classes)
        self.drawn = np.zeros((n_resamples, self.cells))
        self.drawn_known = np.zeros((n_resamples, first.classes))
        self.moved = np.zeros((n_resamples, self.cells // len(sides)))

    def add(self, other: _Totals) -> None:
        """Add the sums of other items."""
        for name in ("all", "known", "drawn", "drawn_known", "moved"):
            getattr(self, name).__iadd__(getattr(other, name))

    def resamples(self, n: int) -> _Resamples:
        """The errors, when all ``n`` items are in the sums."""
        known = self.drawn_known if self.ragged else np.full_like(self.drawn_known, n)
        whole = self.all.reshape(self.shape)
        drawn = self.drawn.reshape(-1, *self.shape).swapaxes(0, 1)
        moved = self.moved.reshape(-1, *self.shape[1:])
        swapped = np.stack([whole[0] + moved, whole[-1] - moved])
        errors = ((whole, self.known), (drawn, known), (swapped, self.known))
        return _Resamples(*(error_of_sums(sums, count) for sums, count in errors))


def _resample(sides: tuple[ManyItems, ...], seed: int, n_resamples: int, threads: int, *, swaps: bool) -> _Resamples:
    check_count(threads, "threads")
    n = len(sides[0])
    size = min(n, max(TILE_ITEMS, PART_VALUES // (len(sides) * sides[0].classes)))
    starts = range(0, n, size)
    shares = np.array([min(size, n - start) for start in starts]) / n
    counts = _generator(seed, 0).multinomial(n, shares, size=n_resamples).T
    totals = _Totals(sides, n_resamples)
    work = partial(_part_totals, sides, size, seed, swaps)
    with ThreadPoolExecutor(threads) as pool:
        # in the order of the parts, so that the sums do not depend on which thread is first
        for part in pool.map(work, starts, counts):
            totals.add(part)
    return totals.resamples(n)


def _part_totals(sides: tuple[ManyItems, ...], size: int, seed: int, swaps: bool, start: int, counts: Ints) -> _Totals:
    """The sums over the items of one part, with random numbers of its own."""
    totals = _Totals(sides, len(counts))
    part = _read_part(sides, start, min(start + size, len(sides[0])))
    totals.all += np.bincount(part.cell.ravel(), weights=part.residual.ravel(), minlength=totals.cells)
    totals.known += part.known.sum(axis=0) if totals.ragged else len(part.cell)
    _draw(part, counts, totals, _generator(seed, 1, start))
    if swaps:
        _exchange(part, totals, _generator(seed, 2, start))
    return totals


def _generator(*seeds: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(list(seeds)))


def _read_part(sides: tuple[ManyItems, ...], start: int, stop: int) -> _Part:
    n_bins, classes = sides[0].n_bins, sides[0].classes
    bins = np.empty((stop - start, len(sides) * classes), dtype=np.int32)
    residual = np.empty(bins.shape)
    ragged = getattr(sides[0], "n_options", None) is not None
    known = np.empty((len(bins), classes if ragged else 0))
    for first in range(start, stop, BLOCK):
        last = min(first + BLOCK, stop)
        rows = slice(first - start, last - start)
        read = [side.read(first, last) for side in sides]
        # np.array_equal of None and None is true, and of None and an array false
        if not all(np.array_equal(block.present, read[0].present) for block in read):  # type: ignore[arg-type]
            raise ValueError(f"a and b: items {first} to {last - 1} differ in n_options; align both sides by item id")
        for place, block in enumerate(read):
            columns = slice(place * classes, (place + 1) * classes)
            bins[rows, columns], residual[rows, columns] = block.bins, block.residual
        if ragged:
            known[rows] = read[0].present
    order = np.argsort(_code(bins, n_bins))
    cell = bins[order]
    cell += n_bins * np.arange(bins.shape[1], dtype=np.int32)
    return _Part(cell, residual[order], known[order])


def _code(bins: NDArray[np.int32], n_bins: int) -> Ints:
    """A number for the bins of an item.

    Sorted by it, the items of a tile lie in few bins, and most of its columns are empty; who comes first does not
    matter, since all items are drawn alike.
    """
    code = np.zeros(len(bins), dtype=np.int64)
    for column in bins.T[: max(1, int(62 / np.log2(max(2, n_bins))))]:
        code = code * n_bins + column
    return code


def _draw(part: _Part, counts: Ints, totals: _Totals, rng: np.random.Generator) -> None:
    """Add the sums of every resample, ``counts`` items of the part each."""
    n = len(part.cell)
    mean = max(0.0, (float(counts.min()) - MARGIN * np.sqrt(float(counts.min()))) / n)
    drawn = np.zeros(len(counts))
    if mean > 0:
        table, distribution = _poisson_table(mean)
        for start in range(0, n, TILE_ITEMS):
            columns, features = _features(part, slice(start, start + TILE_ITEMS))
            for first in range(0, len(counts), TILE_RESAMPLES):
                rows = slice(first, min(first + TILE_RESAMPLES, len(counts)))
                tile = _poisson(table, distribution, (rows.stop - first, len(features)), rng)
                sums = tile @ features
                totals.drawn[rows, columns] += sums[:, : len(columns)]
                totals.drawn_known[rows, : part.known.shape[1]] += sums[:, len(columns) : -1]
                drawn[rows] += sums[:, -1]
    _draw_missing(part, counts - drawn.astype(np.int64), totals, rng)


def _draw_missing(part: _Part, missing: Ints, totals: _Totals, rng: np.random.Generator) -> None:
    """Add as many items as each resample is short of, one by one."""
    assert missing.min() >= 0, "a sum of Poisson counts lies 8 deviations above its mean"
    step = max(1, MISSING_AT_ONCE // max(1, int(missing.max())))
    for first in range(0, len(missing), step):
        short = missing[first : first + step]
        item = rng.integers(0, len(part.cell), int(short.sum()))
        owner = np.repeat(np.arange(len(short)), short)
        for column in range(part.cell.shape[1]):
            place = owner * totals.cells + part.cell[item, column]
            sums = np.bincount(place, weights=part.residual[item, column], minlength=len(short) * totals.cells)
            totals.drawn[first : first + step] += sums.reshape(len(short), -1)
        for k in range(part.known.shape[1]):
            known = np.bincount(owner, weights=part.known[item, k], minlength=len(short))
            totals.drawn_known[first : first + step, k] += known


def _exchange(part: _Part, totals: _Totals, rng: np.random.Generator) -> None:
    """Add what every exchange moves from the second side to the first."""
    half = totals.cells // 2
    for start in range(0, len(part.cell), TILE_ITEMS):
        columns, features = _features(part, slice(start, start + TILE_ITEMS))
        signed = np.where(columns < half, -1.0, 1.0) * features[:, : len(columns)]
        shared, place = np.unique(columns % half, return_inverse=True)
        change = np.zeros((len(features), len(shared)))
        np.add.at(change.T, place, signed.T)
        for first in range(0, len(totals.moved), TILE_RESAMPLES):
            rows = min(TILE_RESAMPLES, len(totals.moved) - first)
            totals.moved[first : first + rows, shared] += _coins((rows, len(features)), rng) @ change


def _features(part: _Part, rows: slice) -> tuple[Ints, Floats]:
    """The cells that some items lie in, and their residuals in these, who has each class, and a 1: [items, columns]."""
    cell, residual = part.cell[rows], part.residual[rows]
    used = np.flatnonzero(np.bincount(cell.ravel()))
    place = np.zeros(used[-1] + 1, dtype=np.int64)
    place[used] = np.arange(len(used))
    features = np.zeros((len(cell), len(used) + part.known.shape[1] + 1))
    features[np.arange(len(cell))[:, None], place[cell]] = residual
    features[:, len(used) : -1] = part.known[rows]
    features[:, -1] = 1.0
    return used, features


def _poisson_table(mean: float) -> tuple[Floats, Floats]:
    """The count of each 16-bit number, or ``_UNDECIDED``; and the distribution function."""
    # beyond 30 the probability is less than a double can say for a mean of about 1
    terms = np.exp(np.cumsum(np.concatenate(([-mean], np.log(mean) - np.log(np.arange(1, 31))))))
    distribution = np.cumsum(terms)
    edges = np.arange(2**16 + 1) / 2**16
    low = np.searchsorted(distribution, edges[:-1], side="right")
    high = np.searchsorted(distribution, edges[1:], side="left")
    return np.where(low == high, low.astype(np.float64), _UNDECIDED), distribution


def _poisson(table: Floats, distribution: Floats, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    """Poisson counts as float64."""
    size = shape[0] * shape[1]
    bits = _random_words(-(-size // 4), rng).view(np.uint16)[:size]
    counts = np.take(table, bits, mode="clip")
    if counts.max() == _UNDECIDED:
        where = np.flatnonzero(counts == _UNDECIDED)
        exact = (bits[where] + rng.random(len(where))) / 2**16
        counts[where] = np.searchsorted(distribution, exact, side="right")
    return counts.reshape(shape)


def _coins(shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    """0 or 1 with probability 1/2 each, as float64."""
    size = shape[0] * shape[1]
    words = _random_words(-(-size // 64), rng)
    return np.unpackbits(words.view(np.uint8), count=size).astype(np.float64).reshape(shape)


def _random_words(count: int, rng: np.random.Generator) -> NDArray[Any]:
    return np.asarray(rng.bit_generator.random_raw(count), dtype="<u8")


def _tails(level: float) -> Floats:
    tail = (1.0 - level) / 2.0
    return np.array([tail, 1.0 - tail])
