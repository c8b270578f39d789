"""The form of what parents and workers tell each other.

A request is a pickled `(method, *arguments)`. An answer is a letter and a pickled `(value, compiled)`: whoever passes it on reads
the letter only. `compiled` is what Triton compiled meanwhile.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

DONE, FAULT, ERROR, COMPILING, ANEW, GONE = b"d", b"f", b"e", b"c", b"a", b"g"
"""The result; the fault that ended the worker; an exception; compiling has "begun" or is "done", and the answer is still to come.

Where workers are shared: the example has to be run anew, since the worker that had begun it is no more; no worker gets ready.
"""


def request(method: str, *arguments: Any) -> bytes:
    return pickle.dumps((method, *arguments), protocol=5)


def answer(letter: bytes, value: Any, compiled: Mapping[str, Any]) -> bytes:
    """Raises what pickle does, for a value that cannot be sent."""
    return letter + pickle.dumps((value, compiled), protocol=5)


def letter_of(message: bytes) -> bytes:
    return message[:1]


def content_of(message: bytes) -> tuple[Any, Any]:
    """Value and compilations of an answer."""
    value, compiled = pickle.loads(memoryview(message)[1:])  # noqa: S301 - what our own processes wrote
    return value, compiled
