"""Which system a case belongs to, and which source of a subject was run, as far as files say so.

A case that no longer fails is fixed only where the source has changed.
"""

from __future__ import annotations

import oracle
from statecheck.case import Case
from statecheck.subject.loading import BUILT_IN
from statecheck.subject.source_files import source_digest, source_files, verified_files
from statecheck.subject.subject import Subject, is_documented

SOURCE = "source"
"""The key of `Case.first_seen` under which it stands."""


def source_of(subject: Subject) -> str:
    """The digest of its release, its Python files (see `verified_files`) and those of the rules; "" where it has too many."""
    return source_digest([*verified_files(subject.module), *source_files(oracle)], subject.release)


_OF_THE_HARNESS = "harness."
_BUILT_IN_NAMES = {module: name for name, module in BUILT_IN.items()}


def system_of(case: Case) -> str:
    """The system that the case belongs to: a subject's name without its release; "" for every subject.

    The rules for documented functions are the documents', so that a case which calls these alone says something about every port of
    them. What an engine, a library of sequences or a release's own object is asked has that system's configuration, models and features.
    A file needs no field for it: a case has the subject's name and the calls.
    """
    functions = {call.function for call in case.calls}
    bound = any(not (name.startswith(_OF_THE_HARNESS) or is_documented(name)) for name in functions)
    return system_named(case.subject) if bound else ""


def system_named(subject: str) -> str:
    """The system of a subject by its name; an adapter has one name, also where its module is named."""
    return _BUILT_IN_NAMES.get(subject, subject)
