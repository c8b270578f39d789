"""Which source of a subject was run, as far as files say so: a case that no longer fails is fixed only where that has changed."""

from __future__ import annotations

import oracle
from statecheck.subject.source_files import source_digest, source_files, verified_files
from statecheck.subject.subject import Subject

SOURCE = "source"
"""The key of `Case.first_seen` under which it stands."""


def source_of(subject: Subject) -> str:
    """The digest of its release, its Python files (see `verified_files`) and those of the rules; "" where it has too many."""
    return source_digest([*verified_files(subject.module), *source_files(oracle)], subject.release)
