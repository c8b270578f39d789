"""Operations of an allocator of slots, and what the slots of each owner are behind each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

from oracle.tracking import broken_allocation

Do = Callable[[Any], Any]


def allocated(
    size: int, operations: Sequence[tuple[str, int]], pool: Mapping[str, Do], numbers: Callable[[Any], Any]
) -> str:
    """The first error in the slots that an allocator gives out, when they are given and behind each later operation.

    Args:
        operations: as of `broken_allocation`.
        pool: what does each operation; "alloc" is handed a number, "free" and "share" slots, as they were given.
        numbers: a tuple of what was given; what was given, if these are no slots.
    """
    # An allocator that cannot be asked is not asked; operations keep their numbers.
    operations = [
        ("end", 0) if operation in ("left", "admit") and operation not in pool else (operation, argument)
        for operation, argument in operations
    ]
    given: list[Any] = []
    read_again: list[dict[int, tuple[int, ...]]] = []
    held: dict[int, tuple[Any, int]] = {}
    for number, (operation, argument) in enumerate(operations):
        slots, first = held.get(argument, (None, 0))
        there = argument in held
        found: Any = None
        match operation:
            case "alloc":
                slots = pool["alloc"](argument)
                found = None if slots is None else numbers(slots)
                if isinstance(found, tuple):
                    held[number] = slots, 0
                elif found is not None:
                    return broken_allocation(
                        size, operations[: number + 1], [*given, found], [*read_again, {}]
                    )
            case "free" if there:
                del held[argument]
                # The object that was given, as a request gives it back.
                pool["free"](slots[first:] if first else slots)
            case "part" if there:
                held[argument] = slots, first + 1
                pool["free"](slots[first : first + 1])
            case "share" if there:
                # An owner may empty the list that it gives back.
                held[number] = copy(slots), first
                pool["share"](slots[first:] if first else slots)
            case "clear" if "clear" in pool:
                held.clear()
                pool["clear"](None)
            case "clear":
                for slots, first in held.values():
                    pool["free"](slots[first:] if first else slots)
                held.clear()
            case "left" | "admit":
                found = (int(pool[operation](argument)),)
            case "begin" | "end" if operation in pool:
                pool[operation](argument)
        given.append(found)
        read_again.append({owner: numbers(slots)[first:] for owner, (slots, first) in held.items()})
    return broken_allocation(size, operations, given, read_again)
