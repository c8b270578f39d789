"""A port's sanitizer: it knows every tensor that a call is handed, and sees the call's launches only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import torch

from statecheck.case.findings import Access
from statecheck.execution.objects.blocks import Scope
from statecheck.kernels.sanitizer.watch import Sanitizer


class Watched:
    """The sanitizer of one example after another.

    Args:
        record: keep who wrote which byte, and when the host did.
    """

    def __init__(self, *, record: bool = False) -> None:
        self.record = record
        self.begin()

    @cached_property
    def sanitizer(self) -> Sanitizer:
        """Made when it is needed: most functions launch nothing."""
        return Sanitizer(record=self.record)

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
        from statecheck.kernels.watched import watching

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
