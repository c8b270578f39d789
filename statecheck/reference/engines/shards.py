"""Answers about states that an engine sends to another with its own number of ranks."""

from __future__ import annotations

from oracle import shards
from statecheck.case.values import Value
from statecheck.reference import answers

MECHANISMS = ("mooncake", "moriio", "nixl")
"""By which engines send states to each other."""


@answers(*(f"StateTransfer.{name}" for name in MECHANISMS), rule=shards.sent_states)
def sent(family: str, sizes: Value, source_tp: int, target_tp: int, **_: Value) -> Value:
    """For each rank of the target: the elements of each layer's states, and how many bytes elsewhere in its memory are no longer 0."""
    ranks = shards.sent_states(family, dict(sizes), source_tp, target_tp)
    return tuple((layers, 0) for layers in ranks)
