"""What a report is made from: the stored predictions of a few models on the same items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from calmtune.predictions import Prediction, Predictions
from calmtune.report.scaling import SCALINGS, Scaling, TemperatureFit, VectorFit, vector_fault, widest

Shift = Literal["ID", "OOD"]
Texts = Mapping[str, tuple[str, Sequence[str]]]


@dataclass(frozen=True)
class Variant:
    """One model: what it said on its calibration split and on each test domain.

    Args:
        name: how it is called in every table, e.g. ``"base"`` or ``"tuned"``.
        calibration: the split on which temperature and vector scaling are fitted; no item of it may be a test item.
        tests: predictions by test domain; every variant must have said something about the same items.
    """

    name: str
    calibration: Predictions
    tests: Mapping[str, Predictions]

    @property
    def has_adjusted(self) -> bool:
        """Whether the calibration split and every test domain carry adjusted scores."""
        return self.calibration.has_adjusted and all(one.has_adjusted for one in self.tests.values())

    @property
    def vector_fault(self) -> str:
        """Why vector scaling is not defined for this variant: a test item has more options than were fitted. Or ""."""
        return vector_fault(self.calibration, ((domain, widest(one)) for domain, one in self.tests.items()))


@dataclass(frozen=True)
class Row:
    """One line of a table: a variant, read raw or adjusted, as it is or under its own post-hoc fit.

    Args:
        variant: the variant's name.
        adjusted: which of its distributions.
        scaling: ``"TS"`` temperature, ``"VS"`` vector scaling, ``"none"`` neither.
        label: how it is called in every table.
    """

    variant: str
    adjusted: bool = False
    scaling: Scaling = "none"
    label: str = ""

    @property
    def scaled(self) -> bool:
        """Whether a post-hoc fit is applied."""
        return self.scaling != "none"


@dataclass(frozen=True)
class Comparison:
    """Everything a report shows, before anything is computed. The first variant is what the others are compared with.

    Args:
        variants: models in the order of the table; the last one is the one the report is about.
        shifts: ``"ID"`` or ``"OOD"`` for each test domain, in the order of the columns.
        fit_temperature: takes logits [N, K] (absent options -inf) and labels [N]; ``TemperatureScaler().fit`` is meant.
        fit_vector: the same for vector scaling, ``VectorScaler().fit``; None leaves its rows out.
        training_log: the trainer's log history; records may lack keys.
        settings: the resolved configuration, JSON values only.
        decision: as :func:`calmtune.report.selection.decide` records it; None lets the report decide. Records without
            ``scaling`` (older runs) are read by their temperature.
        texts: question and options by item id, for the list of worst items; ids without a text are shown by id alone.
        title: the page's title.

    Raises:
        ValueError: no variant or domain, repeated names, predictions missing, items or labels that differ between
            variants, or a test item that is also a calibration item.
    """

    variants: Sequence[Variant]
    shifts: Mapping[str, Shift]
    fit_temperature: TemperatureFit
    fit_vector: VectorFit | None = None
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
        vector = self.fit_vector is not None
        return tuple(row for variant in self.variants for row in rows_of(variant, vector=vector))

    @property
    def left_out(self) -> dict[str, str]:
        """Variants without rows of vector scaling, and why, where these were asked for."""
        if self.fit_vector is None:
            return {}
        return {variant.name: variant.vector_fault for variant in self.variants if variant.vector_fault}

    def variant(self, name: str) -> Variant:
        """The variant of that name."""
        for variant in self.variants:
            if variant.name == name:
                return variant
        raise ValueError(f"no variant {name!r}; there are {[variant.name for variant in self.variants]}")

    def aligned(self, name: str, domain: str) -> Predictions:
        """A variant's predictions on one domain, in the order in which the first variant has the items."""
        return align(self.variant(name).tests[domain], self.variants[0].tests[domain].ids)


def rows_of(variant: Variant, *, vector: bool = True) -> tuple[Row, ...]:
    """The rows of one variant; without those of vector scaling where it is not defined, or not wanted.

    >>> item = Prediction("a", "d", 0, (1.0, 0.0))
    >>> [row.label for row in rows_of(Variant("base", Predictions((item,)), {}))]
    ['base', 'base + TS', 'base + VS']
    """
    kinds = ((" raw", False), (" adjusted", True)) if variant.has_adjusted else (("", False),)
    scalings = SCALINGS if vector and not variant.vector_fault else SCALINGS[:2]
    return tuple(
        Row(variant.name, adjusted, scaling, variant.name + kind + ("" if scaling == "none" else f" + {scaling}"))
        for kind, adjusted in kinds
        for scaling in scalings
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
