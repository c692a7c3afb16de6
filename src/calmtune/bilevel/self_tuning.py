"""A barrier that tunes itself: eta follows the overconfidence gap of labelled held-out items.

gap = mean confidence - accuracy. Overconfident: eta falls, and the entropy gets more of the joint direction.
Underconfident: eta rises, and the task gets it. Two things make that sound. A gap measured on few items is noise for
the most part, so each group's gap goes through a Kalman filter that knows the standard error. And alpha answers to eta
with a delay (eta sets how fast tau moves, not where it is), which a controller that only integrates turns into an
oscillation; so eta also answers to the change of the gap, at once:

    log eta  <-  log eta - integral * gap - proportional * (gap - previous gap),    low <= eta <= high

That control has one side: a large eta keeps tau from growing, and nothing brings it down again. :class:`PullController`
has two: it leaves eta alone and multiplies the upper loss by a pull that has the sign of the gap, so that entropy is
taken back where there is too much of it.

    pull  =  clip(gain * gap, -1, 1)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PRIOR_DEVIATION = 0.5  # of a gap before anything was measured; a gap lies in [-1, 1]


@dataclass
class GapFilter:
    """A local-level Kalman filter: the gap drifts as a random walk and is measured with a known standard error.

    Args:
        drift: standard deviation of the walk between two measurements.

    Attributes:
        value: the filtered gap. variance: of that.

    Example:
        >>> smooth = GapFilter(drift=0.0)
        >>> _ = smooth.update(0.2, 0.1), smooth.update(0.4, 0.1)
        >>> round(smooth.value, 3)  # without drift: the mean, drawn a little to 0 by the prior
        0.294

    Source: Durbin and Koopman (2012), section 2.2.
    """

    drift: float = 0.05
    value: float = 0.0
    variance: float = PRIOR_DEVIATION**2

    def update(self, gap: float, standard_error: float) -> float:
        """Take in one measurement; returns the filtered gap."""
        self.wait()
        weight = self.variance / (self.variance + standard_error**2)
        self.value += weight * (gap - self.value)
        self.variance *= 1.0 - weight
        return self.value

    def wait(self) -> None:
        """Time has gone on without a measurement: the gap is known less well."""
        self.variance += self.drift**2


@dataclass
class _WorstGap:
    """The filtered gaps by group, and which is worst."""

    drift: float
    filters: dict[str, GapFilter] = field(default_factory=dict)

    def update(self, gaps: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
        """Take in measurements; returns the worst group's gap and that group's own change since it was last looked at.

        That another group is the worst now, or is seen for the first time, is no movement.

        Raises:
            ValueError: no group. FloatingPointError: a gap or error that is not finite.
        """
        if not gaps:
            raise ValueError("expected the gap of at least one group, got none")
        for group, (gap, error) in gaps.items():
            if not (math.isfinite(gap) and math.isfinite(error)):
                raise FloatingPointError(f"the overconfidence gap of {group!r} is {gap}, its standard error {error}")
        before = {group: one.value for group, one in self.filters.items()}
        for group in self.filters.keys() - gaps.keys():
            self.filters[group].wait()
        for group, (gap, error) in gaps.items():
            self.filters.setdefault(group, GapFilter(self.drift)).update(gap, error)
        worst = max(self.filters, key=lambda group: self.filters[group].value)
        found = self.filters[worst].value
        return found, found - before.get(worst, found)

    def state(self) -> dict[str, list[float]]:
        """JSON values that :meth:`load` takes back."""
        return {group: [one.value, one.variance] for group, one in self.filters.items()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` gave."""
        self.filters = {group: GapFilter(self.drift, *values) for group, values in state.items()}


@dataclass
class EtaController:
    """eta, moved by the filtered gap of the group that is most overconfident.

    Args:
        start: the first eta. low, high: its bounds. eta is the share of the task's own progress that a step must keep,
            so a low bound under .5 lets the gap be closed by forgetting.
        proportional: answer to a change of the gap. integral: answer to the gap, an update.
        drift: of the filters, see :class:`GapFilter`.

    Raises:
        ValueError: bounds that do not hold the start, or a negative gain.

    Example:
        >>> controller = EtaController()
        >>> controller.update({"all": (0.3, 0.02)}) < 1.0 < EtaController().update({"all": (-0.3, 0.02)})
        True
    """

    start: float = 1.0
    low: float = 0.5
    high: float = 100.0
    proportional: float = 10.0
    integral: float = 1.0
    drift: float = 0.05
    eta: float = field(init=False)
    gap: float | None = field(init=False, default=None)
    worst: _WorstGap = field(init=False, repr=False)

    # the upper loss counts in full, and a large eta slows its pull where it would otherwise speed up the task's
    pull = 1.0
    normalise = True

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.start <= self.high < math.inf:
            raise ValueError(f"expected 0 < low <= start <= high, got {self.low}, {self.start}, {self.high}")
        if min(self.proportional, self.integral, self.drift) < 0:
            raise ValueError(
                f"expected gains >= 0, got {self.proportional}, {self.integral}; drift >= 0, got {self.drift}"
            )
        self.eta, self.worst = float(self.start), _WorstGap(self.drift)

    def update(self, gaps: Mapping[str, tuple[float, float]]) -> float:
        """The new eta.

        Args:
            gaps: by group, e.g. the domain: mean adjusted confidence minus accuracy in [-1, 1], and its standard error
                >= 0.

        Raises:
            ValueError: no group. FloatingPointError: a gap or error that is not finite.
        """
        self.gap, change = self.worst.update(gaps)
        moved = math.log(self.eta) - self.integral * self.gap - self.proportional * change
        self.eta = min(max(math.exp(min(moved, 700.0)), self.low), self.high)
        return self.eta

    def state(self) -> dict[str, Any]:
        """JSON values that :meth:`load` takes back."""
        return {"eta": self.eta, "gap": self.gap, "filters": self.worst.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` gave."""
        self.eta, self.gap = float(state["eta"]), state["gap"]
        self.worst.load(state["filters"])


@dataclass
class PullController:
    """How strongly, and which way, the upper loss pulls: clip(gain * gap, -1, 1) of the most overconfident group.

    Overconfident: the entropy is raised as ever, less the nearer the gap is to 0. Underconfident: it is lowered. There
    is nothing to integrate, so nothing saturates, and where it ends does not depend on where it began.

    Args:
        eta: of BOME's barrier, fixed. gain: pull per gap. drift: of the filters, see :class:`GapFilter`.

    Attributes:
        pull: factor of the upper loss in [-1, 1]; 1 before anything was measured. gap: filtered.

    Raises:
        ValueError: a setting that cannot be meant.

    Example:
        >>> controller = PullController(gain=10.0)
        >>> controller.update({"all": (0.3, 0.02)}), controller.update({"all": (-0.2, 0.02)}) < 0
        (1.0, True)
    """

    eta: float = 1.0
    gain: float = 10.0
    drift: float = 0.05
    pull: float = field(init=False, default=1.0)
    gap: float | None = field(init=False, default=None)
    worst: _WorstGap = field(init=False, repr=False)

    normalise = False

    def __post_init__(self) -> None:
        if not (0 < self.eta < math.inf and 0 < self.gain < math.inf and self.drift >= 0):
            raise ValueError(f"expected eta > 0, gain > 0, drift >= 0, got {self.eta}, {self.gain}, {self.drift}")
        self.worst = _WorstGap(self.drift)

    def update(self, gaps: Mapping[str, tuple[float, float]]) -> float:
        """The new pull; arguments and errors as of :meth:`EtaController.update`."""
        self.gap, _ = self.worst.update(gaps)
        self.pull = min(max(self.gain * self.gap, -1.0), 1.0)
        return self.pull

    def state(self) -> dict[str, Any]:
        """JSON values that :meth:`load` takes back."""
        return {"pull": self.pull, "gap": self.gap, "filters": self.worst.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state` gave."""
        self.pull, self.gap = float(state["pull"]), state["gap"]
        self.worst.load(state["filters"])
