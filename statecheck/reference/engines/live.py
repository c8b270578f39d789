"""What is expected of a whole engine, step by step: that nothing breaks a law."""

from __future__ import annotations

from dataclasses import fields

from oracle.lifecycle.broken_laws import BrokenLaws
from statecheck.case.values import Value, record
from statecheck.reference import answers

NOTHING_BROKEN = record("BrokenLaws", **{law.name: "nothing" for law in fields(BrokenLaws)})


@answers("LiveEngine")
def made(settings: Value) -> Value:  # noqa: ARG001 - an engine, whatever it is like
    """An engine."""
    return record("LiveEngine")


@answers("LiveEngine.add_request", "LiveEngine.abort", "LiveEngine.reset_prefix_cache")
def happened(**_: Value) -> Value:
    """Something that is seen in later steps."""
    return None


@answers("LiveEngine.step")
def stepped(**_: Value) -> Value:
    """A step in which nothing is broken."""
    return record("LiveStep", broken=NOTHING_BROKEN)
