"""From stored predictions to tables, diagrams and pages: compute once, then draw."""

from calmtune.report.card import write_card
from calmtune.report.reliability import save_reliability_pair
from calmtune.report.summary import Comparison, Summary, Variant, summarise
from calmtune.report.write import write_report

__all__ = [
    "Comparison",
    "Summary",
    "Variant",
    "save_reliability_pair",
    "summarise",
    "write_card",
    "write_report",
]
