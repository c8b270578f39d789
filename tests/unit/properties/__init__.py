"""Tests of the strategies and of the simulated engine."""
