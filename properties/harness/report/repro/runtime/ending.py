"""How a script ends where nothing can be said about the defect."""

from __future__ import annotations

from typing import NoReturn

from properties.harness.report.repro.runtime.child import conclude, untried_code


def cannot_try(why: str) -> NoReturn:
    """End without a verdict on the defect."""
    print(why)
    conclude(untried_code())
