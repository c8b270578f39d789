"""What a campaign knows about each of its properties."""

from __future__ import annotations

import enum
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any


class Status(enum.Enum):
    """What became of a property."""

    WAITING = "not reached"
    RUNNING = "running"
    PASSED = "passed"
    KNOWN = "known deviation"
    FALSIFIED = "FALSIFIED"
    UNEXPECTED_PASS = "UNEXPECTED PASS"
    ERROR = "ERROR"
    NOT_APPLICABLE = "not applicable"


@dataclass
class Row:
    """One property's progress.

    `seconds` counts finished tasks, `outside` the examples that said nothing, by the reason, and `known` those that showed a known
    defect, by its name. `hidden`: a known defect is the sanitizer's finding, which ends an example and hides what is behind it.
    """

    property_name: str
    status: Status = Status.WAITING
    examples: int = 0
    seconds: float = 0.0
    started: float | None = None
    detail: str = ""
    report: str = ""
    known_failures: set[str] = field(default_factory=set)
    outside: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    hidden: bool = False
    unwatched: bool = False

    @property
    def elapsed(self) -> float:
        return self.seconds + (time.monotonic() - self.started if self.started is not None else 0.0)

    @property
    def undisturbed(self) -> Status:
        """The status if nothing but declared failures was seen."""
        return Status.KNOWN if self.known_failures else Status.PASSED

    @property
    def rate(self) -> float:
        """Examples per second."""
        return self.examples / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def inside(self) -> int:
        """The examples that said something."""
        return self.examples - self.outside.total()

    def next_sanitized(self) -> bool:
        """Whether the sanitizer is to watch the next task: every other one, where it hides what is behind its findings."""
        self.unwatched = self.hidden and not self.unwatched
        return not self.unwatched

    def told(self) -> dict[str, Any]:
        """As it stands in a campaign's file, where nothing is left out but what is empty."""
        told = {
            "status": self.status.value,
            "examples": self.examples,
            "seconds": round(self.seconds, 3),
            "report": self.report,
        }
        more = {"detail": self.detail, "outside": dict(self.outside), "known": dict(self.known)}
        return told | {name: value for name, value in more.items() if value}
