"""What is expected of an engine with a radix tree, step by step: that nothing breaks a law."""

from __future__ import annotations

from statecheck.case.values import Value, record
from statecheck.reference import answers
from statecheck.reference.engines.live import NOTHING_BROKEN


@answers("RadixEngine")
def made(settings: Value) -> Value:  # noqa: ARG001 - an engine, whatever it is like
    """An engine."""
    return record("RadixEngine")


@answers(
    *(
        f"RadixEngine.{name}"
        for name in (
            "add_request",
            "abort",
            "reset_prefix_cache",
            "pause",
            "open_session",
            "add_turn",
            "close_session",
            "second_passes",
            "delay_copies",
        )
    )
)
def happened(**_: Value) -> Value:
    """Something that is seen in later steps."""
    return None


@answers("RadixEngine.step")
def stepped(**_: Value) -> Value:
    """A step in which nothing is broken."""
    return record("RadixStep", broken=NOTHING_BROKEN)
