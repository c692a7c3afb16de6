"""The sampled answers of questions as counts of classes, in an order that no relabelling and no shuffling changes.

Invariant: a row holds its classes by falling count and, where counts tie, refused before wrong before right; whatever
still ties is the same in every figure. So what is computed from a row depends neither on the order of the samples nor
on what the classes are called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .checks import Ints, check_count
from .semantic_draws import draw, question_keys

ClassId = int | str
ClassIds = Sequence[Sequence[ClassId]] | NDArray[Any]
Grades = Sequence[Any] | NDArray[Any]
WithinClass = Literal["same", "any", "majority"]

REFUSED, WRONG, RIGHT, UNGRADED = 0, 1, 2, 3
"""Kinds of class, in the order in which tied classes stand."""


@dataclass(frozen=True)
class Pools:
    """All questions' samples, counted.

    Args:
        counts: int64 [N, K], samples of each class, falling along the row, 0 beyond the question's classes.
        kinds: int64 [N, K], ``REFUSED``, ``WRONG``, ``RIGHT`` or ``UNGRADED``.
        size: int64 [N], samples of the question.
        labels: the classes' own names in the order of ``counts``, None for the refusals; empty after sub-sampling.
        ids: N different strings, to which the draws belong.
        graded: whether every class has a grade, from its samples'.
        given: bool [N], grades of the modal classes where the caller gave one a question, else None.
    """

    counts: Ints
    kinds: Ints
    size: Ints
    labels: tuple[tuple[ClassId | None, ...], ...]
    ids: tuple[str, ...]
    graded: bool
    given: NDArray[np.bool_] | None

    def __len__(self) -> int:
        return len(self.size)

    def by_size(self, cells_each: int) -> Iterator[tuple[Ints, Ints]]:
        """Questions with equally many samples, in blocks: (rows [M], class of each of their samples [M, n])."""
        for n in np.unique(self.size):
            rows = np.flatnonzero(self.size == n)
            block = max(1, 4_000_000 // (int(n) * cells_each))
            for start in range(0, len(rows), block):
                part = rows[start : start + block]
                place = np.broadcast_to(np.arange(self.counts.shape[1]), (len(part), self.counts.shape[1]))
                yield part, np.repeat(place.ravel(), self.counts[part].ravel()).reshape(len(part), int(n))


def pool_samples(
    class_ids: ClassIds,
    correct: Grades | None = None,
    *,
    refused: Grades | None = None,
    within_class: WithinClass = "same",
    ids: Sequence[ClassId] | None = None,
) -> Pools:
    """Count the classes of each question's samples and grade them.

    Args:
        class_ids: [N][n], the class of each sample, an int or a string; n >= 1 may differ between questions.
        correct: per sample [N][n], or per question [N] as the grade of the modal class; bool or 0/1; None for no
            grades.
        refused: [N][n], which samples are refusals; those of a question become one class, which is wrong.
        within_class: how a class gets its grade from its samples': ``"same"`` demands that they agree, ``"any"``
            takes one right sample as enough, ``"majority"`` more than half.
        ids: [N], different ints or strings; the places 0 .. N - 1 by default.

    Raises:
        ValueError: wrong shapes or values, named by their index.
    """
    if within_class not in ("same", "any", "majority"):
        raise ValueError(f"within_class: expected 'same', 'any' or 'majority', got {within_class!r}")
    rows = [check_classes(row, i) for i, row in enumerate(check_questions(class_ids, "class_ids"))]
    per_question = correct is not None and _is_per_question(correct, len(rows))
    if refused is not None and per_question:
        raise ValueError("correct: refusals need a grade for each sample, [N][n]; got one grade for each question")
    grades = [None] * len(rows) if correct is None or per_question else _binary(correct, rows, "correct")
    refusals = [None] * len(rows) if refused is None else _binary(refused, rows, "refused")
    tables = [_count(i, *given, within_class) for i, given in enumerate(zip(rows, grades, refusals, strict=True))]
    width = max(len(table) for table in tables)
    counts, kinds = np.zeros((2, len(rows), width), dtype=np.int64)
    kinds[:] = UNGRADED
    for i, table in enumerate(tables):
        counts[i, : len(table)] = [count for _, count, _ in table]
        kinds[i, : len(table)] = [kind for _, _, kind in table]
    order = canonical_order(counts, kinds)
    labels = tuple(
        tuple(table[j][0] for j in places[: len(table)]) for table, places in zip(tables, order.tolist(), strict=True)
    )
    return Pools(
        np.take_along_axis(counts, order, axis=1),
        np.take_along_axis(kinds, order, axis=1),
        counts.sum(axis=1),
        labels,
        _check_ids(ids, len(rows)),
        correct is not None and not per_question,
        _outcomes(correct) if correct is not None and per_question else None,
    )


def canonical_order(counts: Ints, kinds: Ints) -> Ints:
    """Places that sort each row by falling count, then by kind, int64 [N, K]."""
    return np.argsort(kinds - counts * (UNGRADED + 1), axis=1, kind="stable")


def sub_sample(pools: Pools, n: int, seed: int, repeat: int) -> Pools:
    """``n`` of each question's samples, drawn without replacement; a class keeps the grade it has in the whole pool.

    For one seed and repeat, fewer samples are part of more.

    Raises:
        ValueError: a question with fewer samples.
    """
    n = check_count(n, "budget")
    if (pools.size < n).any():
        i = int(np.argmax(pools.size < n))
        raise ValueError(f"class_ids[{i}] has {pools.size[i]} samples; a budget of {n} needs as many for each question")
    keys = question_keys(pools.ids, seed, f"sub-sample {repeat}")
    counts = np.zeros_like(pools.counts)
    for rows, samples in pools.by_size(1):
        chosen = np.argpartition(draw(keys[rows], samples.shape[1]), n - 1, axis=1)[:, :n]
        counts[rows] = count_classes(np.take_along_axis(samples, chosen, axis=1), counts.shape[1])
    order = canonical_order(counts, pools.kinds)
    sorted_counts = np.take_along_axis(counts, order, axis=1)
    kinds = np.take_along_axis(pools.kinds, order, axis=1)
    return Pools(sorted_counts, kinds, np.full(len(pools), n, dtype=np.int64), (), pools.ids, pools.graded, None)


def count_classes(samples: Ints, n_classes: int) -> Ints:
    """How often each class occurs along the last axis: int64 [..., n] in 0 .. K - 1 to int64 [..., K]."""
    shape = samples.shape[:-1]
    flat = samples.reshape(-1, samples.shape[-1])
    cells = flat + np.arange(len(flat))[:, None] * n_classes
    counted = np.bincount(cells.ravel(), minlength=len(flat) * n_classes)
    return counted.astype(np.int64, copy=False).reshape(*shape, n_classes)


def check_questions(values: Sequence[Any] | NDArray[Any], name: str) -> list[Any]:
    """One row of samples a question, N >= 1.

    Raises:
        ValueError: empty, or a row that is not a list, tuple or array.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, (Sequence, np.ndarray)) or len(values) == 0:
        raise ValueError(f"{name}: expected one list of samples for each question, and at least one question")
    rows = values.tolist() if isinstance(values, np.ndarray) else list(values)
    for i, row in enumerate(rows):
        if not _is_row(row):
            raise ValueError(f"{name}[{i}] is {row!r}; expected a list with one entry for each sample of the question")
    return rows


def check_classes(row: Any, i: int) -> list[ClassId]:
    """The class ids of question ``i``, ints and strings.

    Raises:
        ValueError: no samples, or an id of another type (a float NaN and None among them).
    """
    values = row.tolist() if isinstance(row, np.ndarray) else list(row)
    if not values:
        raise ValueError(f"class_ids[{i}] is empty; a question needs at least one sample")
    for k, value in enumerate(values):
        if type(value) is not int and type(value) is not str:
            if isinstance(value, np.integer):
                values[k] = int(value)
            elif isinstance(value, str):
                values[k] = str(value)
            else:
                raise ValueError(f"class_ids[{i}][{k}] is {value!r}; expected an int or a string")
    return values


def _count(
    i: int, row: list[ClassId], grades: list[bool] | None, refused: list[bool] | None, within_class: WithinClass
) -> list[tuple[ClassId | None, int, int]]:
    """(class, samples, kind) of each class of question ``i``, refusals first, then by name."""
    seen: dict[ClassId | None, list[int]] = {}
    for k, label in enumerate(row):
        right = grades is not None and grades[k]
        refusal = refused is not None and refused[k]
        if right and refusal:
            raise ValueError(f"sample [{i}][{k}] is both correct and refused; a right answer is no refusal")
        entry = seen.setdefault(None if refusal else label, [0, 0])
        entry[0] += 1
        entry[1] += right
    table = []
    for name in sorted(seen, key=lambda name: (name is not None, isinstance(name, str), name)):
        count, n_right = seen[name]
        if name is None or grades is None:
            kind = REFUSED if name is None else UNGRADED
        else:
            kind = RIGHT if _is_right(i, name, n_right, count, within_class) else WRONG
        table.append((name, count, kind))
    return table


def _is_right(i: int, name: ClassId, n_right: int, count: int, within_class: WithinClass) -> bool:
    if within_class == "same" and 0 < n_right < count:
        raise ValueError(
            f"correct[{i}]: {n_right} of the {count} samples of class {name!r} are right; expected one grade for a "
            "class: grade classes, not samples, or choose within_class='any' or 'majority'"
        )
    return n_right > 0 if within_class == "any" else 2 * n_right > count


def _is_row(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 1
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _is_per_question(correct: Grades, n: int) -> bool:
    if isinstance(correct, (str, bytes)) or not isinstance(correct, (Sequence, np.ndarray)) or len(correct) != n:
        got = f"{len(correct)} entries" if hasattr(correct, "__len__") else repr(correct)
        raise ValueError(f"correct: expected {n} entries, one for each question, got {got}")
    nested = [_is_row(entry) for entry in correct]
    if any(nested) and not all(nested):
        i = nested.index(not nested[0])
        raise ValueError(f"correct[{i}]: expected grades for samples everywhere or for questions everywhere")
    return not any(nested)


def _binary(values: Grades, rows: list[list[ClassId]], name: str) -> list[list[bool]]:
    """Flags of samples, checked against the samples."""
    flags = check_questions(values, name)
    if len(flags) != len(rows):
        raise ValueError(f"{name} has {len(flags)} questions and class_ids has {len(rows)}; expected the same")
    for i, (row, samples) in enumerate(zip(flags, rows, strict=True)):
        if len(row) != len(samples):
            raise ValueError(f"{name}[{i}] has {len(row)} entries; expected {len(samples)}, one for each sample")
    return [[_flag(value, f"{name}[{i}][{k}]") for k, value in enumerate(row)] for i, row in enumerate(flags)]


def _outcomes(correct: Grades) -> NDArray[np.bool_]:
    return np.array([_flag(value, f"correct[{i}]") for i, value in enumerate(correct)], dtype=bool)


def _flag(value: Any, where: str) -> bool:
    if value is True or value is False:
        return value
    if isinstance(value, (int, float, np.bool_, np.integer, np.floating)) and value in (0, 1):
        return bool(value)
    raise ValueError(f"{where} is {value!r}; expected bool or 0/1")


def _check_ids(ids: Sequence[ClassId] | None, n: int) -> tuple[str, ...]:
    if ids is None:
        return tuple(map(str, range(n)))
    if len(ids) != n:
        raise ValueError(f"ids: expected {n}, one for each question, got {len(ids)}")
    place: dict[str, int] = {}
    for i, value in enumerate(ids):
        if isinstance(value, bool) or not isinstance(value, (str, int, np.integer)):
            raise ValueError(f"ids[{i}] is {value!r}; expected an int or a string")
        if (first := place.setdefault(str(value), i)) != i:
            raise ValueError(f"ids[{i}] is {value!r}, like ids[{first}]; expected different ids")
    return tuple(place)
