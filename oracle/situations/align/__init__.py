"""Situations of align mode."""
