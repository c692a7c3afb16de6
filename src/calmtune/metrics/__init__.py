"""Calibration metrics on numpy arrays, in float64; nothing here knows about models, files or torch."""

from .binned import (
    ReliabilityTable,
    accuracy,
    classwise_ece,
    debiased_ece,
    expected_calibration_error,
    maximum_calibration_error,
    overconfidence_gap,
    reliability_table,
)
from .blocks import ClasswiseError, ConfidenceError
from .bootstrap import Interval, PairedDifference, bootstrap_interval, null_band, paired_difference
from .many_items import bootstrap_many, compare_many
from .proper import (
    BrierDecomposition,
    brier_decomposition,
    brier_score,
    classwise_brier_decomposition,
    negative_log_likelihood,
    softmax,
)
from .ranking import aurc, auroc, risk_at_coverage
from .semantic import SemanticConfidence, semantic_confidence, semantic_ece, semantic_entropy
from .semantic_figures import Abstention, SemanticSummary, semantic_abstention, semantic_summary
from .semantic_sensitivity import BudgetPoint, ClassRuleSensitivity, class_rule_sensitivity, semantic_curve
from .shift import ShiftTest, two_sample_test
from .smooth import smooth_ece, smooth_ece_at

__all__ = [
    "Abstention",
    "BrierDecomposition",
    "BudgetPoint",
    "ClassRuleSensitivity",
    "ClasswiseError",
    "ConfidenceError",
    "Interval",
    "PairedDifference",
    "ReliabilityTable",
    "SemanticConfidence",
    "SemanticSummary",
    "ShiftTest",
    "accuracy",
    "aurc",
    "auroc",
    "bootstrap_interval",
    "bootstrap_many",
    "brier_decomposition",
    "brier_score",
    "class_rule_sensitivity",
    "classwise_brier_decomposition",
    "classwise_ece",
    "compare_many",
    "debiased_ece",
    "expected_calibration_error",
    "maximum_calibration_error",
    "negative_log_likelihood",
    "null_band",
    "overconfidence_gap",
    "paired_difference",
    "reliability_table",
    "risk_at_coverage",
    "semantic_abstention",
    "semantic_confidence",
    "semantic_curve",
    "semantic_ece",
    "semantic_entropy",
    "semantic_summary",
    "smooth_ece",
    "smooth_ece_at",
    "softmax",
    "two_sample_test",
]
