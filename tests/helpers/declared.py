"""The known defects that are declared for vLLM."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import subjects
from statecheck.subject.known import declared_in
from subjects import KnownDeviation
from subjects.vllm_conditions import CONDITIONS

FILE = Path(subjects.__file__).with_name("vllm_known.toml")


@cache
def entries() -> tuple[KnownDeviation, ...]:
    """All known defects of the file, of all releases."""
    return tuple(known for known, _ in declared_in(FILE, CONDITIONS))
