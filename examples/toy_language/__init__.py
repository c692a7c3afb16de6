"""A language whose conditional probabilities are known, and small models aligned and fine-tuned on it."""
