"""Subjects: what is being verified.

A subject is a module, or a package, that offers the documents' names. `impl` is the default one, `vllm` adapts the release
that is installed; any importable module can be named in their place, with these names or with plain functions (PROTOCOL.md),
and the properties of functions that it lacks are skipped and counted. To declare known deviations a module makes a `Subject`
of itself and calls it SUBJECT.
"""

from statecheck.subject import (
    BUILT_IN,
    LAYOUT_VARIABLE,
    Condition,
    KnownDeviation,
    NotOffered,
    Outside,
    Subject,
    Symptom,
    adapted,
    load,
)

__all__ = [
    "BUILT_IN",
    "LAYOUT_VARIABLE",
    "Condition",
    "KnownDeviation",
    "NotOffered",
    "Outside",
    "Subject",
    "Symptom",
    "adapted",
    "load",
]
