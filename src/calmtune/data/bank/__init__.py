"""The questions behind :func:`calmtune.data.facts.facts`, one file a subject, made from installed data packages."""
