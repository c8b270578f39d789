"""Memory of the tensors that a subject is handed: what lies around them, what they held before, where they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch

from properties.harness.values import CANARY, Address, Tensor, Value, View

GUARD_BYTES = 64


class SubjectError(Exception):
    """Carries what the subject raised, as its cause, apart from errors of the harness itself."""


@dataclass(eq=False)
class Block:
    """Memory of one tensor: guard bytes, the storage, guard bytes; `before` is its snapshot, where it has contents."""

    view: torch.Tensor
    memory: torch.Tensor
    before: torch.Tensor | None = None

    @property
    def inside(self) -> torch.Tensor:
        """The bytes of the storage."""
        return self.memory if self.before is None else self.memory[GUARD_BYTES:-GUARD_BYTES]

    @property
    def changed(self) -> bool:
        return self.before is not None and not torch.equal(self.memory, self.before)

    def guards(self) -> tuple[bytes, bytes]:
        """The bytes before and behind the storage."""
        if self.before is None:
            return b"", b""
        return raw_bytes(self.memory[:GUARD_BYTES]), raw_bytes(self.memory[-GUARD_BYTES:])

    def accept(self) -> None:
        """What the storage holds now is right; guard bytes never change rightly."""
        if self.before is not None:
            self.before[GUARD_BYTES:-GUARD_BYTES] = self.inside


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
    block: Block

    def accept(self) -> None:
        """What the view holds now is right."""
        if self.block.before is not None:
            before = self.block.before[GUARD_BYTES:-GUARD_BYTES]
            _view(before, _as_tensor(self.value)).copy_(self.view)


@dataclass
class Scope:
    """What the arguments of one call became: the tensor at each path, and its memory."""

    found: dict[str, tuple[Block, torch.Tensor]] = field(default_factory=dict)
    paths: dict[int, str] = field(default_factory=dict)

    def add(self, path: str, block: Block, view: torch.Tensor | None = None) -> torch.Tensor:
        tensor = block.view if view is None else view
        self.found[path] = block, tensor
        self.paths[id(tensor)] = path
        return tensor

    def include(self, path: str, inner: Scope) -> None:
        """Everything of `inner`, which is part of the object at `path`."""
        for name, (block, view) in inner.found.items():
            self.add(joined(path, name), block, view)

    def changed(self, observed: list[Block]) -> tuple[str, ...]:
        """Where memory was written to that is not among the observed; each memory under its first path."""
        told: list[Block] = list(observed)
        names = []
        for name, (block, _) in self.found.items():
            if block not in told and block.changed:
                told.append(block)
                names.append(name)
        return tuple(names)

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


class Allocator:
    """Makes blocks on `device` for tensors described as values."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._blank: dict[str, torch.Tensor] = {}
        self._lendable: set[str] = set()

    def begin_call(self) -> None:
        self._lendable = {"cpu", self.device}

    def named(self, tensor: Tensor) -> Block:
        """A block that stays for longer than a call."""
        self._lendable = set()
        return self.allocate(tensor)

    def allocate(self, tensor: Tensor) -> Block:
        dtype = getattr(torch, tensor.dtype)
        device = self.device if tensor.on == "device" else "cpu"
        if tensor.elements is None:
            memory = self._blank_memory(tensor.storage_size * dtype.itemsize, device)
            return Block(_view(memory, tensor), memory)
        guard = torch.full((GUARD_BYTES,), CANARY, dtype=torch.uint8)
        memory = torch.cat((guard, contents(tensor.elements, dtype), guard)).to(device)
        inside = memory[GUARD_BYTES : memory.numel() - GUARD_BYTES]
        return Block(_view(inside, tensor), memory, memory.clone())

    def _blank_memory(self, nbytes: int, device: str) -> torch.Tensor:
        """Memory whose contents nobody looks at; pools with huge strides take gigabytes, so a call is lent one."""
        if device not in self._lendable:
            return torch.empty(nbytes, dtype=torch.uint8, device=device)
        self._lendable.remove(device)
        if self._blank.get(device) is None or self._blank[device].numel() < nbytes:
            self._blank[device] = torch.empty(nbytes, dtype=torch.uint8, device=device)
        return self._blank[device][:nbytes]


def window(block: Block, view: View) -> torch.Tensor:
    """The typed view into the block's storage.

    Raises:
        ValueError: it does not lie inside the storage.
    """
    tensor, room = _as_tensor(view), block.inside.numel()
    reach = tensor.storage_size * getattr(torch, view.dtype).itemsize
    if view.offset < 0 or (reach > room and prod(view.shape)):
        raise ValueError(f"view = {view}, but should lie inside {room} bytes [window]")
    return _view(block.inside, tensor)


def _as_tensor(view: View) -> Tensor:
    return Tensor(view.dtype, view.shape, None, view.strides, view.offset)


def contents(elements: tuple[int, ...] | bytes, dtype: torch.dtype) -> torch.Tensor:
    """The bytes of `elements`, as a vector on the host."""
    if not isinstance(elements, bytes):
        return torch.tensor(elements, dtype=dtype).view(torch.uint8)
    raw = torch.empty(len(elements), dtype=torch.uint8)
    if elements:
        raw.copy_(torch.frombuffer(bytearray(elements), dtype=torch.uint8))
    return raw


def raw_bytes(tensor: torch.Tensor) -> bytes:
    """The elements of a tensor, in row-major order, as the bytes that they are."""
    return tensor.cpu().reshape(-1).view(torch.uint8).numpy().tobytes()


def joined(path: str, name: str) -> str:
    """Where `name` of the object at `path` is; `self` goes without saying."""
    return f"{path}.{name}" if path not in ("", "self") else name


def _view(inside: torch.Tensor, tensor: Tensor) -> torch.Tensor:
    dtype = getattr(torch, tensor.dtype)
    whole = inside[: inside.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
    strides = tensor.strides or tensor.contiguous_strides
    return whole.as_strided(tensor.shape, strides, whole.storage_offset() + tensor.offset)
