"""Means of what each step reported since the last log line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class LogWindow:
    """Collects scalars step by step; :meth:`take` gives their means and starts anew.

    Example:
        >>> window = LogWindow()
        >>> window.add({"loss": 1.0}); window.add({"loss": 3.0}); window.take()
        {'loss': 2.0}
    """

    def __init__(self) -> None:
        self._sums: dict[str, list[float]] = {}
        self._last: dict[str, float] = {}

    def add(self, values: Mapping[str, float]) -> None:
        """One step's values; NaN (e.g. the cosine of a zero vector) is left out of the mean."""
        for name, value in values.items():
            total = self._sums.setdefault(name, [0.0, 0])
            if not math.isnan(value):
                total[0] += value
                total[1] += 1

    def set(self, values: Mapping[str, float]) -> None:
        """Values that are measured at logging steps alone."""
        self._last.update(values)

    def take(self) -> dict[str, float]:
        """Means since the last call, and the values set meanwhile."""
        means = {name: total / count for name, (total, count) in self._sums.items() if count}
        means |= self._last
        self._sums, self._last = {}, {}
        return means

    def state(self) -> dict[str, Any]:
        """JSON values to be stored in a checkpoint."""
        return {"sums": self._sums, "last": self._last}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` gave."""
        self._sums = {name: list(total) for name, total in state["sums"].items()}
        self._last = dict(state["last"])
