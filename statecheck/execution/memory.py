"""Memory of the tensors that a subject is handed: what lies around them, what they held before, where they are, and who watches it.

Every tensor of an example has memory of its own, with guard bytes before and behind its storage (`Allocation`). What is too large to be made for
each call is lent to it and taken back (`Allocator`).

On a device a transfer waits for all that is to be done there, and costs as much for a byte as for ten thousand. So there the tensors of an example
lie in one piece of memory, with its image on the host (`Arena`): one transfer each way for a call, however many tensors it has. What is written to them is written
to the image first, and uploaded before the subject runs; what the subject has written is downloaded once, after the call.

On a CPU the sanitizer knows every tensor that a call is handed, and sees the call's launches only (`Watched`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch

from statecheck.case.findings import Access
from statecheck.case.values import CANARY, Address, Tensor, Value, View, dense_strides
from statecheck.kernels.sanitizer.watch import Sanitizer

ARENA_BYTES = 8 << 20
LARGEST = 256 << 10
"""Memory larger than this is allocated alone: little of it is written."""
_ALIGNMENT = 512
"""As in torch's own allocator on CUDA. Triton compiles other code for pointers that do not divide by 16."""


@dataclass(frozen=True)
class _Span:
    """Memory of a CUDA device, in the terms in which torch takes it over as a storage of its own."""

    address: int
    nbytes: int

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self.address, False), "version": 3}


class Arena:
    """Memory on `device`, handed out from its beginning on in every example.

    The image holds what the device does, but for what was written to the image since (`flush` uploads it) and for what a subject
    has written since (`pull` and `fetching` download it).
    """

    def __init__(self, device: str, nbytes: int = ARENA_BYTES) -> None:
        self.device = device
        self.nbytes = nbytes
        self._used = 0
        self._unsent: list[tuple[int, int]] = []
        self._stale = False

    # Made when it is needed: who only asks what could be run leaves the device alone.
    @cached_property
    def _memory(self) -> torch.Tensor:
        return torch.zeros(self.nbytes, dtype=torch.uint8, device=self.device)

    @cached_property
    def _first(self) -> int:
        return self._memory.data_ptr()

    @cached_property
    def _image(self) -> torch.Tensor:
        return torch.zeros(self.nbytes, dtype=torch.uint8, pin_memory=self.device != "cpu")

    @cached_property
    def _right(self) -> torch.Tensor:
        return torch.zeros(self.nbytes, dtype=torch.uint8)

    @cached_property
    def _bytes(self) -> tuple[np.ndarray, np.ndarray]:
        """The image and the snapshot of it, as arrays, which take half the time to be written."""
        return self._image.numpy(), self._right.numpy()

    def begin(self) -> None:
        """Nothing is handed out any more."""
        self._used, self._stale = 0, False
        self._unsent.clear()

    def reserve(self, nbytes: int) -> int | None:
        """Where `nbytes` of free memory begin, None where there is not enough left."""
        begin = self._used
        if nbytes > LARGEST or begin + nbytes > self.nbytes:
            return None
        self._used = begin + -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return begin

    def memory(self, begin: int, nbytes: int) -> torch.Tensor:
        """The device's bytes there, as a storage that has no others."""
        # A slice of the tensor would have all of its storage.
        if self.device == "cpu":
            return torch.from_numpy(self._memory.numpy()[begin : begin + nbytes])
        return torch.as_tensor(_Span(self._first + begin, nbytes), device=self.device)

    def image_at(self, begin: int, nbytes: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The image of these bytes, and as much room for a snapshot of it."""
        return self._image[begin : begin + nbytes], self._right[begin : begin + nbytes]

    def put(self, begin: int, end: int, guard: int, filler: int, raw: np.ndarray | None) -> None:
        """Write guards of so many bytes into the image, and between them, with a snapshot of all of it, the bytes of `raw`."""
        image, right = self._bytes
        image[begin : begin + guard] = filler
        image[end - guard : end] = filler
        if raw is not None:
            image[begin + guard : end - guard] = raw
            right[begin:end] = image[begin:end]
        self._note(begin, end)

    def written(self, memory: torch.Tensor) -> None:
        """The image of this memory is to be uploaded."""
        begin = memory.data_ptr() - self._first
        self._note(begin, begin + memory.numel())

    def _note(self, begin: int, end: int) -> None:
        if self._unsent and self._unsent[-1][1] + _ALIGNMENT >= begin >= self._unsent[-1][0]:
            # What lies between two pieces of memory belongs to neither.
            begin, end = self._unsent[-1][0], max(end, self._unsent[-1][1])
            self._unsent.pop()
        self._unsent.append((begin, end))

    def flush(self) -> None:
        """The device holds what was written. A subject is going to run: what it writes is not in the image."""
        self._upload()
        self._stale = True

    def _upload(self) -> None:
        for begin, end in self._unsent:
            self._memory[begin:end].copy_(self._image[begin:end], non_blocking=True)
        self._unsent.clear()

    @contextmanager
    def fetching(self) -> Iterator[None]:
        """The image holds what the device does, once the caller has waited for the device."""
        if self._stale and self._used:
            self._upload()
            self._image[: self._used].copy_(self._memory[: self._used], non_blocking=True)
        yield
        self._stale = False

    def pull(self) -> None:
        """The image holds what the device does."""
        if self._stale:
            with self.fetching():
                if self._used and self.device != "cpu":
                    torch.cuda.current_stream().synchronize()

    def imaged(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The same view of the image, which is fetched if it was not yet; None where the tensor lies elsewhere."""
        if not self._used or tensor.device.type != self._memory.device.type:
            return None
        begin = tensor.data_ptr() - self._first
        if not 0 <= begin < self._used:
            return None
        self.pull()
        itemsize = tensor.element_size()
        typed = self._image[begin % itemsize :]
        typed = typed[: typed.numel() // itemsize * itemsize].view(tensor.dtype)
        return typed.as_strided(tuple(tensor.shape), tensor.stride(), begin // itemsize)


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


Bound = Allocation | Window | Named | SubjectError
"""What a name may be bound to; to an error where making it raised."""


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
    """The path of attribute `name` of the object at `path`. The path of an attribute of `self` is the name alone."""
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


class Watched:
    """The sanitizer of one example after another.

    Args:
        record: keep who wrote which byte, and when the host did.
        bounds_only: find accesses alone that may end the process.
    """

    def __init__(self, *, record: bool = False, bounds_only: bool = False) -> None:
        self.record, self.bounds_only = record, bounds_only
        self.begin()

    @cached_property
    def sanitizer(self) -> Sanitizer:
        """Made when it is needed: most functions launch nothing."""
        return Sanitizer(record=self.record, bounds_only=self.bounds_only)

    def begin(self) -> None:
        vars(self).pop("sanitizer", None)
        self._by_host: dict[int, int] = {}
        self._kept: set[tuple[object, ...]] = set()

    @contextmanager
    def watching(self, scope: Scope, *, kept: bool) -> Iterator[None]:
        """Watch launches that are handed the tensors of `scope`, or their addresses.

        Args:
            kept: the call leaves an object behind, which may remember their addresses.
        """
        # Not before the process is prepared: Triton reads TRITON_INTERPRET when it is imported.
        from statecheck.kernels.launch import watching

        new: dict[tuple[object, ...], tuple[str, torch.Tensor]] = {}
        asked = False

        def informed() -> Sanitizer:
            nonlocal asked
            if not asked:
                asked = True
                views = {_key(view): (path, view) for path, (_, view) in scope.found.items()}
                new.update((key, found) for key, found in views.items() if key not in self._kept)
                for path, view in new.values():
                    self.sanitizer.register(view, path)
            return self.sanitizer

        if kept:
            informed()
            self._kept.update(new)
        try:
            # At the first launch: most functions launch nothing.
            with watching(informed):
                yield
        finally:
            if not kept:
                for _, view in new.values():
                    self.sanitizer.forget(view)

    def unwritten(self, memory: torch.Tensor) -> None:
        self.sanitizer.unwritten(memory)

    def overwritten(self, view: torch.Tensor, raw: torch.Tensor) -> None:
        """The host is about to write `raw` there."""
        self.sanitizer.written(view)
        if self.record:
            changed = view.contiguous().view(-1).view(torch.uint8) != raw
            places = _byte_addresses(view)[changed]
            self._by_host.update(dict.fromkeys(places.tolist(), self.sanitizer.launches))

    def last_writer(self, address: int) -> Access | None:
        """The last access of a kernel that left what a byte holds, None where it was the host."""
        access = self.sanitizer.last_writer(address)
        if access is None or self._by_host.get(address, -1) >= access.launch:
            return None
        return access


def _key(view: torch.Tensor) -> tuple[object, ...]:
    return view.data_ptr(), view.shape, view.stride(), view.element_size()


def _byte_addresses(view: torch.Tensor) -> torch.Tensor:
    """The address of every byte of a view, in row-major order of its elements."""
    first = torch.zeros((), dtype=torch.int64)
    for size, stride in zip(view.shape, view.stride(), strict=True):
        first = first[..., None] + torch.arange(size) * stride
    elements = view.data_ptr() + first.reshape(-1, 1) * view.element_size()
    return (elements + torch.arange(view.element_size())).reshape(-1)
