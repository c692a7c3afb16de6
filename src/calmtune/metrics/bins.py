"""Which bin a confidence belongs to.

Invariant: every item lies in exactly one bin, and confidences that are the same number share one, however they were
computed.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .checks import Floats, check_count

Binning = Literal["width", "mass"]


class Bins(NamedTuple):
    """The bin of each item, and the bins' edges."""

    item: NDArray[np.intp]
    lower: Floats
    upper: Floats


def edge_tolerance(dtype: np.dtype[np.generic]) -> float:
    """How far below an edge a confidence of this dtype still counts as lying on it.

    The k/m confidences of counting (3 of 10 samples agree) often lie exactly on an edge, and 0.1 + 0.2, 0.3 and
    float32(0.3) must not part there. Adding 1/m up in float32 errs by up to 1.4e-6 for m <= 100, a float32 stored as
    float64 by 3e-8. Powers of two, so that no k/m with a round m lies on the displaced edge itself.

    Returns:
        2^-19 for float32, 2^-11 (one rounding) for float16, else 2^-23.

    Example:
        >>> edge_tolerance(np.dtype("float64")) == 2**-23
        True
    """
    return {"float32": 2.0**-19, "float16": 2.0**-11}.get(dtype.name, 2.0**-23)


def assign_bins(confidence: Floats, tolerance: float, n_bins: int, binning: Binning) -> Bins:
    """Put each confidence into one bin.

    ``width``: M bins [lo, hi) of width 1/M, the last one closed; all M are returned. ``mass``: cuts at equal ranks,
    each moved to the nearer end of its run of tied confidences, so that ties stay together whatever the order; empty
    bins are not returned.

    Args:
        confidence: float64 [N] in [0, 1], checked.
        tolerance: see :func:`edge_tolerance`.
        n_bins: M >= 1; may exceed N.
        binning: ``"width"`` or ``"mass"``.

    Raises:
        ValueError: another ``binning``, or ``n_bins`` below 1.
    """
    n_bins = check_count(n_bins, "n_bins")
    if binning == "width":
        scaled = confidence + tolerance
        scaled *= n_bins
        index = scaled.astype(np.intp)
        np.minimum(index, n_bins - 1, out=index)
        edges = np.arange(n_bins + 1) / n_bins
        return Bins(index, edges[:-1], edges[1:])
    if binning == "mass":
        return _equal_mass(confidence, tolerance, n_bins)
    raise ValueError(f"binning: expected 'width' or 'mass', got {binning!r}")


def _equal_mass(confidence: Floats, tolerance: float, n_bins: int) -> Bins:
    n = len(confidence)
    order = np.argsort(confidence, kind="stable")
    ranked = confidence[order]
    cuts = np.arange(1, n_bins) * n // n_bins
    value = ranked[cuts]
    before = np.searchsorted(ranked, value - tolerance, side="left")
    after = np.searchsorted(ranked, value + tolerance, side="right")
    moved = np.where(cuts - before <= after - cuts, before, after)
    starts = np.unique(np.concatenate(([0], moved[moved < n])))
    sizes = np.diff(np.append(starts, n))
    index = np.empty(n, dtype=np.intp)
    index[order] = np.repeat(np.arange(len(starts)), sizes)
    return Bins(index, ranked[starts], ranked[starts + sizes - 1])
