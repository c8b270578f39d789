"""Inputs of the properties of engines' own code."""
