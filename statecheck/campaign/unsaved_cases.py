"""Cases that could not be saved: each is printed to the standard error at once."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TextIO

from statecheck.case import Case

_streams: list[TextIO] = []


def print_to(stream: TextIO) -> None:
    """Print cases there, in a process whose standard error leads elsewhere."""
    _streams[:] = [stream]


def print_case(case: Case) -> None:
    """Print to the standard error of the process; `sys.stderr` may be redirected while a property is explored."""
    with suppress(OSError, ValueError):
        print(case.to_json(), file=_streams[0] if _streams else sys.__stderr__, flush=True)
