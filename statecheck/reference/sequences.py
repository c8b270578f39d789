"""What is expected of a library of sequences, step by step: that nothing breaks the law."""

from __future__ import annotations

from dataclasses import fields

from oracle.sequences import SequenceLaws
from statecheck.case.values import Value, record
from statecheck.reference import answers

NOTHING_BROKEN = record("SequenceLaws", **{law.name: "nothing" for law in fields(SequenceLaws)})
OPERATIONS = ("extend", "fork", "roll_back", "save", "load", "drop", "reorder", "generate")


@answers("Sequences")
def made(**_: Value) -> Value:
    """A library with a model."""
    return record("Sequences")


@answers(*(f"Sequences.{name}" for name in OPERATIONS))
def stepped(**_: Value) -> Value:
    """An operation after which nothing is broken."""
    return record("SequenceStep", broken=NOTHING_BROKEN)
