"""Calibration after training: fits on held-out logits that change the distributions and not the model."""

from .temperature import TemperatureScaler
from .vector import VectorScaler

__all__ = ["TemperatureScaler", "VectorScaler"]
