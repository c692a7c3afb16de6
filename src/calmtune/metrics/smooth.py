"""Smooth ECE: a calibration error without bins.

Invariant: smoothing with the reflected Gaussian keeps the total residual and can only shrink its absolute integral, so
the smoothed error falls with the bandwidth and meets the line sigma exactly once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.fft import dct
from scipy.optimize import brentq

from .checks import Floats, check_confidence_and_correct

GRID_CELLS = 8192
"""Cells of the grid on [0, 1]. A bandwidth below one cell (1.2e-4) is not resolved."""

# of minus the second difference on the grid, for the cosines cos(pi k t)
_EIGENVALUES = 2.0 * GRID_CELLS**2 * (1.0 - np.cos(np.pi * np.arange(GRID_CELLS + 1) / GRID_CELLS))


def smooth_ece(confidence: ArrayLike, correct: ArrayLike) -> float:
    """smECE: the bandwidth at which the smoothed calibration error equals the bandwidth.

    With residual r(t) = 1/N sum_i K(t, c_i) (y_i - c_i), K the Gaussian of width sigma reflected at 0 and 1,
    smECE_sigma = integral over [0, 1] of |r(t)| dt, and the value is the only sigma with smECE_sigma = sigma.

    Args:
        confidence: float [N] in [0, 1].
        correct: bool or 0/1 [N].

    Returns:
        A fraction in [0, 1].

    Raises:
        ValueError: see :func:`check_confidence_and_correct`.

    Example:
        >>> round(smooth_ece([0.9] * 10, [1] * 6 + [0] * 4), 6)
        0.3

    Source: Blasiok and Nakkiran (2023), Smooth ECE: principled reliability diagrams via kernel smoothing.
    """
    confidence, correct = check_confidence_and_correct(confidence, correct)
    spectrum = _residual_spectrum(confidence, correct)
    if not spectrum.any():
        return 0.0
    # at sigma = 0 the difference is >= 0 and at sigma = 1 it is <= 0, since |residuals| sum to at most 1
    if _smoothed(spectrum, 1.0) >= 1.0:
        return 1.0
    return float(brentq(lambda sigma: _smoothed(spectrum, sigma) - sigma, 0.0, 1.0, xtol=1e-12, rtol=1e-12))


def smooth_ece_at(confidence: ArrayLike, correct: ArrayLike, sigma: float) -> float:
    """Smoothed calibration error at a given bandwidth, integral of |r(t)| dt with r as in :func:`smooth_ece`.

    Args:
        confidence: float [N] in [0, 1].
        correct: bool or 0/1 [N].
        sigma: bandwidth > 0, on the scale of the confidence.

    Returns:
        A fraction in [0, 1], non-increasing in sigma.

    Raises:
        ValueError: wrong input or bandwidth.

    Example:
        >>> round(smooth_ece_at([0.9] * 10, [1] * 6 + [0] * 4, sigma=0.05), 6)
        0.3
    """
    if not sigma > 0.0:
        raise ValueError(f"sigma: expected a bandwidth > 0, got {sigma!r}")
    confidence, correct = check_confidence_and_correct(confidence, correct)
    return _smoothed(_residual_spectrum(confidence, correct), sigma)


def _residual_spectrum(confidence: Floats, correct: Floats) -> Floats:
    """Cosine coefficients of the residuals, each spread over its two neighbouring grid nodes."""
    residual = (correct - confidence) / len(confidence)
    position = confidence * GRID_CELLS
    node = np.minimum(position.astype(np.intp), GRID_CELLS - 1)
    share = position - node
    mass = np.bincount(node, weights=residual * (1.0 - share), minlength=GRID_CELLS + 1)
    mass += np.bincount(node + 1, weights=residual * share, minlength=GRID_CELLS + 1)
    # A node at 0 or 1 coincides with its own mirror image, so its mass counts twice in the even extension.
    mass[0] *= 2.0
    mass[-1] *= 2.0
    return np.asarray(dct(mass, type=1))


def _smoothed(spectrum: Floats, sigma: float) -> float:
    """Absolute integral of the residuals after smoothing.

    Between reflecting ends the Gaussian multiplies cos(pi k t) by exp(-(pi k sigma)^2 / 2). On the grid (pi k)^2 is
    replaced by the eigenvalue of the second difference, which equals it at bandwidths above a few cells; below, the
    cut-off Gaussian would ring, while this kernel stays positive and so can only shrink the error at every bandwidth.
    """
    smoothed = np.abs(dct(spectrum * np.exp(-0.5 * sigma**2 * _EIGENVALUES), type=1)) / (2 * GRID_CELLS)
    return float(smoothed.sum() - 0.5 * (smoothed[0] + smoothed[-1]))
