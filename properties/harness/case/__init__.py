"""What a case is: calls with their values, what should have come out, what did, and how these differ."""

from __future__ import annotations

from properties.harness.case.case import SCHEMA, Case
from properties.harness.case.failure import Failure

__all__ = ["SCHEMA", "Case", "Failure"]
