"""States that one engine sends to another with its own number of tensor-parallel ranks."""

from __future__ import annotations

from properties.strategies.releases.shards import SentState, sent_states
from statecheck.execution.example import Example
from statecheck.execution.registry import Configuration, prop

MECHANISMS = (
    Configuration("state-transfer/mooncake", "StateTransfer.mooncake", mechanism="mooncake", reason="with Mooncake"),
    Configuration("state-transfer/moriio", "StateTransfer.moriio", mechanism="moriio", reason="with MoRIIO"),
    Configuration("state-transfer/nixl", "StateTransfer.nixl", mechanism="nixl", reason="with NIXL"),
)  # fmt: skip


@prop(MECHANISMS, "algebra", device="cpu", sent=sent_states())
def each_rank_holds_its_own_shard(trial: Example, sent: SentState, mechanism: str) -> None:
    """Each rank holds its own shard of the whole state, whatever the number of ranks that sent it.

    No other byte of its memory changes.
    """
    trial.agrees(sent.call(mechanism))
