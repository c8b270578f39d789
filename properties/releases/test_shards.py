"""States that one engine sends to another with its own number of tensor-parallel ranks."""

from __future__ import annotations

from properties.strategies.releases.shards import SentState, sent_states
from statecheck.execution.example import Example
from statecheck.execution.statements import Statement, statement, statements

OWN_SHARD = "Each rank holds its own shard of the whole state, whatever the number of ranks that sent it, and no other byte of its memory changes."


def _sent_by(mechanism: str, says: str) -> Statement:
    id_ = f"state-transfer/{mechanism.replace('_', '-')}"
    function = f"StateTransfer.{mechanism}"
    return statement(
        id_,
        "algebra",
        [function],
        device="cpu",
        says=says,
        sentence=OWN_SHARD,
        sent=sent_states(),
        mechanism=mechanism,
    )


@statements(
    _sent_by("mooncake", "states sent by Mooncake are the shards of the ranks that get them"),
    _sent_by("moriio", "states sent by MoRIIO are the shards of the ranks that get them"),
    _sent_by("nixl", "states sent by NIXL are the shards of the ranks that get them"),
)
def each_rank_gets_its_shard(trial: Example, sent: SentState, mechanism: str) -> None:
    trial.agrees(sent.call(mechanism))
