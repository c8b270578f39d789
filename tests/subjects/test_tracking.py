"""Plans of a prefill and allocators of slots: the properties pass what is right, and find what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import pytest

from oracle.tracking import broken_allocation, kept_states, logical_chunks
from statecheck.execution.example import Bench, Falsified
from statecheck.execution.ports import ordinary_port
from statecheck.execution.registry import load_properties
from subjects import Subject

EXAMPLES = 100


def plan(boundaries: Any, tokens: Any, prefixes: Any, chunk_size: int, flat: bool) -> Any:
    del prefixes
    return tuple(tuple(one) for one in kept_states(boundaries, tokens, chunk_size, flat))


def plan_of_rows(boundaries: Any, tokens: Any, prefixes: Any, chunk_size: int, flat: bool) -> Any:
    del flat
    return plan(boundaries, tokens, prefixes, chunk_size, False)


def chunks(tokens: Any, chunk_size: int) -> Any:
    return tuple(logical_chunks(tokens, chunk_size))


def chunks_of_rows(tokens: Any, chunk_size: int) -> Any:
    return tuple((at, 0) for count in tokens for at in range(-(-count // chunk_size)))


def allocate(size: int, operations: Sequence[tuple[str, int]], *, keeps: bool = True) -> str:
    """Slots from a list; those that are given back are lost unless it `keeps` them."""
    free: list[int] = list(range(1, size + 1))
    given: list[Any] = []
    for operation, argument in operations:
        found: Any = None
        if operation == "alloc" and argument <= len(free):
            found, free = tuple(free[:argument]), free[argument:]
        elif operation == "free" and given[argument] is not None and keeps:
            free += given[argument]
        elif operation == "clear":
            free = list(range(1, size + 1))
        elif operation == "left":
            found = (len(free),)
        given.append(found)
    return broken_allocation(size, operations, given)


RIGHT: Mapping[str, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
    "tracking-plan/kept-states": ("kept_states", plan, plan_of_rows),
    "tracking-plan/logical-chunks": ("logical_chunks", chunks, chunks_of_rows),
    "slot-allocator/owners": (
        "allocate",
        allocate,
        lambda *given, **named: allocate(*given, **named, keeps=False),
    ),
}


def explore(id_: str, function: Callable[..., Any]) -> None:
    module = ModuleType("toy_plans")
    vars(module)["TrackingPlan"] = type("TrackingPlan", (), {RIGHT[id_][0]: staticmethod(function)})
    subject = Subject("toy_plans", module)
    tested = next(one for one in load_properties().values() if one.id == id_)
    bench = Bench(subject, ordinary_port(subject, "cpu"))
    tested.explore(bench, seed=3, max_examples=EXAMPLES)
    assert bench.counts.compared > EXAMPLES // 2


@pytest.mark.parametrize("id_", RIGHT)
def test_what_is_right_passes(id_: str) -> None:
    explore(id_, RIGHT[id_][1])


@pytest.mark.parametrize("id_", RIGHT)
def test_what_is_wrong_is_found(id_: str) -> None:
    with pytest.raises(Falsified):
        explore(id_, RIGHT[id_][2])
