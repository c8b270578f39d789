"""Kernels and memory of a GPU that the release's scheduler uses on the host side of a step, as they are without a GPU."""

import types
from collections.abc import Callable
from typing import Any

import torch

from subjects.kit.objects import names_in

_MODULES_WITH_PINNED_MEMORY = (
    "managers.overlap_utils",
    "managers.schedule_batch",
    "managers.utils",
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
