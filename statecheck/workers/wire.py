"""The messages between parents and workers.

A request is a pickled `(method, *arguments)`. An answer is a letter and a pickled `(value, meanwhile)`. A process that
only passes an answer on reads the letter and leaves the rest pickled.
"""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from statecheck.kernels.launch_counts import How

DONE, FAULT, ERROR, COMPILING, ANEW, GONE = b"d", b"f", b"e", b"c", b"a", b"g"
"""The result; the fault that ended the worker; an exception; compiling has "begun" or is "done", and the answer is still to come.

Of shared workers: the example has to be run again, since the worker that had begun it has ended; no worker gets ready.
"""


@dataclass(frozen=True)
class Meanwhile:
    """What a worker did while it made its answer: whether Triton compiled, and which launches were executed."""

    compiled: bool = False
    launched: Counter[How] = field(default_factory=Counter)


NOTHING = Meanwhile()


def request(method: str, *arguments: Any) -> bytes:
    return pickle.dumps((method, *arguments), protocol=5)


def answer(letter: bytes, value: Any, meanwhile: Meanwhile = NOTHING) -> bytes:
    """Raises what pickle does, for a value that cannot be sent."""
    return letter + pickle.dumps((value, meanwhile), protocol=5)


def letter_of(message: bytes) -> bytes:
    return message[:1]


def content_of(message: bytes) -> tuple[Any, Meanwhile]:
    """Value of an answer, and what happened besides."""
    value, meanwhile = pickle.loads(memoryview(message)[1:])  # noqa: S301 - what our own processes wrote
    return value, meanwhile
