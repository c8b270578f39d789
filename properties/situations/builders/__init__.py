"""Situations of the steps that builders make metadata of."""
