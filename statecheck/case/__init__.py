"""What a case is: calls with their values, what should have come out, what did, and how these differ."""

from __future__ import annotations

from statecheck.case.case import SCHEMA, Case
from statecheck.case.failure import Failure

__all__ = ["SCHEMA", "Case", "Failure"]
