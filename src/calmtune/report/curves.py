"""How training went: the trainer's log as small panels that share the step axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calmtune.report.figures import ACCENT, INK, MUTED, WARM, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Series = tuple[tuple[float, ...], tuple[float, ...]]

# title, unit, {label: key of the log}, (minimum, mean, maximum) keys of a band
_PANELS: tuple[tuple[str, str, dict[str, str], tuple[str, str, str] | None], ...] = (
    ("Training loss", "nats", {"loss": "loss", "lower loss g": "lower_loss"}, None),
    ("Held-out entropy", "nats", {"adjusted": "upper_entropy", "raw": "upper_entropy_raw"}, None),
    ("Vocabulary entropy", "nats", {"token entropy": "token_entropy"}, None),
    ("Multiplier λ", "", {"λ": "multiplier"}, None),
    ("Cosine of ∇f and ∇q", "", {"cosine": "cosine"}, None),
    ("Residual q", "nats", {"q": "residual"}, None),
    ("Gradient norms", "", {"lower": "lower_norm", "upper": "upper_norm"}, None),
    ("Temperature τ", "", {}, ("tau_min", "tau_mean", "tau_max")),
    ("Logit shift l", "", {}, ("shift_min", "shift_mean", "shift_max")),
    ("Learning rate", "", {"learning rate": "learning_rate"}, None),
)


@dataclass(frozen=True)
class Panel:
    """One small chart: lines by label, or a band from minimum to maximum with the mean in it."""

    title: str
    unit: str
    lines: Mapping[str, Series]
    band: tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...], tuple[float, ...]] | None = None


def curve_panels(log: Sequence[Mapping[str, Any]]) -> tuple[Panel, ...]:
    """The panels for which the log has at least one finite value.

    A step logged twice (after a resume) counts as logged last; records without a step have no place on the axis and are
    skipped.

    >>> [panel.title for panel in curve_panels([{"step": 1, "loss": 2.0}, {"step": 2, "cosine": 0.1}])]
    ['Training loss', 'Cosine of ∇f and ∇q']
    """
    panels = []
    for title, unit, keys, band_keys in _PANELS:
        lines = {label: series for label, key in keys.items() if (series := _series(log, (key,))) is not None}
        values = _series(log, band_keys) if band_keys else None
        if lines or values:
            panels.append(Panel(title, unit, {k: (v[0], v[1]) for k, v in lines.items()}, values))
    return tuple(panels)


def draw_panel(axes: Axes, panel: Panel) -> None:
    """Draw one panel into the axes."""
    for (label, (steps, values)), colour in zip(panel.lines.items(), (ACCENT, WARM, MUTED), strict=False):
        axes.plot(
            steps, values, color=colour, linewidth=1.2, marker="o" if len(steps) < 2 else "", markersize=3, label=label
        )
    if panel.band is not None:
        steps, low, mean, high = panel.band
        axes.fill_between(steps, low, high, color=ACCENT, alpha=0.18, linewidth=0, label="min to max")
        axes.plot(
            steps, mean, color=ACCENT, linewidth=1.2, marker="o" if len(steps) < 2 else "", markersize=3, label="mean"
        )
    axes.set_title(f"{panel.title} ({panel.unit})" if panel.unit else panel.title)
    axes.grid(True, axis="y")
    axes.set_xlabel("step")
    axes.margins(x=0.02)
    if len(panel.lines) > 1 or panel.band is not None:
        # above the axes, on the title's line: inside it would lie on a curve sooner or later
        axes.legend(
            frameon=False, fontsize=7, labelcolor=INK, handlelength=1.2, ncols=3, columnspacing=1.2,
            loc="lower right", bbox_to_anchor=(1.0, 1.0), borderpad=0, borderaxespad=0.4,
        )  # fmt: skip


def plot_panel(panel: Panel) -> Figure:
    """One panel as its own figure."""
    figure = new_figure(3.5, 2.1)
    draw_panel(figure.subplots(), panel)
    return figure


def plot_curves(panels: Sequence[Panel]) -> Figure:
    """All panels as one figure, three in a row.

    Raises:
        ValueError: no panels.
    """
    if not panels:
        raise ValueError("expected at least one panel; a log without known keys has none, so draw nothing for it")
    columns = min(3, len(panels))
    lines = math.ceil(len(panels) / columns)
    figure = new_figure(3.5 * columns, 2.1 * lines)
    grid = figure.subplots(lines, columns, squeeze=False).flat
    for axes, panel in zip(grid, panels, strict=False):
        draw_panel(axes, panel)
    for axes in list(figure.axes)[len(panels) :]:
        axes.set_axis_off()
    return figure


def _series(log: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> Any:
    """(steps, values of each key) over the records that have a step and every key as a finite number, or None."""
    found: dict[float, tuple[float, ...]] = {}
    for record in log:
        values = [record.get(key, math.nan) for key in ("step", *keys)]
        if all(isinstance(value, int | float) and math.isfinite(value) for value in values):
            step, *rest = map(float, values)
            found[step] = tuple(rest)
    if not found:
        return None
    steps = tuple(sorted(found))
    return (steps, *(tuple(found[step][place] for step in steps) for place in range(len(keys))))
