"""States sent between engines of unequal numbers of ranks: the property finds what is wrong in a plain transfer, and passes the right one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import pytest

from oracle.shards import layouts_of, shard_of_layers
from properties.strategies.releases.shards import SLOTS
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.executors import ordinary_port
from statecheck.execution.registry import load_properties
from subjects import Subject

EXAMPLES = 200
Slices = Callable[[int, int, int], list[tuple[int, int, int]]]
"""Of a part with so many channels on a rank of the source, and of the target, and the place of the smaller rank in the larger one: where
to read, where to write, and how many channels.
"""


def right(here: int, there: int, place: int) -> list[tuple[int, int, int]]:
    """A part that both have whole is copied; the smaller one's place in the larger one is its turn."""
    size = min(here, there)
    if here == there:
        return [(0, 0, size)]
    return [(place * size, 0, size)] if here > there else [(0, place * size, size)]


def first_place(here: int, there: int, _: int) -> list[tuple[int, int, int]]:
    return [(0, 0, min(here, there))]


def a_channel_less(here: int, there: int, place: int) -> list[tuple[int, int, int]]:
    return [(read, written, size - 1) for read, written, size in right(here, there, place)]


def behind(here: int, there: int, place: int) -> list[tuple[int, int, int]]:
    return [(read, written + there, size) for read, written, size in right(here, there, place)]


def transfer(slices: Slices, *, one_part: bool = False) -> Callable[..., Any]:
    """A transfer of lists with such slices, of each part or of all parts as one."""

    def sent(
        family: str,
        model: str,
        sizes: Any,
        source_tp: int,
        target_tp: int,
        slots: Any,
        dtypes: Any,
        padding: int,
    ) -> Any:
        del model, dtypes, padding
        layouts = layouts_of(family, dict(sizes))
        places = [layer * len(layouts) + at for layer in range(2) for at in range(len(layouts))]
        pools = [_pools(layouts, tp_size) for tp_size in (source_tp, target_tp)]
        for rank, pool in enumerate(pools[0]):
            held = [state for layer in shard_of_layers(layouts, source_tp, rank) for state in layer]
            for at in places:
                pool[at][slots[0]][:] = held[at]
        many, few = max(source_tp, target_tp), min(source_tp, target_tp)
        for number in range(many):
            pair = (number, number // (many // few))
            source, target = pair if source_tp == many else pair[::-1]
            for at in places:
                layout = layouts[at % len(layouts)]
                here, there = _widths(layout, source_tp), _widths(layout, target_tp)
                if one_part:
                    here, there = [sum(here)], [sum(there)]
                read = written = 0
                memory = [element for slot in pools[1][target][at] for element in slot]
                width = len(pools[1][target][at][0])
                for mine, yours in zip(here, there, strict=True):
                    for first, to, size in slices(mine, yours, number % (many // few)):
                        chosen = pools[0][source][at][slots[0]]
                        rows = layout.rows
                        taken = chosen[(read + first) * rows : (read + first + size) * rows]
                        begin = slots[1] * width + (written + to) * rows
                        memory[begin : begin + len(taken)] = taken
                    read, written = read + mine, written + yours
                pools[1][target][at] = [memory[one * width : (one + 1) * width] for one in range(SLOTS)]
        return tuple(_seen(pool, slots[1], len(layouts)) for pool in pools[1])

    return sent


def _widths(layout: Any, tp_size: int) -> list[int]:
    """Channels of each part on a rank."""
    return [part.size * max(1, part.units // tp_size) for part in layout.parts]


def _pools(layouts: Sequence[Any], tp_size: int) -> list[list[list[list[int]]]]:
    """By rank, layer and state, and slot: zeros."""
    sizes = [sum(_widths(layout, tp_size)) * layout.rows for layout in layouts] * 2
    return [[[[0] * size for _ in range(SLOTS)] for size in sizes] for _ in range(tp_size)]


def _seen(pool: list[list[list[int]]], slot: int, states: int) -> tuple[Any, int]:
    held = [tuple(one[slot]) for one in pool]
    others = sum(
        element != 0 for one in pool for at, numbers in enumerate(one) if at != slot for element in numbers
    )
    return tuple(tuple(held[at : at + states]) for at in range(0, len(held), states)), 4 * others


WRONG: Mapping[str, Callable[..., Any]] = {
    "the convolution is one part": transfer(right, one_part=True),
    "each rank gets the first slice": transfer(first_place),
    "the last channel is left out": transfer(a_channel_less),
    "slices are written behind their part": transfer(behind),
}


def explore(function: Callable[..., Any]) -> int:
    """Examples that were compared."""
    module = ModuleType("toy_transfers")
    vars(module)["StateTransfer"] = type("StateTransfer", (), {"nixl": staticmethod(function)})
    subject = Subject("toy_transfers", module)
    context = ExecutionContext(subject, ordinary_port(subject, "cpu"))
    tested = next(one for one in load_properties().values() if one.id == "state-transfer/nixl")
    tested.explore(context, seed=3, max_examples=EXAMPLES)
    return context.counts.compared


def test_a_transfer_of_each_part_on_its_own_is_right() -> None:
    assert explore(transfer(right)) == EXAMPLES


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_slice_is_found(name: str) -> None:
    with pytest.raises(Falsified):
        explore(WRONG[name])
