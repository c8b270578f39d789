"""Tests of the checks of what is written."""
