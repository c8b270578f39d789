"""Calls whose programs run in another order than the plain one, or are watched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from properties.harness.kernels.schedules import program_schedule
from properties.harness.report.repro.races import touches_told
from properties.harness.report.repro.runtime.results import findings

__all__ = ["in_order", "traced"]


def in_order(schedule: str, call: Callable[[], Any]) -> Callable[[], Any]:
    """The call, with the programs of its launches in another order."""

    def scheduled() -> Any:
        with program_schedule(schedule):
            return call()

    return scheduled


def traced(finding: str, call: Callable[[], Any]) -> Callable[[], Any]:
    """The call, with each access of the programs of its launches looked at."""

    def watched() -> Any:
        with touches_told(findings.append, strays=finding == "OutsideView"):
            return call()

    return watched
