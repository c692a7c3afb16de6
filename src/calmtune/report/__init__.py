"""From stored predictions to tables, diagrams and pages: compute once, then draw."""

from calmtune.report.summary import Comparison, Summary, Variant, summarise

__all__ = ["Comparison", "Summary", "Variant", "summarise"]
