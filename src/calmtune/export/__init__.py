"""A calibrated model in the forms in which it is used elsewhere, and the check that each says the same."""
