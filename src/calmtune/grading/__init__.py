"""Grading of free text: normal forms, matches, refusals, classes of meaning, a judge. Text in, text and numbers out."""

from .cluster import Clusters, Sampled, exact_clusters, nli_clusters
from .endpoint import Endpoint, JudgeError
from .judge import judge
from .match import Grade, first_line, grade, token_f1
from .nli import EntailmentModel, load_entailment_model
from .normalise import NORMALISER, NORMALISERS, SQUAD_NORMALISER, normalise, squad_normalise
from .refusal import REFUSAL_VERSION, is_refusal
from .verdict import PROMPT_VERSION, JudgeItem, Verdict

__all__ = [
    "NORMALISER",
    "NORMALISERS",
    "PROMPT_VERSION",
    "REFUSAL_VERSION",
    "SQUAD_NORMALISER",
    "Clusters",
    "Endpoint",
    "EntailmentModel",
    "Grade",
    "JudgeError",
    "JudgeItem",
    "Sampled",
    "Verdict",
    "exact_clusters",
    "first_line",
    "grade",
    "is_refusal",
    "judge",
    "load_entailment_model",
    "nli_clusters",
    "normalise",
    "squad_normalise",
    "token_f1",
]
