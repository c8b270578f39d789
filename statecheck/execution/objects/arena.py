"""Device memory of one example, with its image on the host: one transfer each way for a call, however many tensors it has.

On a device a transfer waits for all that is to be done there, and costs as much for a byte as for ten thousand. So the
tensors of an example lie in one piece of memory. What is written to them is written to the image first, and uploaded before
the subject runs; what the subject has written is downloaded once, after the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

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
        image = self._bytes_of_image
        image[begin : begin + guard] = filler
        image[end - guard : end] = filler
        if raw is not None:
            image[begin + guard : end - guard] = raw
            self._bytes_of_right[begin:end] = image[begin:end]
        self._note(begin, end)

    @cached_property
    def _bytes_of_image(self) -> np.ndarray:
        return self._image.numpy()

    @cached_property
    def _bytes_of_right(self) -> np.ndarray:
        return self._right.numpy()

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
