"""Answers about whole systems, step by step: that nothing breaks a law; and about slots of states, and states that engines send to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from oracle import shards, tracking
from oracle import slots as rules
from oracle.lifecycle.broken_laws import BrokenLaws
from oracle.sequences import SequenceLaws
from statecheck.case.values import ITEM_SIZES, Call, Tensor, Value, View, dense_strides, int64, record
from statecheck.reference import answers
from statecheck.sequences import OPERATIONS

NOTHING_BROKEN = record("BrokenLaws", **{law.name: "nothing" for law in fields(BrokenLaws)})
_HAPPENS = {
    "LiveEngine": ("add_request", "abort", "reset_prefix_cache", "update_weights", "sleep"),
    "RadixEngine": (
        "add_request",
        "abort",
        "reset_prefix_cache",
        "pause",
        "open_session",
        "add_turn",
        "close_session",
        "second_passes",
        "delay_copies",
        "fail_storage",
        "sleep",
        "update_weights",
    ),
}
"""What happens to an engine and is seen in later steps."""


@answers(*_HAPPENS)
def engine(call: Call, settings: Value) -> Value:  # noqa: ARG001 - an engine, whatever it is like
    """An engine."""
    return record(call.function)


@answers(*(f"{name}.{event}" for name, events in _HAPPENS.items() for event in events))
def happened(**_: Value) -> Value:
    """Something that is seen in later steps."""
    return None


@answers(*(f"{name}.step" for name in _HAPPENS))
def engine_stepped(call: Call, **_: Value) -> Value:
    """A step in which nothing is broken."""
    return record(call.function.replace("Engine.step", "Step"), broken=NOTHING_BROKEN)


Known = dict[str, Value]
Answer = tuple[Value, dict[str, Value]]


def _view(view: View) -> rules.StateView:
    strides = view.strides or dense_strides(view.shape)
    return rules.StateView(view.of, ITEM_SIZES[view.dtype], view.shape, strides, view.offset)


def _views(*views: View | None) -> list[rules.StateView]:
    return [_view(view) for view in views if view is not None]


def _bytes(memory: Known, views: Sequence[rules.StateView]) -> dict[str, bytes]:
    return {view.pool: bytes(memory[view.pool].elements) for view in views}


def _after(found: Mapping[str, bytes]) -> Answer:
    return None, {name: Tensor("uint8", (len(held),), held) for name, held in found.items()}


@answers("StateSlots.clear", rule=rules.cleared_slots)
def cleared(memory: Known, conv: Sequence[View], slots: Tensor) -> Answer:
    """Zeros in all slots that are named."""
    views = _views(*conv)
    return _after(rules.cleared_slots(_bytes(memory, views), views, slots.values()))


@answers("StateSlots.copy", rule=rules.copied_slots)
def copied(memory: Known, conv: Sequence[View], sources: Tensor, targets: Tensor) -> Answer:
    """What the sources held in the targets."""
    views = _views(*conv)
    return _after(rules.copied_slots(_bytes(memory, views), views, sources.values(), targets.values()))


@answers("StateSlots.copy_pages", rule=rules.copied_pages)
def copied_pages(memory: Known, layers: Sequence[Any], sources: Any, targets: Any) -> Answer:
    """What the source pages of each layer held in its target pages."""
    pools = [(views[0].of, page_size) for _, views, _, page_size in layers]
    held = {name: bytes(memory[name].elements) for name, _ in pools}
    return _after(rules.copied_pages(held, pools, sources, targets))


@answers("StateSlots.track", rule=rules.tracked_slots)
def tracked(
    memory: Known, conv: View, temporal: View, sources: Tensor, mask: Tensor, targets: Tensor
) -> Answer:
    """The states of rows at a boundary in the slots that keep them."""
    views = _views(conv, temporal)
    there = [bool(flag) for flag in mask.values()]
    return _after(
        rules.tracked_slots(_bytes(memory, views), views, sources.values(), there, targets.values())
    )


@answers("StateSlots.scatter", rule=rules.accepted_states)
def scattered(
    memory: Known,
    conv: Sequence[View],
    windows: Sequence[View],
    temporal: View,
    states: View,
    slots: Tensor,
    drafts: Tensor,
    kept_slots: Tensor | None,
    kept_drafts: Tensor | None,
) -> Answer:
    """The states after the last accepted drafts in the slots of their rows, and those at boundaries in the slots that keep them."""
    targets, steps = _views(*conv, temporal), _views(*windows, states)
    chosen = [(slots.values(), drafts.values())]
    if kept_slots is not None and kept_drafts is not None:
        chosen.append((kept_slots.values(), kept_drafts.values()))
    before = _bytes(memory, [*targets, *steps])
    after = rules.accepted_states(before, targets, steps, chosen)
    return _after({target.pool: after[target.pool] for target in targets})


@answers("StateSlots.last_accepted", rule=rules.last_accepted)
def last_accepted(
    accepted: Tensor, counts: Tensor, lengths: Tensor | None, drafts: int, interval: int
) -> Value:
    """int64 vectors; None where no boundary is asked for."""
    before = None if lengths is None else lengths.values()
    last, kept = rules.last_accepted(accepted.rows(), counts.values(), before, drafts, interval)
    return int64(last), None if kept is None else int64(kept)


@answers("StateSlots.of_rows", rule=rules.slots_of_rows)
def slots_of_rows(memory: Known, rows: View, slots: Tensor, out: View, live: int) -> Answer:
    """The slots of rows in `out`; padded rows are 0."""
    found, left = rules.slots_of_rows(memory[rows.of].values()[: rows.shape[0]], slots.values(), live)
    beyond = memory[rows.of].values()[rows.shape[0] :]
    kept = memory[out.of].values()[rows.shape[0] :]
    return None, {
        rows.of: Tensor("int64", (len(left) + len(beyond),), (*left, *beyond)),
        out.of: Tensor("int32", (len(found) + len(kept),), (*found, *kept)),
    }


MECHANISMS = ("mooncake", "moriio", "nixl")
"""By which engines send states to each other."""


@answers(*(f"StateTransfer.{name}" for name in MECHANISMS), rule=shards.sent_states)
def sent(family: str, sizes: Value, source_tp: int, target_tp: int, **_: Value) -> Value:
    """For each rank of the target: the elements of each layer's states, and how many bytes elsewhere in its memory are no longer 0."""
    ranks = shards.sent_states(family, dict(sizes), source_tp, target_tp)
    return tuple((layers, 0) for layers in ranks)


@answers("TrackingPlan.kept_states", rule=tracking.kept_states)
def kept_states(
    boundaries: Sequence[int | None],
    tokens: Sequence[int],
    prefixes: Sequence[int],
    chunk_size: int,
    flat: bool,
) -> Value:
    """(row, source, place) of each row that keeps a state, in the order of rows; what is computed before does not matter."""
    del prefixes
    return tuple(tuple(state) for state in tracking.kept_states(boundaries, tokens, chunk_size, flat))


@answers("TrackingPlan.logical_chunks", rule=tracking.logical_chunks)
def logical_chunks(tokens: Sequence[int], chunk_size: int) -> Value:
    """(chunk, offset) of each run of tokens."""
    return tuple(tracking.logical_chunks(tokens, chunk_size))


BROKEN = {
    "TrackingPlan.allocate": tracking.broken_allocation,
    "TrackingPlan.share": tracking.broken_allocation,
    "TrackingPlan.admit": tracking.broken_allocation,
    "TrackingPlan.snapshot_points": tracking.broken_snapshots,
    "TrackingPlan.admit_tokens": tracking.broken_admission,
    "TrackingPlan.pair_blocks": tracking.broken_pairing,
}
"""What adapters hold against a law of the oracle, which says what is wrong."""


@answers(*BROKEN)
def nothing_is_broken(**_: Value) -> Value:
    """Nothing is wrong, whatever is done."""
    return "nothing"


NO_LAW_BROKEN = record("SequenceLaws", **{law.name: "nothing" for law in fields(SequenceLaws)})


@answers("Sequences")
def made(**_: Value) -> Value:
    """A library with a model."""
    return record("Sequences")


@answers(*(f"Sequences.{name}" for name in OPERATIONS))
def stepped(**_: Value) -> Value:
    """An operation after which nothing is broken."""
    return record("SequenceStep", broken=NO_LAW_BROKEN)
