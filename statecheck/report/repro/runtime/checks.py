"""Compares results, and the memory of tensors, with what they should be. Guard bytes around a tensor must not change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

findings: list[str] = []
"""What is wrong, a sentence each."""
GUARD = 64
CANARY = 0xA5
guards: dict[int, tuple[torch.Tensor, int]] = {}
"""By the id of a tensor: the tensor, which keeps the id taken, and how many bytes lie before and behind it."""


def expect(place: str, observed: object, expected: object) -> None:
    # True == 1 and 2.0 == 2, but they are other results.
    if type(observed) is not type(expected) or observed != expected:
        findings.append(f"{place} = {observed}, but should be {expected}")


def expect_tensor(place: str, observed: Any, expected: torch.Tensor) -> None:
    if not isinstance(observed, torch.Tensor):
        expect(place, type(observed).__name__, "Tensor")
        return
    expect(f"{place}.dtype", observed.dtype, expected.dtype)
    expect(f"tuple({place}.shape)", tuple(observed.shape), tuple(expected.shape))
    expect(f"{place}.device.type", observed.device.type, expected.device.type)
    if observed.dtype == expected.dtype and observed.shape == expected.shape:
        expect(f"{place}.tolist()", observed.tolist(), expected.tolist())


def expect_type(place: str, observed: object, expected: type) -> None:
    if not isinstance(observed, expected):
        findings.append(f"{place} is of type {type(observed).__name__}, but should be {expected.__name__}")


def memory(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of the storage that a tensor is in."""
    whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return whole.set_(tensor.untyped_storage())


def guarded(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor with guard bytes around its storage."""
    nbytes = memory(tensor).numel()
    whole = torch.full((nbytes + 2 * GUARD,), CANARY, dtype=torch.uint8, device=tensor.device)
    whole[GUARD : GUARD + nbytes] = memory(tensor)
    inside = whole[GUARD : GUARD + nbytes].view(tensor.dtype)
    offset = int(inside.storage_offset() + tensor.storage_offset())
    moved = inside.as_strided(tensor.shape, tensor.stride(), offset)
    guards[id(moved)] = moved, GUARD
    return moved


def _guard_of(tensor: torch.Tensor) -> int:
    return guards[id(tensor)][1] if id(tensor) in guards else 0


def storage(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a storage that belong to its tensor."""
    guard = _guard_of(tensor)
    return memory(tensor)[guard : memory(tensor).numel() - guard]


def view_of(
    tensor: torch.Tensor, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int], offset: int
) -> torch.Tensor:
    """A view into the storage of a tensor, as elements of another type."""
    inside = storage(tensor)
    inside = inside[: inside.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
    return inside.as_strided(shape, strides, int(inside.storage_offset()) + offset)


def overwrite(tensor: torch.Tensor, elements: list[Any]) -> None:
    storage(tensor).view(tensor.dtype).copy_(torch.tensor(elements, dtype=tensor.dtype))


def overwrite_view(view: torch.Tensor, elements: list[Any]) -> None:
    """Elements of a view; those of float types are given as bytes."""
    dtype = torch.uint8 if view.is_floating_point() else view.dtype
    view.copy_(torch.tensor(elements, dtype=dtype).view(view.dtype).reshape(view.shape))


def rows(tensor: torch.Tensor) -> Callable[[int], torch.Tensor]:
    return lambda count: tensor[:count]


def snapshot(**arguments: Any) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """By name: each tensor of the arguments, with a copy of its memory."""
    tensors = [pair for name, value in arguments.items() for pair in _tensors(name, value)]
    return {name: (tensor, memory(tensor).clone()) for name, tensor in tensors}


def _tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    for field, item in getattr(value, "__dict__", {}).items():
        if isinstance(item, torch.Tensor):
            yield from _tensors(f"{name}.{field}", item)


def expect_untouched(before: dict[str, tuple[torch.Tensor, torch.Tensor]], *observed: torch.Tensor) -> None:
    """Expect the memory of a snapshot, without that of the tensors in `observed`, to be as it was."""
    may_change = {tensor.untyped_storage().data_ptr() for tensor in observed}
    for name, (tensor, old) in before.items():
        if tensor.untyped_storage().data_ptr() not in may_change:
            expect(f"{name} is untouched", torch.equal(memory(tensor), old), True)


def expect_storage(name: str, tensor: torch.Tensor, expected: list[Any]) -> None:
    """Expect these elements in the whole storage of a tensor, and no write around it."""
    _expect_guards(name, tensor)
    expect_elements(name, storage(tensor).view(tensor.dtype), expected)


def expect_elements(name: str, tensor: torch.Tensor, expected: list[Any]) -> None:
    """Expect these elements in a tensor, in row-major order; bytes where it is of a float type."""
    whole = tensor.contiguous().reshape(-1)
    seen = (whole.view(torch.uint8) if whole.is_floating_point() else whole).tolist()
    expect(f"len({name})", len(seen), len(expected))
    form = "{:#04x}" if tensor.dtype is torch.uint8 else "{}"
    for i, (element, right) in enumerate(zip(seen, expected, strict=False)):
        if element != right:
            findings.append(f"{name}[{i}] = {form.format(element)}, but should be {form.format(right)}")
            return


def _expect_guards(name: str, tensor: torch.Tensor) -> None:
    guard = _guard_of(tensor)
    if guard:
        whole = memory(tensor).tolist()
        sides = {"before": whole[:guard][::-1], "behind": whole[-guard:]}
        for side, seen in sides.items():
            wrong = [i for i, byte in enumerate(seen) if byte != CANARY]
            if wrong:
                byte = f"{seen[wrong[0]]:#04x}"
                findings.append(f"byte {wrong[0] + 1} {side} {name} = {byte}, but should be {CANARY:#04x}")
