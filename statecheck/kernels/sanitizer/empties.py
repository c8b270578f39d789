"""What `torch.empty` returns is unwritten, until torch has written it.

The functions of `_EMPTIES` return memory that has not been written. Every torch operation is watched for
what it writes: in place, into `out=`, or through a view. A tensor that leaves torch's sight (`numpy()`, its storage) counts
as written from then on, since what happens to it cannot be seen. So do writes that only torch's internals make.
Not seen are writes through `data_ptr()` by ctypes or an extension that is no torch operation, through a capsule of
`torch.utils.dlpack.to_dlpack`, and by threads that were running before: declare those by `Sanitizer.written`.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from statecheck.kernels.sanitizer.views import TensorView, geometry_of, view_of
from statecheck.kernels.sanitizer.watch import Sanitizer

_EMPTIES = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
_SEEN_BY_OTHERS = {"numpy", "__array__", "__dlpack__"}
_STORAGE_GIVEN_AWAY = {"untyped_storage", "storage", "share_memory_"}

_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)
_LAUNCHERS = ("triton.", "statecheck.")
_RUNS = 256
"""Rows picked in more runs than that count as all rows."""


@contextlib.contextmanager
def empties_unwritten(watch: Sanitizer) -> Iterator[None]:
    """In this context, memory that torch has not initialised is unwritten until something writes it."""
    from statecheck.kernels.launch import launching

    marks, start = _Marks(watch), threading.Thread.start
    threading.Thread.start = _started(marks, start)  # type: ignore[method-assign]
    try:
        with launching(marks.settled), _watching(marks):
            yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]
        marks.drop_all()


@contextlib.contextmanager
def _watching(marks: _Marks) -> Iterator[None]:
    """Modes belong to a thread."""
    with _Calls(marks), _Operations(marks):
        yield


def _started(marks: _Marks, plain: Callable[..., None]) -> Callable[..., None]:
    def start(thread: threading.Thread) -> None:
        body = thread.run

        def run() -> None:
            with _watching(marks):
                body()

        thread.run = run  # type: ignore[method-assign]
        plain(thread)

    return start


class _Calls(TorchFunctionMode):
    """Python's calls of torch."""

    def __init__(self, marks: _Marks) -> None:
        super().__init__()
        self._marks = marks

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords, name = kwargs or {}, getattr(func, "__name__", "")
        if name in _SEEN_BY_OTHERS:
            self._marks.write(args[0])
        if name in _STORAGE_GIVEN_AWAY:
            self._marks.give_away(args[0])
        if name == "data_ptr":
            self._marks.address_taken(args[0], sys._getframe(1))
        result = func(*args, **keywords)
        if name in _EMPTIES and keywords.get("out") is None and isinstance(result, torch.Tensor):
            self._marks.add(result)
        return result


class _Operations(TorchDispatchMode):
    """Torch's operations."""

    def __init__(self, marks: _Marks) -> None:
        super().__init__()
        self._marks = marks

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if any(hasattr(kind, "__torch_dispatch__") and kind not in _PLAIN for kind in types):
            # It takes itself apart, and what it does with its parts comes here again.
            return NotImplemented
        keywords = kwargs or {}
        result = func(*args, **keywords)
        places, names = _written_by(func)
        found = [args[place] for place in places if place < len(args)]
        found += [keywords[name] for name in names if name in keywords]
        for tensor in _tensors(found):
            rows = _rows(tensor, func, args) if self._marks.tracks(tensor) else None
            for part in (tensor,) if rows is None else (tensor[first:last] for first, last in rows):
                self._marks.write(part)
        return result


@cache
def _written_by(func: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Which arguments an operation writes: by place, and by name."""
    schema = getattr(func, "_schema", None)
    # `set_` makes its tensor point elsewhere, and writes nothing.
    if schema is None or schema.name == "aten::set_":
        return (), ()
    written = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
    # Those of torch.distributed write without saying so.
    everything = schema.name.endswith("_") and not any(written)
    chosen = [
        (place, argument.name)
        for place, argument in enumerate(schema.arguments)
        if written[place] or everything
    ]
    return tuple(place for place, _ in chosen), tuple(name for _, name in chosen)


def _rows(tensor: torch.Tensor, func: Any, args: Sequence[Any]) -> list[tuple[int, int]] | None:
    """Runs of rows in which indices or a mask have picked something to write; None for the whole tensor."""
    picked = _PICKED.get(func._schema.name)
    if picked is None or tensor is not args[0] or not tensor.dim() or not tensor.numel():
        return None
    chosen = picked(torch.zeros(tensor.shape, dtype=torch.bool), *args[1:]).reshape(len(tensor), -1).any(1)
    around = torch.nn.functional.pad(chosen.to(torch.int8), (1, 1)).diff()
    firsts, lasts = (around == 1).nonzero().flatten(), (around == -1).nonzero().flatten()
    # Each run becomes an entry that later accesses are compared with. Beyond so many, all rows count as written, and a read of one
    # that is not goes unnoticed: nothing is reported that is right.
    if len(firsts) > _RUNS:
        return None
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def _at_indices(mask: torch.Tensor, indices: Any, *_: Any) -> torch.Tensor:
    return torch.ops.aten.index_put_(mask, indices, torch.tensor(True))


_PICKED: dict[str, Callable[..., torch.Tensor]] = {
    "aten::index_put_": _at_indices,
    "aten::_index_put_impl_": _at_indices,
    "aten::index_copy_": lambda mask, dim, index, *_: mask.index_fill_(dim, index, True),
    "aten::index_fill_": lambda mask, dim, index, *_: mask.index_fill_(dim, index, True),
    "aten::masked_fill_": lambda mask, other, *_: mask | other,
    "aten::masked_scatter_": lambda mask, other, *_: mask | other,
    "aten::scatter_": lambda mask, dim, index, *_: mask.scatter_(dim, index, True),
}


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _tensors(value)


def _run(low: int, high: int) -> TensorView:
    return TensorView("", low, geometry_of((high - low,), (1,), 1))


class _StorageBytes:
    """The memory of one storage, and the runs of bytes that have been written."""

    def __init__(self, storage: torch.UntypedStorage, dead: deque[_StorageBytes]) -> None:
        self.low = storage.data_ptr()
        self.high = self.low + storage.nbytes()
        # Only noted: this may be called within any operation, also while the lock is held.
        self.storage = weakref.ref(storage, lambda _: dead.append(self))
        self._written: list[tuple[int, int]] = []

    @property
    def moved(self) -> bool:
        storage = self.storage()
        return storage is None or (storage.data_ptr(), storage.nbytes()) != (self.low, self.high - self.low)

    def join(self, low: int, high: int) -> tuple[int, int]:
        """The whole run that a newly written one belongs to: rows written one by one become one run."""
        apart = [run for run in self._written if run[1] < low or run[0] > high]
        met = [run for run in self._written if run[1] >= low and run[0] <= high]
        whole = min([low, *(run[0] for run in met)]), max([high, *(run[1] for run in met)])
        self._written = [*apart, whole]
        return whole


class _Marks:
    """The blocks of memory that have unwritten bytes."""

    def __init__(self, watch: Sanitizer) -> None:
        self._watch = watch
        self._blocks: dict[int, _StorageBytes] = {}
        self._dead: deque[_StorageBytes] = deque()
        self._lock = threading.RLock()

    def add(self, tensor: torch.Tensor) -> None:
        storage = _storage(tensor)
        if storage is None:
            return
        with self._lock:
            self._drop_dead()
            self._blocks[storage.data_ptr()] = _StorageBytes(storage, self._dead)
            self._watch.shadow.mark_unwritten(view_of(tensor, ""))

    def address_taken(self, tensor: torch.Tensor, caller: FrameType) -> None:
        """Register the memory of a tensor whose address was asked for outside of a launch: kernels may read this address from a table.

        The registration covers the whole storage, until the storage is freed.
        """
        storage = _storage(tensor)
        # What Triton generates has no name.
        if storage is None or caller.f_globals.get("__name__", "triton.").startswith(_LAUNCHERS):
            return
        memory = _run(storage.data_ptr(), storage.data_ptr() + storage.nbytes())
        if self._watch.provenance.is_registered(memory):
            return
        place = f"data_ptr() at {Path(caller.f_code.co_filename).name}:{caller.f_lineno}"
        self._watch.provenance.register(replace(memory, name=place))
        weakref.finalize(storage, self._watch.provenance.forget, memory)

    def tracks(self, tensor: torch.Tensor) -> bool:
        storage = _storage(tensor)
        return storage is not None and storage.data_ptr() in self._blocks

    def write(self, tensor: torch.Tensor) -> None:
        storage = _storage(tensor)
        if storage is None:
            return
        with self._lock:
            block = self._blocks.get(storage.data_ptr())
            if block is not None and tensor.is_contiguous():
                self._write_run(block, tensor.data_ptr(), tensor.numel() * tensor.element_size())
            else:
                self._watch.shadow.mark_written(view_of(tensor, ""))

    def _write_run(self, block: _StorageBytes, low: int, nbytes: int) -> None:
        run = block.join(low, low + nbytes)
        if run == (block.low, block.high):
            self._drop(block)
        elif nbytes:
            self._watch.shadow.mark_written(_run(*run))

    def give_away(self, tensor: torch.Tensor) -> None:
        storage = _storage(tensor)
        if storage is not None:
            with self._lock:
                self._watch.shadow.mark_written(
                    _run(storage.data_ptr(), storage.data_ptr() + storage.nbytes())
                )
                self._blocks.pop(storage.data_ptr(), None)

    def settled(self, _: object, launch: Callable[[], None]) -> None:
        """Make a launch of which no marks are old."""
        self.settle()
        launch()

    def settle(self) -> None:
        """Memory that was given back, or left for a larger piece, has another owner now."""
        with self._lock:
            self._drop_dead()
            for block in [block for block in self._blocks.values() if block.moved]:
                self._drop(block)

    def _drop_dead(self) -> None:
        while self._dead:
            self._drop(self._dead.popleft())

    def drop_all(self) -> None:
        with self._lock:
            for block in list(self._blocks.values()):
                self._drop(block)

    def _drop(self, block: _StorageBytes) -> None:
        if self._blocks.get(block.low) is block:
            del self._blocks[block.low]
            self._watch.shadow.mark_written(_run(block.low, block.high))


def _storage(tensor: Any) -> torch.UntypedStorage | None:
    """The memory of a plain tensor on the CPU; None where there is none."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return None
    try:
        with torch._C.DisableTorchFunction():
            storage = tensor.untyped_storage()
        known = storage.device.type == "cpu" and storage.nbytes() and storage.data_ptr()
    except RuntimeError:
        # One of torch.func, or one made of others.
        return None
    return storage if known else None
