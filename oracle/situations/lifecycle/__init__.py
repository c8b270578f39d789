"""Situations in scenarios."""
