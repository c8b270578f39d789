"""Transfers between pools of one process: an engine's own transfer library is replaced by a copy within memory that was registered."""

import ctypes
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch

_INTEGERS = {2: torch.int16, 4: torch.int32}
"""By the bytes of an element, in which a number is written to it."""
_OTHERS = -1
"""The content of other requests' slots."""
Block = tuple[int, int]
"""An address, and a number of bytes."""


class Wire:
    """Copies between registered tensors, by address."""

    def __init__(self) -> None:
        self._ranges: list[Block] = []
        self._tensors: list[torch.Tensor] = []

    def register(self, tensor: torch.Tensor) -> None:
        """Let blocks of the tensor's storage be read and written."""
        storage = tensor.untyped_storage()
        self._tensors.append(tensor)
        self._ranges.append((storage.data_ptr(), storage.nbytes()))

    def copy(self, sources: Sequence[Block], targets: Sequence[Block]) -> None:
        """Copy each block of `sources` to the block of `targets` at its place.

        Raises:
            ValueError: two blocks differ in size, or one lies outside of each registered tensor.
        """
        if len(sources) != len(targets):
            raise ValueError(
                f"{len(sources)} blocks are sent to {len(targets)}, but should be as many [transfer]"
            )
        for (source, size), (target, room) in zip(sources, targets, strict=True):
            if size != room:
                raise ValueError(
                    f"a block of {size} bytes is sent to one of {room}, but should be as large [transfer]"
                )
            for access, address in (("read from", source), ("written to", target)):
                if not any(
                    first <= address and address + size <= first + length for first, length in self._ranges
                ):
                    raise ValueError(f"{size} bytes are {access} memory that is not registered [transfer]")
            ctypes.memmove(target, source, size)


class NixlAgent:
    """As much of NIXL's agent as the engines call, over a wire. A descriptor is an address, a size and a device; a strided one has a stride and a count, too.

    Args:
        wire: of all agents of a transfer.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def get_xfer_descs(self, blocks: Iterable[Sequence[int]], *_: Any) -> list[Block]:
        return [(int(address), int(size)) for address, size, *_ in blocks]

    def prep_xfer_dlist(self, _: str, descriptors: Any, *__: Any, **___: Any) -> list[Block]:
        found: list[Block] = []
        for address, size, _device, *run in descriptors.tolist():
            stride, count = run or (0, 1)
            found += [(address + number * stride, size) for number in range(count)]
        return found

    def get_agent_metadata(self) -> bytes:
        return b""

    def get_reg_descs(self, ranges: Any, *_: Any) -> Any:
        return ranges

    def register_memory(self, *_: Any, **__: Any) -> None:
        """Memory is registered with the wire."""

    def add_remote_agent(self, _: Any) -> str:
        return "remote"

    def release_dlist_handle(self, _: Any) -> None:
        """A list of descriptors ends with its engine."""

    release_xfer_handle = deregister_memory = remove_remote_agent = release_dlist_handle

    def initialize_xfer(self, operation: str, local: Any, remote: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        return (local, remote) if operation == "WRITE" else (remote, local)

    def make_prepped_xfer(
        self, operation: str, local: Any, chosen: Any, remote: Any, remotely: Any, *_: Any, **__: Any
    ) -> tuple[Any, Any]:
        here, there = [local[int(block)] for block in chosen], [remote[int(block)] for block in remotely]
        return self.initialize_xfer(operation, here, there)

    def transfer(self, handle: tuple[Any, Any]) -> str:
        self._wire.copy(*handle)
        return "DONE"


def write_numbers(memory: torch.Tensor, numbers: Sequence[int]) -> None:
    """Write numbers to a tensor, as the bits of its elements."""
    integers = _INTEGERS[memory.element_size()]
    memory.view(integers).copy_(torch.tensor(numbers, dtype=integers).reshape(memory.shape))


def read_numbers(memory: torch.Tensor) -> tuple[int, ...]:
    """The numbers that `write_numbers` wrote."""
    return tuple(memory.contiguous().view(_INTEGERS[memory.element_size()]).flatten().tolist())


def fill_others(memory: torch.Tensor) -> None:
    """Write to every element that it is another request's."""
    memory.view(_INTEGERS[memory.element_size()]).fill_(_OTHERS)


def count_written(memory: torch.Tensor) -> int:
    """How many bytes of a tensor are not 0."""
    return int((memory.contiguous().view(torch.uint8) != 0).sum()) if math.prod(memory.shape) else 0
