"""Two models on the same items: do they say the same? The figures, the limits, and what is over a limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from calmtune.predictions import Predictions
from calmtune.report.measures import MEASURES, estimate
from calmtune.report.numbers import Estimate, with_interval
from calmtune.report.readings import read

SHOWN = ("accuracy", "conf_ece", "nll", "confidence")
FORMAT = "calmtune-check/1"


@dataclass(frozen=True)
class Limits:
    """How far the second model may be from the first.

    Args:
        logit: largest difference of an option's score, after each item's mean is taken out (which changes no softmax);
            None sets no limit.
        conf_ece: difference of conf-ECE, either way.
        accuracy: difference of accuracy, either way.
    """

    logit: float | None
    conf_ece: float = 0.02
    accuracy: float = 0.02

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not value >= 0:
                raise ValueError(f"the limit of {name}: expected a number of at least 0, got {value}")


@dataclass(frozen=True)
class Agreement:
    """What two models say about the same items.

    Args:
        names: of the first (the reference) and the second model.
        figures: by measure, the estimate of each.
        logit: largest difference of centred option scores, and the item it is at.
        probability: largest difference of an option's probability, and the item.
        changed: items with another answer.
        n: items.
    """

    names: tuple[str, str]
    figures: Mapping[str, tuple[Estimate, Estimate]]
    logit: tuple[float, str]
    probability: tuple[float, str]
    changed: int
    n: int

    def faults(self, limits: Limits) -> list[str]:
        """What is over a limit, in words."""
        found = []
        if limits.logit is not None and not self.logit[0] <= limits.logit:
            found.append(
                f"the largest logit difference is {self.logit[0]:.3g} (item {self.logit[1]!r}), more than "
                f"{limits.logit:g}"
            )
        for key in ("conf_ece", "accuracy"):
            first, second = (one.value for one in self.figures[key])
            limit = getattr(limits, key)
            if not abs(second - first) <= limit:
                found.append(f"{MEASURES[key].title} went from {first:.3f} to {second:.3f}, by more than {limit:g}")
        return found

    def lines(self, limits: Limits) -> list[str]:
        """A table for a terminal."""
        rows = [("", *self.names, "limit")]
        for key in SHOWN:
            limit = getattr(limits, key, None)
            pair = (with_interval(one) for one in self.figures[key])
            rows.append((MEASURES[key].title, *pair, "" if limit is None else f"±{limit:g}"))
        limit_text = "" if limits.logit is None else f"{limits.logit:g}"
        rows.append(("largest logit difference", "", f"{self.logit[0]:.2e}", limit_text))
        rows.append(("largest probability difference", "", f"{self.probability[0]:.2e}", ""))
        rows.append(("other answers", "", f"{self.changed} of {self.n}", ""))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return [*table, f"n = {self.n} items; intervals are 95 %, over items"]

    def to_record(self, limits: Limits) -> dict[str, Any]:
        """JSON values."""
        return {
            "format": FORMAT,
            "reference": self.names[0],
            "model": self.names[1],
            "n": self.n,
            "figures": {
                key: {"reference": asdict(pair[0]), "model": asdict(pair[1])} for key, pair in self.figures.items()
            },
            "largest_logit_difference": {"value": self.logit[0], "item": self.logit[1]},
            "largest_probability_difference": {"value": self.probability[0], "item": self.probability[1]},
            "other_answers": self.changed,
            "limits": asdict(limits),
            "faults": self.faults(limits),
        }


def compare(
    first: Predictions,
    second: Predictions,
    names: tuple[str, str],
    *,
    n_bins: int = 10,
    n_resamples: int = 1000,
    seed: int = 0,
) -> Agreement:
    """Compare the scores of two models; both hold what the models say as they are used, in ``scores``.

    Args:
        first: the reference. second: the same items in the same order, with the same numbers of options.

    Raises:
        ValueError: other items.

    >>> from calmtune.predictions import Prediction
    >>> one, two = (Predictions((Prediction("a", "d", 0, s), Prediction("b", "d", 1, s))) for s in ((1., 0.), (5., 4.)))
    >>> compare(one, two, ("here", "there"), n_resamples=10).logit[0]
    0.0
    """
    if first.ids != second.ids:
        raise ValueError(f"expected the same items in the same order, got {len(first)} and {len(second)} items")
    readings = [read(one, adjusted=False) for one in (first, second)]
    if not np.array_equal(readings[0].n_options, readings[1].n_options):
        raise ValueError("expected the same number of options for each item")
    how: Any = {"n_bins": n_bins, "seed": seed, "n_resamples": n_resamples}
    figures = {key: tuple(estimate(MEASURES[key], reading, **how) for reading in readings) for key in SHOWN}
    return Agreement(
        names=names,
        figures=figures,  # type: ignore[arg-type]
        logit=_largest([_centred(one) for one in (first, second)], first.ids),
        probability=_largest([reading.probabilities for reading in readings], first.ids),
        changed=int((readings[0].choices != readings[1].choices).sum()),
        n=len(first),
    )


def _centred(predictions: Predictions) -> np.ndarray[Any, Any]:
    """Scores less their mean over the item's own options, float64 [N, K], 0 where absent."""
    z = predictions.logits()
    present = np.isfinite(z)
    z = np.where(present, z, 0.0)
    return np.where(present, z - z.sum(axis=1, keepdims=True) / present.sum(axis=1, keepdims=True), 0.0)


def _largest(pair: Sequence[Any], ids: Sequence[str]) -> tuple[float, str]:
    apart = np.abs(pair[0] - pair[1]).max(axis=1)
    place = int(apart.argmax())
    return float(apart[place]), ids[place]
