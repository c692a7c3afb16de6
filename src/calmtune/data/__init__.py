"""Rows and where they come from: schema, sources, splits, the built-in facts, prompts and collation."""
