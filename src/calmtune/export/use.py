"""How a trained model is used: which distribution, and which scaling after it, as one object that can be applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from calmtune.predictions import Predictions
from calmtune.report.scaling import SCALINGS, Fitted, Scaling, Vector

LABELS = tuple(
    f"{distribution}{'' if scaling == 'none' else ' + ' + scaling}"
    for distribution in ("raw", "adjusted")
    for scaling in SCALINGS
)


@dataclass(frozen=True)
class Use:
    """A way to use a model.

    Args:
        adjusted: with alpha = (l, tau), or without.
        scaling: what comes after it: ``none``, ``TS`` (one temperature) or ``VS`` (a scale and a shift an option).
        temperature: divides the scores; 1 without a temperature.
        vector: for VS.

    Raises:
        ValueError: a temperature that is not above 0, or vector scaling without its vector.
    """

    adjusted: bool
    scaling: Scaling
    temperature: float = 1.0
    vector: Vector | None = None

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature: expected a number above 0, got {self.temperature}")
        if (self.scaling == "VS") != (self.vector is not None):
            raise ValueError(
                f"scaling {self.scaling!r} {'needs' if self.scaling == 'VS' else 'has no'} scale and shift"
            )

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Use:
        """From ``decision`` in calibration.json.

        >>> Use.from_record({"distribution": "adjusted", "scaling": "TS", "temperature": 2.0}).label
        'adjusted + TS'
        """
        temperature = float(record.get("temperature") or 1.0)
        # records from before vector scaling tell a scaling by its temperature alone
        scaling: Any = record.get("scaling") or ("none" if temperature == 1.0 else "TS")
        vector = Vector(tuple(record["scale"]), tuple(record["shift"])) if scaling == "VS" else None
        return cls(record["distribution"] == "adjusted", scaling, temperature, vector)

    @classmethod
    def fitted(cls, adjusted: bool, scaling: Scaling, fitted: Fitted) -> Use:
        """From a fit."""
        return cls(adjusted, scaling, fitted.temperature, fitted.vector)

    @property
    def label(self) -> str:
        """Its name in the tables, e.g. ``"raw + TS"``."""
        return ("adjusted" if self.adjusted else "raw") + ("" if self.scaling == "none" else f" + {self.scaling}")

    def apply(self, predictions: Predictions) -> Predictions:
        """The same items with the final scores in the place of the raw ones, and without adjusted ones.

        >>> from calmtune.predictions import Prediction
        >>> one = Predictions((Prediction("a", "d", 0, (2.0, 0.0), (4.0, 0.0)),))
        >>> Use(True, "TS", 2.0).apply(one)[0].scores
        (2.0, 0.0)
        """
        if self.vector is not None:
            return self.vector.apply(predictions, adjusted=self.adjusted)
        items = []
        for item in predictions:
            scores = item.adjusted if self.adjusted else item.scores
            if scores is None:
                raise ValueError(f"item {item.id!r} has no adjusted scores; it was scored without an adjustment")
            scaled = tuple(value / self.temperature for value in scores)
            items.append(replace(item, scores=scaled, adjusted=None))
        return replace(predictions, items=tuple(items))

    def to_record(self) -> dict[str, Any]:
        """JSON values, readable by :meth:`from_record`."""
        return {
            "distribution": "adjusted" if self.adjusted else "raw",
            "scaling": self.scaling,
            **Fitted(self.temperature, self.vector).to_record(),
        }


def parse_label(text: str) -> tuple[bool, Scaling]:
    """Distribution and scaling of a label as a user writes it.

    Raises:
        ValueError: no such label.

    >>> parse_label("Adjusted+ts")
    (True, 'TS')
    """
    wanted = "".join(text.split()).lower()
    for label in LABELS:
        if label.replace(" ", "").lower() == wanted:
            scaling: Any = label.partition(" + ")[2] or "none"
            return label.startswith("adjusted"), scaling
    raise ValueError(f"--use: expected one of {', '.join(LABELS)}; got {text!r}")
