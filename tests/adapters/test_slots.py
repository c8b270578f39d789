"""Copies between slots of states: the properties pass plain indexing, and find what is wrong in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import pytest
import torch

from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from subjects import Subject

EXAMPLES = 60


def clear(conv: Any, slots: Any) -> None:
    for one in conv:
        one[:, slots] = 0


def copy(conv: Any, sources: Any, targets: Any) -> None:
    for one in conv:
        one[:, targets] = one[:, sources].clone()


def track(conv: Any, temporal: Any, sources: Any, mask: Any, targets: Any) -> None:
    there = mask & (sources >= 0) & (targets >= 0)
    for one in (conv, temporal):
        one[:, targets[there]] = one[:, sources[there].long()].clone()


def scatter(
    conv: Any,
    windows: Any,
    temporal: Any,
    states: Any,
    slots: Any,
    drafts: Any,
    kept_slots: Any,
    kept_drafts: Any,
) -> None:
    chosen = [(slots, drafts)] + ([] if kept_slots is None else [(kept_slots, kept_drafts)])
    for target, left in zip((*conv, temporal), (*windows, states), strict=True):
        for one, steps in chosen:
            for row, (slot, step) in enumerate(zip(one.tolist(), steps.tolist(), strict=True)):
                if step >= 0:
                    target[:, slot] = left[:, row, step]


def last_accepted(accepted: Any, counts: Any, lengths: Any, drafts: int, interval: int) -> Any:
    rows = torch.arange(len(counts))
    last = accepted[rows, counts.long() - 1] - rows * drafts
    if lengths is None:
        return last.long(), None
    ends = (lengths + counts) // interval * interval - lengths
    at = accepted[rows, (ends - 1).clamp(min=0)] - rows * drafts
    return last.long(), torch.where(ends > 0, at, -1).long()


def of_rows(rows: Any, slots: Any, out: Any, live: int) -> None:
    out[:live] = slots[rows[:live]]
    out[live:] = -1
    rows[live:] = 0


def without_temporal(conv: Any, temporal: Any, *others: Any) -> None:
    track(conv, temporal.clone(), *others)


def one_draft_later(
    conv: Any, windows: Any, temporal: Any, states: Any, slots: Any, drafts: Any, *kept: Any
) -> None:
    later = torch.where(drafts >= 0, (drafts + 1).clamp(max=states.shape[2] - 1), drafts)
    scatter(conv, windows, temporal, states, slots, later, *kept)


def one_accepted_less(accepted: Any, counts: Any, *others: Any) -> Any:
    return last_accepted(accepted, (counts - 1).clamp(min=1), *others)


RIGHT: Mapping[str, tuple[str, Callable[..., Any]]] = {
    "state-slots/clear": ("clear", clear),
    "state-slots/copy": ("copy", copy),
    "state-slots/boundary": ("track", track),
    "state-slots/accepted": ("scatter", scatter),
    "state-slots/last-accepted": ("last_accepted", last_accepted),
    "state-slots/padded-rows": ("of_rows", of_rows),
}
WRONG: Mapping[str, tuple[str, Callable[..., Any]]] = {
    "the last convolution is not cleared": (
        "state-slots/clear",
        lambda conv, slots: clear(conv[:-1], slots),
    ),
    "only the first layer is copied": (
        "state-slots/copy",
        lambda conv, *slots: copy([one[:1] for one in conv], *slots),
    ),
    "the temporal state is not kept": ("state-slots/boundary", without_temporal),
    "the state after a later draft is taken": ("state-slots/accepted", one_draft_later),
    "the last accepted draft is left out": ("state-slots/last-accepted", one_accepted_less),
    "padded rows have slots": (
        "state-slots/padded-rows",
        lambda rows, slots, out, _: of_rows(rows, slots, out, len(rows)),
    ),
}


def explore(id_: str, function: Callable[..., Any]) -> int:
    """Examples that were compared."""
    module = ModuleType("toy_slots")
    vars(module)["StateSlots"] = type("StateSlots", (), {RIGHT[id_][0]: staticmethod(function)})
    subject = Subject("toy_slots", module)
    context = ExecutionContext(subject, ordinary_port(subject, "cpu"))
    tested = load_properties()[id_]
    tested.explore(context, seed=3, max_examples=EXAMPLES)
    return context.counts.compared


@pytest.mark.parametrize("id_", RIGHT)
def test_plain_indexing_is_right(id_: str) -> None:
    assert explore(id_, RIGHT[id_][1]) == EXAMPLES


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_copy_is_found(name: str) -> None:
    with pytest.raises(Falsified):
        explore(*WRONG[name])
