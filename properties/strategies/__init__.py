"""Hypothesis strategies: inputs that a serving engine can produce, with the interesting situations drawn on purpose."""
