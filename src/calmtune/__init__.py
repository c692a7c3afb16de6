"""Calibration of language models while they are fine-tuned.

Names are imported when they are first used, so that ``import calmtune`` loads neither torch nor transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calmtune.bilevel import LogitAdjustment, adjusted_cross_entropy, bome_direction, negative_entropy
    from calmtune.config import ConfigError, RunConfig, load_config, save_config
    from calmtune.external import read_external
    from calmtune.metrics import semantic_ece, semantic_entropy
    from calmtune.modeling.calibrated import CalmModel
    from calmtune.modeling.logits_processor import AdjustmentProcessor
    from calmtune.posthoc.abstention import answer_or_abstain
    from calmtune.posthoc.abstention_file import load_abstainer
    from calmtune.predictions import Prediction, Predictions, load_predictions, save_predictions
    from calmtune.training.arguments import CalmConfig
    from calmtune.training.calibration_callback import CalibrationCallback
    from calmtune.training.trainer import CalmTrainer

__version__ = "0.1.0"

_HOMES = {
    "AdjustmentProcessor": "calmtune.modeling.logits_processor",
    "LogitAdjustment": "calmtune.bilevel",
    "adjusted_cross_entropy": "calmtune.bilevel",
    "negative_entropy": "calmtune.bilevel",
    "bome_direction": "calmtune.bilevel",
    "CalibrationCallback": "calmtune.training.calibration_callback",
    "CalmConfig": "calmtune.training.arguments",
    "CalmModel": "calmtune.modeling.calibrated",
    "CalmTrainer": "calmtune.training.trainer",
    "ConfigError": "calmtune.config",
    "RunConfig": "calmtune.config",
    "load_config": "calmtune.config",
    "save_config": "calmtune.config",
    "Prediction": "calmtune.predictions",
    "Predictions": "calmtune.predictions",
    "load_predictions": "calmtune.predictions",
    "save_predictions": "calmtune.predictions",
    "semantic_ece": "calmtune.metrics",
    "semantic_entropy": "calmtune.metrics",
    "answer_or_abstain": "calmtune.posthoc.abstention",
    "load_abstainer": "calmtune.posthoc.abstention_file",
    "read_external": "calmtune.external",
}
_ROOMS = frozenset(
    {
        "bilevel",
        "data",
        "export",
        "external",
        "grading",
        "harness",
        "methods",
        "metrics",
        "modeling",
        "posthoc",
        "report",
        "scoring",
        "training",
    }
)

__all__ = [
    "AdjustmentProcessor",
    "CalibrationCallback",
    "CalmConfig",
    "CalmModel",
    "CalmTrainer",
    "ConfigError",
    "LogitAdjustment",
    "Prediction",
    "Predictions",
    "RunConfig",
    "__version__",
    "adjusted_cross_entropy",
    "answer_or_abstain",
    "bome_direction",
    "load_abstainer",
    "load_config",
    "load_predictions",
    "negative_entropy",
    "read_external",
    "save_config",
    "save_predictions",
    "semantic_ece",
    "semantic_entropy",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"calmtune.{name}")
    raise AttributeError(f"module 'calmtune' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOMS})
