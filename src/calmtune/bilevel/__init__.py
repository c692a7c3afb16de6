"""Pure mathematics of the bilevel problem, on tensors: no model, no data, no input or output."""

from calmtune.bilevel.adjustment import LogitAdjustment
from calmtune.bilevel.bome import BomeDirection, bome_direction, bome_step
from calmtune.bilevel.objectives import adjusted_cross_entropy, negative_entropy, read_logits
from calmtune.bilevel.self_tuning import EtaController, PullController

__all__ = [
    "BomeDirection",
    "EtaController",
    "LogitAdjustment",
    "PullController",
    "adjusted_cross_entropy",
    "bome_direction",
    "bome_step",
    "negative_entropy",
    "read_logits",
]
