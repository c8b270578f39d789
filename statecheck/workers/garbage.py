"""When a process of the harness looks for garbage."""

from __future__ import annotations

import gc


def collect_rarely() -> None:
    """Have Python look for garbage after 100,000 new objects, not after 700.

    Imports of torch and Hypothesis make a million objects that stay. With Python's own threshold they are looked at again and
    again, which was a third of the CPU time of a start.
    """
    gc.set_threshold(100_000, 20, 20)
