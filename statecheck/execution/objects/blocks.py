"""Memory of the tensors that a subject is handed: what lies around them, what they held before, where they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import torch

from statecheck.case.values import CANARY, Address, Tensor, Value, View, dense_strides

GUARD_BYTES = 64


class SubjectError(Exception):
    """Carries what the subject raised, as its cause, apart from errors of the harness itself."""


@dataclass(eq=False)
class Allocation:
    """Memory of one tensor: guard bytes, the storage, guard bytes; `before` is its snapshot, where it has contents.

    What a result holds has no guards. `image` is memory of the host that holds the same (see `Arena`); then `before` is on the host as well.
    """

    view: torch.Tensor
    memory: torch.Tensor
    before: torch.Tensor | None = None
    guarded: bool = True
    image: torch.Tensor | None = None

    @property
    def inside(self) -> torch.Tensor:
        """The bytes of the storage."""
        return self.within(self.memory)

    @property
    def seen(self) -> torch.Tensor:
        """What to look at, and to write to where it is not the device that writes."""
        return self.memory if self.image is None else self.image

    def within(self, memory: torch.Tensor) -> torch.Tensor:
        """Without the guards, where there are any."""
        return memory[GUARD_BYTES:-GUARD_BYTES] if self.guarded else memory

    def difference(self) -> torch.Tensor | bool:
        """Whether the memory, or what is known of it, is not what it was; as a tensor on its device, to be read later."""
        if self.before is None and not self.guarded:
            return False
        if self.before is None:
            ends = torch.cat((self.seen[:GUARD_BYTES], self.seen[-GUARD_BYTES:]))
            return (ends != CANARY).any()
        if self.seen.device.type == "cpu":
            return not torch.equal(self.seen, self.before)
        return (self.seen != self.before).any()

    def guards(self) -> tuple[bytes, bytes]:
        """The bytes before and behind the storage."""
        if not self.guarded:
            return b"", b""
        seen = self.seen.cpu().numpy()
        return seen[:GUARD_BYTES].tobytes(), seen[-GUARD_BYTES:].tobytes()

    def accept(self) -> None:
        """What the storage holds now is right; guard bytes never change rightly."""
        if self.before is not None:
            self.within(self.before).copy_(self.within(self.seen))


@dataclass
class Named:
    """What a name is bound to; the scope has the memory that is part of it."""

    value: Any
    scope: Scope


@dataclass(eq=False)
class Window:
    """A named view of another name's memory."""

    value: View
    view: torch.Tensor
    block: Allocation

    @property
    def seen(self) -> torch.Tensor:
        """As `Block.seen`, of the view."""
        return view_of(self.block.within(self.block.seen), self.value)

    def accept(self) -> None:
        """What the view holds now is right."""
        if self.block.before is not None:
            before = self.block.within(self.block.before)
            view_of(before, self.value).copy_(self.seen)


@dataclass
class Scope:
    """What the arguments of one call became: the tensor at each path, and its memory."""

    found: dict[str, tuple[Allocation, torch.Tensor]] = field(default_factory=dict)
    paths: dict[int, str] = field(default_factory=dict)

    def add(self, path: str, block: Allocation, view: torch.Tensor | None = None) -> torch.Tensor:
        tensor = block.view if view is None else view
        # `found` keeps the tensor alive, so that no other one gets its id.
        self.found[path] = block, tensor
        self.paths[id(tensor)] = path
        return tensor

    def include(self, path: str, inner: Scope) -> None:
        """Everything of `inner`, which is part of the object at `path`."""
        for name, (block, view) in inner.found.items():
            self.add(joined(path, name), block, view)

    def changed(self, observed: list[Allocation]) -> tuple[str, ...]:
        """Where memory was written to that is not among the observed; each memory under its first path."""
        kept = {id(block) for block in observed}
        asked: dict[int, tuple[str, torch.Tensor | bool]] = {}
        for name, (block, _) in self.found.items():
            if id(block) not in kept and id(block) not in asked:
                asked[id(block)] = name, block.difference()
        flags = _read_together([flag for _, flag in asked.values()])
        return tuple(name for (name, _), differs in zip(asked.values(), flags, strict=True) if differs)

    def address(self, number: int) -> Value:
        """The address relative to the argument whose memory it points into, or the bare number where there is none."""
        near = [
            (name, number - view.data_ptr())
            for name, (block, view) in self.found.items()
            if 0 <= number - block.memory.data_ptr() < block.memory.numel() * block.memory.element_size()
        ]
        if not near:
            return number
        # Of several views of one memory, the one that starts closest before the address.
        return Address(*min(near, key=lambda found: (found[1] < 0, abs(found[1]))))


def _read_together(flags: list[torch.Tensor | bool]) -> list[bool]:
    """The values of flags; those on a device in one transfer, since each one waits for all that it has to do."""
    unread = [flag for flag in flags if flag is not True and flag is not False]
    if not unread:
        return [bool(flag) for flag in flags]
    device = next((flag.device for flag in unread if flag.device.type != "cpu"), torch.device("cpu"))
    read = iter(torch.stack([flag.to(device) for flag in unread]).tolist())
    return [next(read) if isinstance(flag, torch.Tensor) else flag for flag in flags]


def window(block: Allocation, view: View) -> torch.Tensor:
    """The typed view into the block's storage.

    Raises:
        ValueError: it does not lie inside the storage.
    """
    room, described = block.inside.numel(), Tensor(view.dtype, view.shape, None, view.strides, view.offset)
    reach = described.storage_size * getattr(torch, view.dtype).itemsize
    if view.offset < 0 or (reach > room and prod(view.shape)):
        raise ValueError(f"view = {view}, but should lie inside {room} bytes [window]")
    return view_of(block.inside, view)


def contents(elements: tuple[int, ...] | bytes, dtype: torch.dtype) -> torch.Tensor:
    """The bytes of `elements`, as a vector on the host."""
    if not isinstance(elements, bytes):
        return torch.tensor(elements, dtype=dtype).view(torch.uint8)
    raw = torch.empty(len(elements), dtype=torch.uint8)
    if elements:
        raw.copy_(torch.frombuffer(bytearray(elements), dtype=torch.uint8))
    return raw


def array_of(elements: tuple[int, ...] | bytes, dtype: str) -> np.ndarray:
    """The bytes of `elements`, as an array; NumPy knows all integers, and torch the rest."""
    if isinstance(elements, bytes):
        return np.frombuffer(elements, np.uint8)
    if dtype == "bool" or "int" in dtype:
        return np.array(elements, dtype).view(np.uint8)
    return contents(elements, getattr(torch, dtype)).numpy()


def raw_bytes(tensor: torch.Tensor) -> bytes:
    """The elements of a tensor, in row-major order, as the bytes that they are."""
    return tensor.cpu().reshape(-1).view(torch.uint8).numpy().tobytes()


def joined(path: str, name: str) -> str:
    """Where `name` of the object at `path` is; `self` goes without saying."""
    return f"{path}.{name}" if path not in ("", "self") else name


def guarded_view(memory: torch.Tensor, tensor: Tensor) -> torch.Tensor:
    """The tensor in memory that has guards around just its storage; as `view_of`, with fewer calls of torch."""
    dtype = getattr(torch, tensor.dtype)
    if memory.numel() % dtype.itemsize:
        return view_of(memory[GUARD_BYTES:-GUARD_BYTES], tensor)
    strides = tensor.strides or dense_strides(tensor.shape)
    whole = memory.view(dtype)
    begin = whole.storage_offset() + GUARD_BYTES // dtype.itemsize + tensor.offset
    return whole.as_strided(tensor.shape, strides, begin)


def view_of(inside: torch.Tensor, tensor: Tensor | View) -> torch.Tensor:
    dtype = getattr(torch, tensor.dtype)
    rest = inside.numel() % dtype.itemsize
    whole = (inside[:-rest] if rest else inside).view(dtype)
    strides = tensor.strides or dense_strides(tensor.shape)
    return whole.as_strided(tensor.shape, strides, whole.storage_offset() + tensor.offset)
