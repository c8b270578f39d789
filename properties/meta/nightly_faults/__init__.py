"""Faults of everything around a nightly campaign, each tried for real: `python -m properties.meta.nightly_faults`."""
