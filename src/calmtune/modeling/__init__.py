"""Loading causal language models and reading scores from them."""
