"""What every metric demands of its arrays: wrong input is refused by index, never repaired in silence."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RANGE_TOLERANCE = 1e-6
"""Probabilities this far outside [0, 1] are rounding noise and are clipped; beyond it they are refused."""

ROW_SUM_TOLERANCE = 1e-4
"""Rows of probabilities must sum to 1 within this."""


def check_confidence(confidence: ArrayLike, name: str = "confidence", first: int = 0) -> Floats:
    """Probabilities of one event an item, as float64 in [0, 1].

    Args:
        confidence: real [N], N >= 1, each in [0, 1] up to ``RANGE_TOLERANCE``.
        name: what to call the array in messages.
        first: index of the first item, for messages, where the array is a block of a longer one.

    Returns:
        float64 [N], clipped to [0, 1].

    Raises:
        ValueError: empty, not 1-D, not real numbers, NaN, or out of range; the message names the first index.
    """
    values = _real(confidence, name)
    if values.ndim != 1:
        raise ValueError(f"{name}: expected a 1-D array, got shape {values.shape}")
    if values.size == 0:
        raise ValueError(f"{name} is empty; a metric needs at least one item")
    return _in_unit_interval(values, name, first)


def check_confidence_and_correct(confidence: ArrayLike, correct: ArrayLike, first: int = 0) -> tuple[Floats, Floats]:
    """Confidences and outcomes of the same items, both as float64 [N].

    Args:
        confidence: see :func:`check_confidence`.
        correct: bool [N], or numbers that are exactly 0 or 1.
        first: index of the first item, for messages.

    Returns:
        (confidence in [0, 1], correct in {0, 1}).

    Raises:
        ValueError: either array is wrong, or their lengths differ.
    """
    checked = check_confidence(confidence, first=first)
    outcomes = np.asarray(correct)
    if outcomes.shape != checked.shape:
        raise ValueError(f"correct: expected shape {checked.shape} like confidence, got {outcomes.shape}")
    if outcomes.dtype.kind not in "biuf":
        raise ValueError(f"correct: expected bool or 0/1, got dtype {outcomes.dtype}")
    if outcomes.dtype.kind != "b":
        bad = ~((outcomes == 0) | (outcomes == 1))
        if bad.any():
            index = int(np.argmax(bad))
            raise ValueError(f"correct[{first + index}] is {outcomes[index]}; expected bool or 0/1, not class ids")
    return checked, outcomes.astype(np.float64)


def check_probabilities(probabilities: ArrayLike, first: int = 0) -> Floats:
    """Rows of class probabilities as float64 [N, K]; logits are refused because their rows do not sum to 1.

    Args:
        probabilities: real [N, K], K >= 2, each in [0, 1], each row summing to 1 within ``ROW_SUM_TOLERANCE``.
        first: index of the first item, for messages.

    Raises:
        ValueError: empty, not 2-D, NaN, out of range or a wrong row sum; the message names the first index.
    """
    values = _real(probabilities, "probabilities")
    if values.ndim != 2 or values.shape[1] < 2:
        raise ValueError(f"probabilities: expected shape [N, K] with K >= 2, got {values.shape}")
    if values.shape[0] == 0:
        raise ValueError("probabilities is empty; a metric needs at least one item")
    checked = _in_unit_interval(values, "probabilities", first)
    off = np.abs(checked.sum(axis=1) - 1.0) > ROW_SUM_TOLERANCE
    if off.any():
        index = int(np.argmax(off))
        raise ValueError(
            f"probabilities[{first + index}] sums to {checked[index].sum():.6g}; expected 1 within "
            f"{ROW_SUM_TOLERANCE:g}. If these are logits, pass them through calmtune.metrics.softmax first."
        )
    return checked


def check_logits(logits: ArrayLike) -> Floats:
    """Rows of logits or log-probabilities as float64 [N, K]; -inf marks an absent option.

    Args:
        logits: real [N, K], K >= 2, without NaN or +inf; at least one finite entry a row.

    Raises:
        ValueError: empty, not 2-D, NaN, +inf, or a row of -inf only; the message names the first index.
    """
    values = _real(logits, "logits").astype(np.float64)
    if values.ndim != 2 or values.shape[1] < 2:
        raise ValueError(f"logits: expected shape [N, K] with K >= 2, got {values.shape}")
    if values.shape[0] == 0:
        raise ValueError("logits is empty; expected at least one item")
    bad = np.isnan(values) | (values == np.inf)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"logits[{row}, {column}] is {values[row, column]}; expected a finite number, or -inf if absent"
        )
    absent = np.isneginf(values).all(axis=1)
    if absent.any():
        raise ValueError(f"logits[{int(np.argmax(absent))}] is -inf everywhere; expected at least one finite logit")
    return values


def check_labels(labels: ArrayLike, n_items: int, n_classes: int, first: int = 0) -> Ints:
    """Class ids as int64 [N].

    Args:
        labels: integers [N] in ``0 .. n_classes - 1``; bool and float are refused, since 0/1 correctness is not a
            class id.
        first: index of the first item, for messages.

    Raises:
        ValueError: wrong dtype, length or range; the message names the first index.
    """
    values = np.asarray(labels)
    if values.shape != (n_items,):
        raise ValueError(f"labels: expected shape ({n_items},), one class id an item, got {values.shape}")
    if values.dtype.kind not in "iu":
        raise ValueError(f"labels: expected integer class ids, got dtype {values.dtype}; correctness is not a label")
    bad = (values < 0) | (values >= n_classes)
    if bad.any():
        index = int(np.argmax(bad))
        raise ValueError(f"labels[{first + index}] is {values[index]}; expected a class id in 0 .. {n_classes - 1}")
    return values.astype(np.int64)


def check_count(value: int, name: str) -> int:
    """A whole number of at least 1, such as a number of bins.

    Raises:
        ValueError: not an integer, or below 1.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name}: expected an integer >= 1, got {value!r}")
    return int(value)


def _real(values: ArrayLike, name: str) -> NDArray[np.generic]:
    array = np.asarray(values)
    # bool is refused: it is what `correct` looks like, so the arguments have probably changed places
    if array.size and array.dtype.kind not in "iuf":
        raise ValueError(f"{name}: expected real numbers, got dtype {array.dtype}")
    return array


def _in_unit_interval(values: NDArray[np.generic], name: str, first: int = 0) -> Floats:
    checked = values.astype(np.float64)
    # written so that NaN fails the comparison too
    bad = ~((checked >= -RANGE_TOLERANCE) & (checked <= 1.0 + RANGE_TOLERANCE))
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        shown = (first + where[0], *where[1:])
        raise ValueError(
            f"{name}[{', '.join(map(str, shown))}] is {checked[where]:.9g}; expected a probability in [0, 1]"
        )
    return np.clip(checked, 0.0, 1.0, out=checked)
