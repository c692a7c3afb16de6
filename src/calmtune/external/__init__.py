"""Predictions that other programs made: tables of confidences or probabilities, and lm-eval's per-sample logs."""

from .read import read_external
from .record import Outcomes

__all__ = ["Outcomes", "read_external"]
