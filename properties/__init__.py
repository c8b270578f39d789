"""The statements: tests that hold a subject against the oracle, the strategies of their inputs, and the simulated engine."""

from properties import situations as situations
