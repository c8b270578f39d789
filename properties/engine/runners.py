"""The two runners around the verified copies: one keeps requests in rows and decides on the host, one in slots."""

from __future__ import annotations

from properties.engine.rows import ByRow
from properties.engine.slots import BySlot
from properties.engine.worker import Execute, Runner, WorkerState

RUNNERS = {"V1": ByRow, "V2": BySlot}

__all__ = ["RUNNERS", "ByRow", "BySlot", "Execute", "Runner", "WorkerState"]
