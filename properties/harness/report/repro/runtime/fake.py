"""Tensors without memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch

from properties.harness.report.repro.runtime.given import DEVICE

__all__ = ["Fake"]


class Fake(torch.Tensor):
    """A tensor without memory that says to lie at an address, as its slices do."""

    address: int

    def __new__(cls, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int], address: int) -> Self:
        empty = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
        fake = empty.as_subclass(cls)
        fake.address = address
        return fake

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.empty(0, device=DEVICE).device

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return DEVICE == "cuda"

    def data_ptr(self) -> int:
        return (self.address + int(self.storage_offset()) * self.element_size()) % 2**64

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = super().__torch_function__(func, types, args, kwargs)
        if isinstance(result, Fake) and not hasattr(result, "address"):
            result.address = next(one.address for one in args if isinstance(one, Fake))
        return result
