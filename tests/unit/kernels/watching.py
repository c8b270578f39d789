"""Launches under the sanitizer, and what it finds in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from statecheck.kernels.orders import program_schedule
from statecheck.sanitizer import Finding, Sanitizer, sanitize


def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def numbers(size: int) -> torch.Tensor:
    """0, 1, 2, ..."""
    return torch.arange(size, dtype=torch.int32)


def finding(
    launches: Callable[[], object], declare: Callable[[Sanitizer], object] | None = None, schedule: str = ""
) -> Finding | None:
    """The finding while launches are made, after `declare` has described the memory."""
    with sanitize() as watch, program_schedule(schedule):
        if declare is not None:
            declare(watch)
        try:
            launches()
        except Finding as found:
            return found
    return None


def found(
    kernel: Any,
    programs: int,
    *arguments: Any,
    schedule: str = "",
    registered: Mapping[str, torch.Tensor] | None = None,
    **constexprs: Any,
) -> str:
    """The finding in a launch, with its kind, "" if there is none."""

    def declare(watch: Sanitizer) -> None:
        for name, tensor in (registered or {}).items():
            watch.register(tensor, name)

    caught = finding(lambda: kernel[(programs,)](*arguments, **constexprs), declare, schedule)
    return f"{type(caught).__name__}: {caught}" if caught is not None else ""
