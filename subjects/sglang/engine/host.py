"""The host side of a step without a GPU: kernels and pinned memory, and late copies to host memory and back.

A copy that the release asks for waits in its stream, so many turns as a scenario says, unless the release waits for an event behind it.
The two streams go on without each other; in each of them copies are done in their order.
"""

import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch

from subjects.kit.objects import names_in

_MODULES_WITH_PINNED_MEMORY = (
    "managers.overlap_utils",
    "managers.schedule_batch",
    "managers.utils",
    "mem_cache.pool_host.mamba",
    "mem_cache.pool_host.mha",
    "model_executor.forward_batch_info",
)


def install_host_parts() -> None:
    """Replace what needs a GPU."""
    allocator = names_in("sglang.srt.mem_cache.allocator.paged")
    allocator.update(alloc_extend_kernel=_Launched(_extend), alloc_decode_kernel=_Launched(_decode))
    if torch.cuda.is_available():
        return
    # Pinned memory is for copies to a GPU.
    torch.Tensor.pin_memory = lambda self, *_: self  # type: ignore[method-assign]
    for module in _MODULES_WITH_PINNED_MEMORY:
        names_in(f"sglang.srt.{module}")["torch"] = _Unpinned("torch")


class _Unpinned(types.ModuleType):
    """torch, without pinned memory."""

    def __getattr__(self, name: str) -> Any:
        real = getattr(torch, name)
        if name not in ("tensor", "empty", "zeros", "full"):
            return real

        def make(*given: Any, pin_memory: bool = False, **named: Any) -> Any:
            del pin_memory
            return real(*given, **named)

        return make


class _Launched:
    """Is launched as a Triton kernel is."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getitem__(self, _: Any) -> Callable[..., None]:
        return self.kernel


def _extend(prefixes: Any, ends: Any, last: Any, free: Any, out: Any, _: Any, page: int, *__: Any) -> None:
    """Slots for the tokens behind each prefix: first the rest of its last page, then free pages."""
    pages, at = free.tolist(), 0
    found: list[int] = []
    for prefix, end, slot in zip(prefixes.tolist(), ends.tolist(), last.tolist(), strict=True):
        in_page = min(-prefix % page, end - prefix)
        found += range(slot + 1, slot + 1 + in_page)
        for first in range(prefix + in_page, end, page):
            # Where pages are missing, the release takes no slot of these.
            first_slot = pages[at] * page if at < len(pages) else 0
            found += range(first_slot, first_slot + min(page, end - first))
            at += 1
    out[:] = torch.tensor(found, dtype=out.dtype)


def _decode(ends: Any, last: Any, free: Any, out: Any, _: Any, page: int, *__: Any) -> None:
    """A slot for the last token of each request: the next of its page, or the first of a free one."""
    pages, at = free.tolist(), 0
    for row, (end, slot) in enumerate(zip(ends.tolist(), last.tolist(), strict=True)):
        new = (end - 1) % page == 0
        out[row] = slot + 1 if not new else pages[at] * page if at < len(pages) else 0
        at += new


_USERS = "managers.cache_controller", "mem_cache.l2_transfer"
Places = frozenset[tuple[int, int]]
"""The address of a tensor, and a place along its first dimension."""


def places_in(tensors: Sequence[Any], places: Iterable[int]) -> Places:
    """These places of each of the tensors."""
    return frozenset(product((tensor.data_ptr() for tensor in tensors), places))


@dataclass
class _Waiting:
    """Work of a stream, not before a turn: a copy of places in tensors to places in others, or an event behind copies."""

    turn: int
    act: Callable[[], None]
    written: Places = frozenset()
    read: Places = frozenset()


@dataclass
class Copies:
    """The streams of a process."""

    to_host: int = 0
    from_host: int = 0
    storage: int = 0
    turn: int = 0
    streams: list["CopyStream"] = field(default_factory=list)
    threads: list[Callable[[], None]] = field(default_factory=list)
    """Those of a storage, each of which does what is due."""
    current: "CopyStream | None" = None
    """Where copies are asked for; None for the stream of the forward, which waits for nothing."""

    def add(self, late: int, act: Callable[[], None], written: Places, read: Places) -> None:
        """A copy to places that it writes from places that it reads."""
        if self.current is None:
            act()
            return
        self.current.waiting.append(_Waiting(self.turn + late, act, written, read))
        self.current.go_on(self.turn)

    def begin_turn(self) -> None:
        self.turn += 1
        for stream in self.streams:
            stream.go_on(self.turn)
        for work in tuple(self.threads):
            work()

    def finish(self) -> None:
        """Do all that streams have to do, and be late no more."""
        self.to_host = self.from_host = self.storage = 0
        for stream in self.streams:
            stream.synchronize()

    def written_in(self, tensors: Sequence[Any]) -> set[int]:
        """Places in these tensors to which a copy is not done yet."""
        return self._in(tensors, [copy.written for copy in self._waiting()])

    def read_in(self, tensors: Sequence[Any]) -> set[int]:
        """Places in these tensors from which a copy is not done yet."""
        return self._in(tensors, [copy.read for copy in self._waiting()])

    def _waiting(self) -> list[_Waiting]:
        return [copy for stream in self.streams for copy in stream.waiting]

    @staticmethod
    def _in(tensors: Sequence[Any], copies: Sequence[Places]) -> set[int]:
        addresses = {tensor.data_ptr() for tensor in tensors}
        return {place for places in copies for address, place in places if address in addresses}


COPIES = Copies()


class CopyStream:
    """A stream, as the release uses it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.waiting: list[_Waiting] = []
        COPIES.streams.append(self)

    def go_on(self, turn: int) -> None:
        """Do what is due."""
        while self.waiting and self.waiting[0].turn <= turn:
            self.waiting.pop(0).act()

    def synchronize(self) -> None:
        while self.waiting:
            self.waiting.pop(0).act()

    def wait_event(self, event: "CopyEvent") -> None:
        event.wait(self)

    def wait_stream(self, _: Any) -> None:
        """The forward's stream has done what it was asked for."""


class CopyEvent:
    """An event behind what a stream was asked for when it was recorded."""

    def __init__(self) -> None:
        self.stream: CopyStream | None = None
        self.recorded = 0
        """How often; an event that is recorded again is behind what was asked for last."""
        self.done = True

    def record(self, stream: CopyStream | None = None) -> None:
        self.stream = stream or COPIES.current
        self.recorded += 1
        self.done = self.stream is None or not self.stream.waiting
        if self.stream is not None and not self.done:
            number = self.recorded
            self.stream.waiting.append(_Waiting(0, lambda: self._reached(number)))

    def _reached(self, number: int) -> None:
        self.done = self.done or number == self.recorded

    def query(self) -> bool:
        return self.done

    def synchronize(self) -> None:
        while not self.done and self.stream is not None and self.stream.waiting:
            self.stream.waiting.pop(0).act()

    def wait(self, stream: Any = None) -> None:
        """Have a stream wait for it; that of the forward does so at once."""
        waits = stream if isinstance(stream, CopyStream) else COPIES.current
        if self.done:
            return
        if waits is None:
            self.synchronize()
        elif waits is not self.stream:
            waits.waiting.append(_Waiting(0, self.synchronize))


class _ForwardStream:
    """The stream of the forward."""

    @staticmethod
    def wait_event(event: CopyEvent) -> None:
        event.synchronize()


class CopyDevice:
    """In the place of the release's device module, where it copies to host memory and back."""

    __name__ = "copies"
    Stream, Event = CopyStream, CopyEvent

    @staticmethod
    @contextmanager
    def stream(stream: CopyStream) -> Iterator[None]:
        before, COPIES.current = COPIES.current, stream
        try:
            yield
        finally:
            COPIES.current = before

    @staticmethod
    def current_stream() -> Any:
        return COPIES.current or _ForwardStream


def install_late_copies() -> None:
    """Have the release use these streams, which are new ones."""
    COPIES.finish()
    COPIES.streams.clear()
    COPIES.threads.clear()
    for module in _USERS:
        names_in(f"sglang.srt.{module}")["device_module"] = CopyDevice
