"""Faults of everything around a nightly campaign, each tried for real: `python -m tests.e2e`."""
