"""Tensors without memory, at any address: for code that only asks a tensor where it lies and how it is strided."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch


class FakeTensor(torch.Tensor):
    """A tensor that says to lie on a device, at an address. Its slices say so as well; its elements cannot be read."""

    _storage_address: int
    _device: torch.device

    def _lie_at(self, address: int, device: torch.device) -> FakeTensor:
        self._storage_address, self._device = address, device
        return self

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._device

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return self._device.type == "cuda"

    def data_ptr(self) -> int:
        # Modulo 2^64, as a pointer is.
        return int(self._storage_address + self.storage_offset() * self.element_size()) % 2**64

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"FakeTensor({tuple(self.shape)}, {self.dtype}, {self.data_ptr():#x})"

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Slices of a fake tensor lie in the same memory."""
        result = super().__torch_function__(func, types, args, kwargs)
        if isinstance(result, FakeTensor) and not hasattr(result, "_storage_address"):
            source = next(argument for argument in args if isinstance(argument, FakeTensor))
            result._lie_at(source._storage_address, source._device)
        return result


def fake_tensor(
    dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int], address: int, device: str
) -> FakeTensor:
    # A tensor of torch's device "meta" has everything but memory.
    meta = torch.empty_strided(shape, strides, dtype=dtype, device="meta", requires_grad=False)
    # A tensor names its device with its index.
    return meta.as_subclass(FakeTensor)._lie_at(address, torch.empty(0, device=device).device)
