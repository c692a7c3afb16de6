"""Label smoothing: the plain step on a cross-entropy whose target gives eps away to all classes.

    (1 - eps) CE(y) + eps mean_k(-log p_k)

The loss is :func:`calmtune.bilevel.adjusted_cross_entropy` with ``label_smoothing=eps``, the step is
:func:`calmtune.methods.sft.plain_step`. Its minimum is at 1 - eps + eps / K for the gold of K classes, whatever the
question: the confidence is bounded, not calibrated.
"""

from __future__ import annotations

DEFAULT_SMOOTHING = 0.1


def smoothing_of(factor: float) -> float:
    """The eps this method trains with: ``label_smoothing_factor`` where it is set, else .1.

    Args:
        factor: transformers' own setting, whose default 0 means that it was not set.

    Raises:
        ValueError: outside [0, 1).

    Example:
        >>> smoothing_of(0.0), smoothing_of(0.2)
        (0.1, 0.2)

    Source: Szegedy et al. 2016, section 7, for the method and its .1.
    """
    if not 0 <= factor < 1:
        raise ValueError(f"label_smoothing_factor must lie in [0, 1), got {factor}")
    return factor or DEFAULT_SMOOTHING
