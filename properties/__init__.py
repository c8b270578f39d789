"""The statements: tests that hold a subject against the oracle, the strategies of their inputs, and the simulated engine."""

from statecheck.former_modules import forward_imports

forward_imports()
