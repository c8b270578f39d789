"""Makes the memory of tensors, and lends and takes back what is too large to be made for each call."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from statecheck.case.values import CANARY, Tensor
from statecheck.execution.objects.arena import Arena
from statecheck.execution.objects.blocks import GUARD_BYTES, Allocation, Window, array_of, guarded_view

_VAST = 2**30


class Allocator:
    """Makes blocks on `device` for tensors described as values, with guards around them.

    Args:
        arena: where small tensors on the device lie; without one, each has memory of its own.
    """

    def __init__(self, device: str, *, arena: Arena | None = None) -> None:
        self.device = device
        self.arena = arena
        self._blank: dict[str, torch.Tensor] = {}
        self._lendable: set[str] = set()
        self._vast = False

    def begin_example(self) -> None:
        """Memory of gigabytes goes back to the device, which other processes want to use too."""
        if self.arena is not None:
            self.arena.begin()
        if self._vast:
            self._vast = False
            self._blank.clear()
            torch.cuda.empty_cache()

    def give_back(self) -> None:
        """As `begin_example`, in the middle of one, of what was lent to calls."""
        lent = self._blank.get(self.device)
        if lent is not None and self.device != "cpu" and lent.numel() > _VAST:
            del lent, self._blank[self.device]
            torch.cuda.empty_cache()

    def begin_call(self) -> None:
        self._lendable = {"cpu", self.device}

    def flush(self) -> None:
        """The subject may look at everything, and write to it."""
        if self.arena is not None:
            self.arena.flush()

    def fetching(self) -> AbstractContextManager[None]:
        """As `pull`, once the caller has waited for the device."""
        return nullcontext() if self.arena is None else self.arena.fetching()

    def pull(self) -> None:
        """What the subject has written can be looked at."""
        if self.arena is not None:
            self.arena.pull()

    def imaged(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor, or what shows it on the host."""
        found = None if self.arena is None else self.arena.imaged(tensor)
        return tensor if found is None else found

    def overwrite(self, target: Allocation | Window, raw: torch.Tensor) -> None:
        """These bytes are the elements of a whole storage, or of a view, from now on."""
        block = target if isinstance(target, Allocation) else target.block
        if block.image is not None:
            self.pull()
        into = block.within(block.seen) if isinstance(target, Allocation) else target.seen
        raw = raw.to(into.device)
        into.copy_(raw.view(into.dtype).reshape(into.shape))
        if block.before is not None:
            block.before.copy_(block.seen)
        if self.arena is not None and block.image is not None:
            self.arena.written(block.memory)

    def named(self, tensor: Tensor) -> Allocation:
        """A block that stays for longer than a call."""
        self._lendable = set()
        return self.allocate(tensor)

    def allocate(self, tensor: Tensor) -> Allocation:
        device = self.device if tensor.on == "device" else "cpu"
        block = self._in_arena(tensor) if tensor.on == "device" else None
        if block is not None:
            return block
        memory = self._memory(tensor, device)
        before = None if tensor.elements is None else memory.clone()
        return Allocation(guarded_view(memory, tensor), memory, before)

    def _in_arena(self, tensor: Tensor) -> Allocation | None:
        if self.arena is None:
            return None
        dtype = getattr(torch, tensor.dtype)
        nbytes = tensor.storage_size * dtype.itemsize + 2 * GUARD_BYTES
        begin = self.arena.reserve(nbytes)
        if begin is None:
            return None
        memory = self.arena.memory(begin, nbytes)
        image, right = self.arena.image_at(begin, nbytes)
        raw = None if tensor.elements is None else array_of(tensor.elements, tensor.dtype)
        self.arena.put(begin, begin + nbytes, GUARD_BYTES, CANARY, raw)
        before = right if raw is not None else None
        return Allocation(guarded_view(memory, tensor), memory, before, image=image)

    def _memory(self, tensor: Tensor, device: str) -> torch.Tensor:
        dtype = getattr(torch, tensor.dtype)
        if tensor.elements is None:
            memory = self._blank_memory(tensor.storage_size * dtype.itemsize + 2 * GUARD_BYTES, device)
            memory[:GUARD_BYTES] = memory[-GUARD_BYTES:] = CANARY
            return memory
        raw = array_of(tensor.elements, tensor.dtype)
        # NumPy writes it, which takes half the time; torch has it, whose memory a subject may resize.
        memory = torch.empty(len(raw) + 2 * GUARD_BYTES, dtype=torch.uint8)
        whole = memory.numpy()
        whole[:GUARD_BYTES] = whole[-GUARD_BYTES:] = CANARY
        whole[GUARD_BYTES:-GUARD_BYTES] = raw
        return memory.to(device)

    def _blank_memory(self, nbytes: int, device: str) -> torch.Tensor:
        """Memory whose contents are not looked at; pools with huge strides take gigabytes, so a call is lent one."""
        self._vast |= nbytes > _VAST and device != "cpu"
        if device not in self._lendable:
            return torch.empty(nbytes, dtype=torch.uint8, device=device)
        self._lendable.remove(device)
        if self._blank.get(device) is None or self._blank[device].numel() < nbytes:
            self._blank[device] = torch.empty(nbytes, dtype=torch.uint8, device=device)
        return self._blank[device][:nbytes]
