"""Plans of a prefill and allocators of slots: the properties pass what is right, and find what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import pytest

from oracle.tracking import broken_allocation, kept_states, logical_chunks
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.executors import ordinary_port
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


def allocate_views(size: int, operations: Sequence[tuple[str, int]]) -> str:
    """Slots as views of a stack of free ones, whose top moves: slots that are given back are written over those that were given before."""
    stack, top = list(range(1, size + 1)), size
    given: list[Any] = []
    views: dict[int, tuple[int, int]] = {}
    read_again: list[dict[int, tuple[int, ...]]] = []
    for number, (operation, argument) in enumerate(operations):
        found: Any = None
        if operation == "alloc" and argument <= top:
            top -= argument
            views[number] = top, top + argument
            found = tuple(stack[top : top + argument])
        elif operation == "free" and argument in views:
            first, end = views.pop(argument)
            back = stack[first:end]
            stack[top : top + len(back)] = back
            top += len(back)
        elif operation == "clear":
            stack, top = list(range(1, size + 1)), size
            views.clear()
        elif operation == "left":
            found = (top,)
        given.append(found)
        read_again.append({at: tuple(stack[first:end]) for at, (first, end) in views.items()})
    return broken_allocation(size, operations, given, read_again)


def test_slots_that_are_views_of_the_free_stack_are_found() -> None:
    with pytest.raises(Falsified):
        explore("slot-allocator/owners", allocate_views)


def test_slots_that_change_behind_a_later_operation_are_wrong() -> None:
    operations = [("alloc", 1), ("alloc", 1), ("free", 0)]
    given = [(3,), (2,), None]
    assert broken_allocation(3, operations, given) == "nothing"
    changed = [{0: (3,)}, {0: (3,), 1: (2,)}, {1: (3,)}]
    assert broken_allocation(3, operations, given, changed) == (
        "the slots of allocation 1 are (3,) behind operation 2, but should be (2,)"
    )


def explore(id_: str, function: Callable[..., Any]) -> None:
    module = ModuleType("toy_plans")
    vars(module)["TrackingPlan"] = type("TrackingPlan", (), {RIGHT[id_][0]: staticmethod(function)})
    subject = Subject("toy_plans", module)
    tested = load_properties()[id_]
    context = ExecutionContext(subject, ordinary_port(subject, "cpu"))
    tested.explore(context, seed=3, max_examples=EXAMPLES)
    assert context.counts.compared > EXAMPLES // 2


@pytest.mark.parametrize("id_", RIGHT)
def test_what_is_right_passes(id_: str) -> None:
    explore(id_, RIGHT[id_][1])


@pytest.mark.parametrize("id_", RIGHT)
def test_what_is_wrong_is_found(id_: str) -> None:
    with pytest.raises(Falsified):
        explore(id_, RIGHT[id_][2])
