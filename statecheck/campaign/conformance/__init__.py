"""Conformance: profiles of fixed examples, and the expected failures of a project."""
