"""What a report is made from: the stored predictions of a few models on the same items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from calmtune.predictions import Prediction, Predictions

Shift = Literal["ID", "OOD"]
Texts = Mapping[str, tuple[str, Sequence[str]]]


class FittedTemperature(Protocol):
    """What a temperature fit must tell: the temperature, and whether the data determine it."""

    temperature: float
    identified: bool


TemperatureFit = Callable[[NDArray[np.float64], NDArray[np.int64]], FittedTemperature]


@dataclass(frozen=True)
class Variant:
    """One model: what it said on its calibration split and on each test domain.

    Args:
        name: how it is called in every table, e.g. ``"base"`` or ``"tuned"``.
        calibration: the split on which the temperature is fitted; no item of it may be a test item.
        tests: predictions by test domain; every variant must have said something about the same items.
    """

    name: str
    calibration: Predictions
    tests: Mapping[str, Predictions]

    @property
    def has_adjusted(self) -> bool:
        """Whether the calibration split and every test domain carry adjusted scores."""
        return self.calibration.has_adjusted and all(one.has_adjusted for one in self.tests.values())


@dataclass(frozen=True)
class Row:
    """One line of a table: a variant, read raw or adjusted, at temperature 1 or at its own fitted temperature."""

    variant: str
    adjusted: bool = False
    scaled: bool = False
    label: str = ""


@dataclass(frozen=True)
class Comparison:
    """Everything a report shows, before anything is computed. The first variant is what the others are compared with.

    Args:
        variants: models in the order of the table; the last one is the one the report is about.
        shifts: ``"ID"`` or ``"OOD"`` for each test domain, in the order of the columns.
        fit_temperature: takes logits [N, K] (absent options -inf) and labels [N]; ``TemperatureScaler().fit`` is meant.
        training_log: the trainer's log history; records may lack keys.
        settings: the resolved configuration, JSON values only.
        decision: ``{"distribution": "raw" | "adjusted", "temperature": float}`` as chosen on the calibration split;
            None lets the report choose by the lowest calibration NLL.
        texts: question and options by item id, for the list of worst items; ids without a text are shown by id alone.
        title: the page's title.

    Raises:
        ValueError: no variant or domain, repeated names, predictions missing, items or labels that differ between
            variants, or a test item that is also a calibration item.
    """

    variants: Sequence[Variant]
    shifts: Mapping[str, Shift]
    fit_temperature: TemperatureFit
    training_log: Sequence[Mapping[str, Any]] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    decision: Mapping[str, Any] | None = None
    texts: Texts = field(default_factory=dict)
    title: str = "Calibration report"

    def __post_init__(self) -> None:
        if not self.variants:
            raise ValueError("expected at least one variant, got none; give the base model's predictions first")
        names = [variant.name for variant in self.variants]
        if len(set(names)) != len(names):
            raise ValueError(f"variant names must differ, got {names}")
        if not self.shifts:
            raise ValueError("expected at least one test domain in shifts, got none")
        for domain, shift in self.shifts.items():
            if shift not in ("ID", "OOD"):
                raise ValueError(f"domain {domain!r}: shift must be 'ID' or 'OOD', got {shift!r}")
        for variant in self.variants:
            _check_variant(variant, self.variants[0], self.shifts)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The lines of the table, in order: each variant raw and scaled, then adjusted and scaled where it can be."""
        return tuple(row for variant in self.variants for row in rows_of(variant))

    def variant(self, name: str) -> Variant:
        """The variant of that name."""
        for variant in self.variants:
            if variant.name == name:
                return variant
        raise ValueError(f"no variant {name!r}; there are {[variant.name for variant in self.variants]}")

    def aligned(self, name: str, domain: str) -> Predictions:
        """A variant's predictions on one domain, in the order in which the first variant has the items."""
        return align(self.variant(name).tests[domain], self.variants[0].tests[domain].ids)


def rows_of(variant: Variant) -> tuple[Row, ...]:
    """The rows of one variant.

    >>> item = Prediction("a", "d", 0, (1.0, 0.0))
    >>> [row.label for row in rows_of(Variant("base", Predictions((item,)), {}))]
    ['base', 'base + TS']
    """
    name = variant.name
    if not variant.has_adjusted:
        return Row(name, label=name), Row(name, scaled=True, label=f"{name} + TS")
    return tuple(
        Row(name, adjusted, scaled, f"{name} {kind}{' + TS' if scaled else ''}")
        for kind, adjusted in (("raw", False), ("adjusted", True))
        for scaled in (False, True)
    )


def align(predictions: Predictions, ids: Sequence[str]) -> Predictions:
    """The same predictions in the order of ``ids``, which must be the same set."""
    by_id: dict[str, Prediction] = {item.id: item for item in predictions}
    return replace(predictions, items=tuple(by_id[key] for key in ids))


def _check_variant(variant: Variant, first: Variant, shifts: Mapping[str, Shift]) -> None:
    if not len(variant.calibration):
        raise ValueError(f"variant {variant.name!r}: the calibration split is empty; the temperature needs items")
    calibration = set(variant.calibration.ids)
    for domain in shifts:
        if domain not in variant.tests or not len(variant.tests[domain]):
            raise ValueError(
                f"variant {variant.name!r} has no predictions on {domain!r}; it has {sorted(variant.tests)}"
            )
        mine, theirs = variant.tests[domain], first.tests[domain]
        where = f"variant {variant.name!r}, domain {domain!r}"
        both = sorted(calibration & set(mine.ids))
        if both:
            raise ValueError(
                f"{where}: {len(both)} test items are also calibration items, e.g. {both[0]!r}; split them first"
            )
        apart = sorted(set(mine.ids) ^ set(theirs.ids))
        if apart:
            raise ValueError(
                f"{where}: {len(apart)} items are not shared with {first.name!r}, e.g. {apart[0]!r}; "
                "a paired comparison needs the same items, score the missing ones first"
            )
        for item, other in zip(align(mine, theirs.ids), theirs, strict=True):
            if item.label != other.label or len(item.scores) != len(other.scores):
                raise ValueError(
                    f"{where}, item {item.id!r}: label {item.label} of {len(item.scores)} options, but "
                    f"{first.name!r} has "
                    f"label {other.label} of {len(other.scores)}"
                )
