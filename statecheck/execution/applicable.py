"""Which functions a case takes that a subject, or a machine, does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from statecheck.case import Case
from statecheck.case.codec import encode
from statecheck.expectations import answered
from statecheck.subject import Subject

NEED_CUDA = frozenset({"harness.capture", "harness.replay"})


def missing_functions(case: Case, subject: Subject) -> list[str]:
    """What the case calls or launches that the subject does not have.

    Raises:
        ValueError: among what it calls, launches or hands over is something that no document has. Names are looked up in the
            subject, so that a case from elsewhere could otherwise call anything that it imports.
    """
    called = {call.function for call in case.calls}
    handed_over = set(_handed_over(encode(case.steps)))
    undocumented = sorted((called | handed_over) - answered())
    if undocumented:
        raise ValueError(f"functions = {undocumented}, but should be documented ones [replay]")
    functions = {name for name in called if not name.startswith("harness.")}
    kernels = {call.named["kernel"] for call in case.calls if call.function == "harness.launch"}
    return sorted(name for name in functions | kernels if not subject.has(name))


def _handed_over(data: Any) -> Iterator[str]:
    """Names of the functions that are arguments, in the JSON of steps."""
    if isinstance(data, list):
        for item in data:
            yield from _handed_over(item)
    elif isinstance(data, dict):
        for tag, content in data.items():
            if tag == "Function":
                yield content["name"]
            yield from _handed_over(content)
