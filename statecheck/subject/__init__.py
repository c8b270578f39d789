"""What is being verified: subjects, their known deviations, and how they are found by name."""

from statecheck import rooms

# A port's module imports this room, and is imported in processes in which the harness does not run, too.
if not rooms.is_checkout():
    rooms.open_rooms()

from statecheck.subject.known import Condition, KnownDefectMatcher, KnownDeviation, Symptom
from statecheck.subject.loading import BUILT_IN, adapted, load
from statecheck.subject.subject import (
    LAYOUT_VARIABLE,
    NotOffered,
    NotVerified,
    Outside,
    Subject,
    is_documented,
    is_engine,
)

__all__ = [
    "BUILT_IN",
    "LAYOUT_VARIABLE",
    "Condition",
    "KnownDefectMatcher",
    "KnownDeviation",
    "NotOffered",
    "NotVerified",
    "Outside",
    "Subject",
    "Symptom",
    "adapted",
    "is_documented",
    "is_engine",
    "load",
]
