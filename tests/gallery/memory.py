"""The tensors of one run of an exhibit: made from plain numbers, watched byte for byte."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch

from statecheck.case.values import CANARY

GUARD_BYTES = 64
_CODES = {
    torch.uint8: "B",
    torch.int8: "b",
    torch.int16: "h",
    torch.int32: "i",
    torch.int64: "q",
    torch.float32: "f",
}


@dataclass(frozen=True)
class WatchedExhibit:
    """A piece of memory, where its elements begin in it, and their format."""

    raw: torch.Tensor
    start: int
    nbytes: int
    code: str

    def element(self, memory: bytes, index: int) -> float:
        size = struct.calcsize(self.code)
        number: float = struct.unpack_from(f"<{self.code}", memory, self.start + index * size)[0]
        return number


@dataclass
class ExhibitMemory:
    """Tensors on `device`.

    `guarded`: every tensor lies between canaries, and what is unwritten is poisoned, so that a comparison of all
    bytes shows what went wrong. Otherwise each tensor is an allocation of exactly its bytes and what is unwritten
    is left alone, as a tool that watches allocations wants it.
    """

    device: str
    guarded: bool = True
    watched: dict[str, WatchedExhibit] = field(default_factory=dict)
    notes: list[tuple[str, torch.Tensor, tuple[Any, ...]]] = field(default_factory=list)

    def put(self, name: str, dtype: torch.dtype, numbers: Sequence[float]) -> torch.Tensor:
        """A vector of these numbers."""
        flat = self.blank(name, dtype, len(numbers))
        flat.copy_(torch.tensor(numbers, dtype=dtype))
        return flat

    def blank(self, name: str, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        """An unwritten tensor."""
        guard = GUARD_BYTES if self.guarded else 0
        nbytes = prod(shape) * dtype.itemsize
        raw = torch.empty(nbytes + 2 * guard, dtype=torch.uint8, device=self.device)
        if self.guarded:
            raw.fill_(CANARY)
        self.watched[name] = WatchedExhibit(raw, guard, nbytes, _CODES[dtype])
        return raw[guard : guard + nbytes].view(dtype).view(shape)

    def vast(self, nbytes: int) -> torch.Tensor:
        """Bytes of which only the `window`s are looked at: on a CPU what is not touched costs nothing."""
        return torch.empty(nbytes, dtype=torch.uint8, device=self.device)

    def window(self, name: str, piece: torch.Tensor, numbers: Sequence[float]) -> None:
        """Write numbers into a piece of a vast tensor, and watch it."""
        piece.copy_(torch.tensor(numbers, dtype=piece.dtype))
        raw = piece.view(torch.uint8)
        self.watched[name] = WatchedExhibit(raw, 0, raw.numel(), _CODES[piece.dtype])

    def register(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """Name a view for the sanitizer, or tell it of one that kernels reach through raw addresses."""
        self.notes.append(("register", tensor, (name,)))
        return tensor

    def unwritten(self, tensor: torch.Tensor) -> None:
        """Tell the sanitizer that these bytes are unwritten."""
        self.notes.append(("unwritten", tensor, ()))

    def free(self, tensor: torch.Tensor, why: str) -> None:
        """Tell the sanitizer that these bytes must not be touched any more."""
        self.notes.append(("free", tensor, (why,)))

    def own(self, tensor: torch.Tensor, owner: str, why: str) -> None:
        """Tell the sanitizer whose bytes these are."""
        self.notes.append(("own", tensor, (owner, why)))

    def tell(self, watch: Any) -> None:
        """Pass on to a sanitizer what the exhibit has said."""
        for verb, tensor, words in self.notes:
            getattr(watch, verb)(tensor, *words)

    def contents(self) -> dict[str, bytes]:
        """All watched bytes, canaries among them."""
        return {name: one.raw.cpu().numpy().tobytes() for name, one in self.watched.items()}

    def expected(self, before: Mapping[str, bytes], rule: Mapping[str, Sequence[float]]) -> dict[str, bytes]:
        """What the bytes should be after a launch: as before, but for the tensors that the rule names."""
        return {name: self._replaced(name, old, rule) for name, old in before.items()}

    def _replaced(self, name: str, old: bytes, rule: Mapping[str, Sequence[float]]) -> bytes:
        if name not in rule:
            return old
        one = self.watched[name]
        new = struct.pack(f"<{len(rule[name])}{one.code}", *rule[name])
        assert len(new) == one.nbytes, name
        return old[: one.start] + new + old[one.start + one.nbytes :]

    def difference(self, wanted: Mapping[str, bytes]) -> str:
        """The first place where the memory is not as wanted, in words; "" if there is none."""
        found = self.contents()
        return _first(self._differs(name, found[name], wanted[name]) for name in wanted)

    def _differs(self, name: str, found: bytes, wanted: bytes) -> str:
        at = next((i for i, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b), None)
        if at is None:
            return ""
        one = self.watched[name]
        place = at - one.start
        if not 0 <= place < one.nbytes:
            return f"memory {'before the start' if place < 0 else 'behind the end'} of {name} is overwritten"
        index = place // struct.calcsize(one.code)
        return f"{name}[{index}] = {one.element(found, index)}, but should be {one.element(wanted, index)}"


def _first(words: Iterable[str]) -> str:
    return next(filter(None, words), "")
