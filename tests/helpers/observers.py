"""Observers of executions for tests."""

from __future__ import annotations

from statecheck.case import Case
from statecheck.execution.example import Observer


class FailureLog(Observer):
    """The failing cases in their order, and for each the number of examples by then."""

    def __init__(self) -> None:
        self.cases: list[Case] = []
        self.examples: list[int] = []
        self._begun = 0

    def example_begins(self) -> None:
        self._begun += 1

    def falsified(self, case: Case) -> None:
        self.cases.append(case)
        self.examples.append(self._begun)
