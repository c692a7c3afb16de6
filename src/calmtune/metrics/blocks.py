"""Binned calibration errors of any number of items, read block by block: memory is that of the arrays and one block.

Both are sums over items: with the residual r_ic = y_ic - p_ic, the error is the mean over the classes that occur of
sum_b |sum of r over the items of class c in bin b| / (number of items that have class c). conf-ECE has one class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .bins import assign_bins, edge_tolerance
from .checks import Floats, Ints, check_confidence_and_correct, check_count, check_labels, check_probabilities

BLOCK = 2**18
"""Items of one block."""


class Block(NamedTuple):
    """Some items: the bin of each class's probability, y - p (0 where an item has not the class), and who has it."""

    bins: Ints
    residual: Floats
    present: NDArray[np.bool_] | None
    """bool [N, C]; None where every item has every class."""


@dataclass(frozen=True, eq=False)
class ConfidenceError:
    """conf-ECE with equal-width bins of many items.

    Args:
        confidence: real [N] in [0, 1]; an array on disk (``numpy.load(..., mmap_mode="r")``) is read block by block.
        correct: bool or 0/1 [N].
        n_bins: number of bins.

    Raises:
        ValueError: shapes that differ; wrong values are found, and named by index, when their block is read.

    Example:
        >>> round(ConfidenceError([0.92, 1.0, 1.0], [1, 1, 0]).value(), 6)
        0.306667
    """

    confidence: ArrayLike
    correct: ArrayLike
    n_bins: int = 10

    def __post_init__(self) -> None:
        values, outcomes = np.asanyarray(self.confidence), np.asanyarray(self.correct)
        if values.ndim != 1 or values.size == 0 or values.shape != outcomes.shape:
            check_confidence_and_correct(values, outcomes)
        _set(self, confidence=values, correct=outcomes, n_bins=check_count(self.n_bins, "n_bins"))

    @property
    def classes(self) -> int:
        """One: the given answer."""
        return 1

    def __len__(self) -> int:
        return len(self.confidence)  # type: ignore[arg-type]

    def read(self, start: int, stop: int) -> Block:
        """The items ``start`` to ``stop``."""
        some: NDArray[Any] = self.confidence[start:stop]  # type: ignore[index, assignment]
        values, outcomes = check_confidence_and_correct(some, self.correct[start:stop], first=start)  # type: ignore[index]
        bins = assign_bins(values, edge_tolerance(some.dtype), self.n_bins, "width").item
        return Block(bins[:, None], (outcomes - values)[:, None], None)

    def value(self) -> float:
        """The error of all items."""
        return value_of(self)


@dataclass(frozen=True, eq=False)
class ClasswiseError:
    """Class-wise ECE with equal-width bins of many items.

    Args:
        probabilities: real [N, K], rows summing to 1; an array on disk is read block by block.
        labels: int [N], class ids.
        n_bins: number of bins.
        n_options: int [N], as for :func:`classwise_ece`; without it every item has all K classes.

    Raises:
        ValueError: shapes that differ; wrong values are found, and named by index, when their block is read.

    Example:
        >>> round(ClasswiseError([[0.75, 0.14, 0.11], [0.15, 0.68, 0.17]], [0, 1]).value(), 6)
        0.19
    """

    probabilities: ArrayLike
    labels: ArrayLike
    n_bins: int = 10
    n_options: ArrayLike | None = None

    def __post_init__(self) -> None:
        p, labels = np.asanyarray(self.probabilities), np.asanyarray(self.labels)
        if p.ndim != 2 or p.shape[1] < 2 or p.shape[0] == 0:
            check_probabilities(p)
        if labels.shape != (len(p),):
            check_labels(labels, *p.shape)
        options = None if self.n_options is None else np.asanyarray(self.n_options)
        if options is not None and options.shape != (len(p),):
            check_options(options, p, labels)
        n_bins = check_count(self.n_bins, "n_bins")
        _set(self, probabilities=p, labels=labels, n_options=options, n_bins=n_bins)

    @property
    def classes(self) -> int:
        """K."""
        return self.probabilities.shape[1]  # type: ignore[union-attr, no-any-return]

    def __len__(self) -> int:
        return len(self.probabilities)  # type: ignore[arg-type]

    def read(self, start: int, stop: int) -> Block:
        """The items ``start`` to ``stop``."""
        some: NDArray[Any] = self.probabilities[start:stop]  # type: ignore[index, assignment]
        p = check_probabilities(some, first=start)
        n, k = p.shape
        labels = check_labels(self.labels[start:stop], n, k, first=start)  # type: ignore[index]
        present = None
        if self.n_options is not None:
            options = check_options(self.n_options[start:stop], p, labels, first=start)  # type: ignore[index]
            present = np.arange(k) < options[:, None]
        bins = np.empty(p.shape, dtype=np.int64)
        tolerance = edge_tolerance(some.dtype)
        for column in range(k):
            bins[:, column] = assign_bins(p[:, column], tolerance, self.n_bins, "width").item
        residual = -p
        residual[np.arange(n), labels] += 1.0
        return Block(bins, residual, present)

    def value(self) -> float:
        """The error of all items."""
        return value_of(self)


ManyItems = ConfidenceError | ClasswiseError


def value_of(items: ManyItems) -> float:
    """The error of all items, from one pass over their blocks."""
    sums = np.zeros((items.classes, items.n_bins))
    known = np.zeros(items.classes)
    for block in blocks(items):
        for k in range(items.classes):
            sums[k] += np.bincount(block.bins[:, k], weights=block.residual[:, k], minlength=items.n_bins)
        known += len(block.bins) if block.present is None else block.present.sum(axis=0)
    return float(error_of_sums(sums, known))


def blocks(items: ManyItems) -> Iterator[Block]:
    """All items, in blocks."""
    for start in range(0, len(items), BLOCK):
        yield items.read(start, min(start + BLOCK, len(items)))


def error_of_sums(sums: Floats, known: Floats) -> Floats:
    """The errors [...] from the residuals' sums [..., C, B] and the numbers of items that have each class [..., C]."""
    total = np.abs(sums).sum(axis=-1)
    share = np.divide(total, known, out=np.zeros(np.broadcast_shapes(total.shape, np.shape(known))), where=known > 0)
    return np.asarray(share.sum(axis=-1) / (np.asarray(known) > 0).sum(axis=-1))


def check_options(n_options: ArrayLike | None, probabilities: Floats, labels: Ints, first: int = 0) -> Ints:
    """Numbers of options as int64 [N]; K everywhere without them.

    Args:
        first: index of the first item, for messages.

    Raises:
        ValueError: not 1 .. K, a label beyond the item's options, or probability on an absent option.
    """
    n, k = probabilities.shape
    if n_options is None:
        return np.full(n, k, dtype=np.int64)
    values = np.asarray(n_options)
    if values.shape != (n,) or values.dtype.kind not in "iu":
        raise ValueError(f"n_options: expected integers of shape ({n},), got {values.dtype} of shape {values.shape}")
    beyond = np.arange(k) >= values[:, None]
    checks = (
        ((values < 1) | (values > k), f"expected 1 .. {k} options"),
        (labels >= values, "its label is not one of its options"),
        ((np.where(beyond, probabilities, 0.0) > 0).any(axis=1), "an option it does not have has probability above 0"),
    )
    for bad, reason in checks:
        if bad.any():
            index = int(np.argmax(bad))
            raise ValueError(f"n_options[{first + index}] is {values[index]}: {reason}")
    return values.astype(np.int64)


def _set(frozen: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(frozen, name, value)
