"""A row of the table with what its calibration split gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from calmtune.predictions import Predictions
from calmtune.report.comparison import Comparison, Row
from calmtune.report.measures import MEASURES, estimate
from calmtune.report.numbers import Estimate
from calmtune.report.readings import Reading, read
from calmtune.report.scaling import Fitted, Vector, fit_scaling


@dataclass(frozen=True)
class FittedRow:
    """A row with what its calibration split gave.

    Args:
        row: which predictions, and how they are read.
        fitted: its temperature or vector; neither for rows that are not scaled.
        calibration_nll: under that fit, in nats, on the calibration split that it was made on.
    """

    row: Row
    fitted: Fitted
    calibration_nll: Estimate

    @property
    def label(self) -> str:
        """The row's name."""
        return self.row.label

    @property
    def temperature(self) -> float:
        """What divides the scores: 1 where nothing does."""
        return self.fitted.temperature

    @property
    def vector(self) -> Vector | None:
        """Scale and shift by option index, for vector scaling alone."""
        return self.fitted.vector

    @property
    def identified(self) -> bool:
        """False where the data do not determine the fit."""
        return self.fitted.identified

    def read(self, predictions: Predictions) -> Reading:
        """The predictions of this row's variant as this row reads them."""
        return read(predictions, adjusted=self.row.adjusted, temperature=self.temperature, vector=self.vector)

    def to_json(self) -> dict[str, Any]:
        """The row with its fit; no temperature where there is one factor an option."""
        record = self.fitted.to_record() | {"identified": self.identified, "label": self.label}
        if self.vector is not None:
            record["temperature"] = None
        return {"row": asdict(self.row), "calibration_nll": asdict(self.calibration_nll)} | record


def fit_row(row: Row, comparison: Comparison, options: Mapping[str, int]) -> FittedRow:
    """Fit a row on its variant's calibration split.

    Args:
        row: which predictions, and which scaling.
        comparison: holds them, and the fits.
        options: n_bins, seed and n_resamples of the NLL's interval.
    """
    calibration = comparison.variant(row.variant).calibration
    fitted = fit_scaling(
        row.scaling,
        calibration,
        adjusted=row.adjusted,
        fit_temperature=comparison.fit_temperature,
        fit_vector=comparison.fit_vector,
    )
    reading = read(calibration, adjusted=row.adjusted, temperature=fitted.temperature, vector=fitted.vector)
    return FittedRow(row, fitted, estimate(MEASURES["nll"], reading, **options))
