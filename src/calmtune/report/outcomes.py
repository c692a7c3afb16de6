"""The calibration of predictions that were made elsewhere, a column a domain: what can be said without a model.

There is no calibration split and no second model, so there is no temperature, no choice and no comparison; and where
only confidences are known, no measure of the whole distribution.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from calmtune import metrics
from calmtune.metrics import ReliabilityTable
from calmtune.report.measures import MEASURES, SLOW_SHARE, estimate
from calmtune.report.numbers import Estimate
from calmtune.report.summary import to_plain

ALL = "all domains"


class OutcomeSet(Protocol):
    """What is known of the predictions on one domain; ``calmtune.external.Outcomes`` is meant."""

    domain: str
    ids: tuple[str, ...]
    confidence: NDArray[np.float64]
    correct: NDArray[np.bool_] | None
    probabilities: NDArray[np.float64] | None
    labels: NDArray[np.int64] | None
    n_options: NDArray[np.int64] | None
    ties: int
    notes: tuple[str, ...]

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class OutcomeColumn:
    """One domain, or all of them together.

    Args:
        name: the domain's, or ``"all domains"``.
        n: items. ties: items with several options at the highest probability.
        estimates: the measures that apply, by key.
        null_band: conf-ECE of a perfectly calibrated model with the same confidences: mean, and 95 % band.
        reliability: the table behind the diagram.
    """

    name: str
    n: int
    ties: int
    estimates: Mapping[str, Estimate]
    null_band: Estimate
    reliability: ReliabilityTable


@dataclass(frozen=True)
class OutcomesSummary:
    """The computed report.

    Args:
        title: what it is about.
        columns: domains in order, then all together where there are several.
        notes: what was left out, and why.
        definitions: how every number was found, said once.
    """

    title: str
    columns: tuple[OutcomeColumn, ...]
    notes: tuple[str, ...]
    definitions: Mapping[str, Any]

    @property
    def last(self) -> OutcomeColumn:
        """The column that speaks for the whole."""
        return self.columns[-1]

    def to_json(self) -> dict[str, Any]:
        """JSON values only; NaN becomes null."""
        record = {
            "title": self.title,
            "definitions": self.definitions,
            "notes": self.notes,
            "columns": [asdict(column) for column in self.columns],
        }
        plain: dict[str, Any] = to_plain(record)
        return plain

    def to_text(self) -> str:
        """:meth:`to_json` as text, the same bytes every time."""
        return json.dumps(self.to_json(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


@dataclass(frozen=True)
class _Joined:
    """Arrays of several sets as one, for :func:`calmtune.report.measures.estimate`."""

    confidence: NDArray[np.float64]
    correct: NDArray[np.bool_]
    probabilities: NDArray[np.float64] | None
    labels: NDArray[np.int64] | None
    n_options: NDArray[np.int64] | None
    ties: int

    def __len__(self) -> int:
        return len(self.confidence)


def summarise_outcomes(
    sets: Sequence[OutcomeSet],
    title: str,
    *,
    n_bins: int = 10,
    seed: int = 0,
    n_resamples: int = 1000,
    more: Mapping[str, Any] | None = None,
) -> OutcomesSummary:
    """Compute every number of the report.

    Args:
        sets: one a domain, every item graded.
        title: the page's.
        n_bins, seed, n_resamples: see :func:`calmtune.report.summary.summarise`.
        more: further definitions, e.g. how the predictions were read.

    Raises:
        ValueError: no set, a domain twice, or a set without outcomes.
    """
    if not sets:
        raise ValueError("expected the predictions of at least one domain, got none")
    names = [*(one.domain for one in sets), *([ALL] if len(sets) > 1 else [])]
    if len(set(names)) < len(names):
        raise ValueError(f"domains must differ, got {names}")
    options = {"n_bins": n_bins, "seed": seed, "n_resamples": n_resamples}
    columns = [_column(one.domain, _join([one]), options) for one in sets]
    if len(sets) > 1:
        columns.append(_column(ALL, _join(sets), options))
    notes = tuple(note for one in sets for note in one.notes)
    return OutcomesSummary(title, tuple(columns), notes, _definitions(options, columns) | dict(more or {}))


def _join(sets: Sequence[OutcomeSet]) -> _Joined:
    for one in sets:
        if one.correct is None:
            raise ValueError(f"{one.domain}: nobody says which answers are right; expected a column `correct`")
    whole = all(one.probabilities is not None for one in sets)
    width = max(one.probabilities.shape[1] for one in sets) if whole else 0  # type: ignore[union-attr]
    tables = [np.pad(one.probabilities, ((0, 0), (0, width - one.probabilities.shape[1]))) for one in sets if whole]  # type: ignore[union-attr, arg-type]
    return _Joined(
        confidence=np.concatenate([one.confidence for one in sets]),
        correct=np.concatenate([one.correct for one in sets]),  # type: ignore[arg-type]
        probabilities=np.concatenate(tables) if whole else None,
        labels=np.concatenate([one.labels for one in sets]) if whole else None,  # type: ignore[arg-type]
        n_options=np.concatenate([one.n_options for one in sets]) if whole else None,  # type: ignore[arg-type]
        ties=sum(one.ties for one in sets),
    )


def _column(name: str, joined: _Joined, options: Mapping[str, int]) -> OutcomeColumn:
    band = metrics.null_band(
        joined.confidence,
        n_resamples=options["n_resamples"],
        metric=lambda c, o: metrics.expected_calibration_error(c, o, options["n_bins"]),
        seed=options["seed"],
    )
    return OutcomeColumn(
        name=name,
        n=len(joined),
        ties=joined.ties,
        estimates={
            key: estimate(measure, joined, **options)  # type: ignore[arg-type]
            for key, measure in MEASURES.items()
            if measure.arrays == "outcome" or joined.probabilities is not None
        },
        null_band=Estimate(band.estimate, band.low, band.high, len(joined)),
        reliability=metrics.reliability_table(joined.confidence, joined.correct, options["n_bins"]),
    )


def _definitions(options: Mapping[str, int], columns: Sequence[OutcomeColumn]) -> dict[str, Any]:
    return {
        **options,
        "bin_rule": "equal width, [low, high), last bin closed; mean confidence of the bin, never its centre",
        "confidence": "probability given to the answer that was chosen",
        "interval": "95 % bootstrap over items; BCa for conf-ECE and MCE, percentile for the rest",
        "n_resamples_slow": max(1, options["n_resamples"] // SLOW_SHARE),
        "slow_measures": [
            key for key, one in MEASURES.items() if one.slow and any(key in c.estimates for c in columns)
        ],
        "null_band": "conf-ECE when outcomes are drawn from the confidences: mean and 95 % band",
    }
