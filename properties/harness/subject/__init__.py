"""What is being verified: subjects, their known deviations, and how they are found by name."""

from properties.harness.subject.deviation import Condition, KnownDeviation, Symptom
from properties.harness.subject.loading import BUILT_IN, adapted, load
from properties.harness.subject.matching import KnownDefectIndex
from properties.harness.subject.not_offered import NotOffered
from properties.harness.subject.subject import (
    LAYOUT_VARIABLE,
    Outside,
    Subject,
    is_engine,
)

__all__ = [
    "BUILT_IN",
    "LAYOUT_VARIABLE",
    "Condition",
    "KnownDefectIndex",
    "KnownDeviation",
    "NotOffered",
    "Outside",
    "Subject",
    "Symptom",
    "adapted",
    "is_engine",
    "load",
]
