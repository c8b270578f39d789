"""Pools of recurrent state whose contents tell which prefix they stand for.

A *seed*, an int of 63 bits, stands for a prefix. What a state, or a row of a conv state, holds for it is a stream of 64-bit
numbers, little-endian, cut off where the state or row ends:

    number[j] = base[j] XOR mask        0 for seed 0, the state before the first token

with `base` fixed for (layer, state, j) and `mask` for (seed, layer, state), both pseudo-random and both without the lowest
bit of every byte. That bit is what poison has, all ones: no byte of it is any seed's. For a conv row, j counts along
the channels, so that a row holds the same wherever in a window it is. Bytes alone are meant, of whatever dtype, and they are
the same on every device and in every layout; tensors are seen as the widest integers that their strides allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd

import torch

SLICE_BYTES = {"cpu": 2 << 20, "cuda": 64 << 20}
"""Blocks are handled in slices of this size, of which at most three live at a time: on the host so that they stay in
the cache, which makes it ten times as fast, on CUDA so that launches do not count."""


LAYOUTS = ("SD", "DS")


KINDS = ("conv", "temporal")


_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


_MOST_SEED = (1 << 63) - 1


_SEEDED = ~0x0101010101010101


_MASK, _BASE, _WEIGHT = 1, 2, 3


Layers = Sequence[Sequence[tuple[str, torch.Tensor]]]


Difference = tuple[int, int, int]


_Ints = Sequence[int]


_Places = tuple[Sequence[int], ...]


class StatePools:
    """Writes and checks contents of the state tensors of an engine's layers, all of which are on one device.

    A layer is a list of (kind, tensor). Conv states are [num_blocks, rows, channels] in layout SD and [num_blocks,
    channels, rows] in DS, with at least `window` rows (K - 1, behind which those for speculative tokens lie);
    temporal states are [num_blocks, ...]. Blocks are contiguous, any distance apart. `groups` has each layer's KV-cache
    group; a call is about one group, and does nothing for states that its layers lack.

    Raises:
        ValueError: tensors of another form; in any method, lists of different lengths, a group, block or row that is not
            there, a seed that is none, the same place twice in what is written. Nothing is written then.
    """

    def __init__(self, layers: Layers, *, window: int, layout: str, groups: _Ints) -> None:
        if layout not in LAYOUTS:
            raise ValueError(f"layout = {layout!r}, but should be one of {LAYOUTS} [StatePools]")
        if len(groups) != len(layers):
            raise ValueError(f"len(groups) = {len(groups)}, but should be {len(layers)} [len(layers)]")
        self.window = window
        self._groups: dict[int, list[_StateTensor]] = {group: [] for group in groups}
        for layer, (states, group) in enumerate(zip(layers, groups, strict=True)):
            for number, (kind, tensor) in enumerate(states):
                _check_tensor(kind, tensor, window, layout, f"layers[{layer}][{number}]")
                self._groups[group].append(_StateTensor.of(kind, tensor, layout, layer, number))
        every = [state for states in self._groups.values() for state in states]
        self.device = _only_device(every)
        longest = max((state.whole.size(1) for state in every), default=0)
        self._weights = _random(torch.arange(longest, device=self.device) + _salt(0, 0, _WEIGHT)) | 1

    def write_temporal(self, group: int, blocks: _Ints, seeds: _Ints) -> None:
        """Every temporal state of the group holds, in blocks[i], what seeds[i] gives."""
        states = self._of_kind("temporal", group)
        _check_places(states, (blocks,), once=True)
        self._write(states, (blocks,), seeds)

    def write_rows(self, group: int, blocks: _Ints, rows: _Ints, seeds: _Ints) -> None:
        """Every conv state of the group holds, in row rows[i] of blocks[i], what seeds[i] gives."""
        states = self._of_kind("conv", group)
        _check_places(states, (blocks, rows), once=True)
        self._write(states, (blocks, rows), seeds)

    def check_temporal(self, group: int, blocks: _Ints, seeds: _Ints) -> list[Difference]:
        """Each (i, layer, state), in this order, of which blocks[i] does not hold what seeds[i] gives."""
        states = self._of_kind("temporal", group)
        _check_places(states, (blocks,))
        return self._check(states, (blocks,), seeds)

    def check_rows(self, group: int, blocks: _Ints, rows: _Ints, seeds: _Ints) -> list[Difference]:
        """Each (i, layer, state), in this order, of which row rows[i] of blocks[i] does not hold what seeds[i] gives."""
        states = self._of_kind("conv", group)
        _check_places(states, (blocks, rows))
        return self._check(states, (blocks, rows), seeds)

    def poison(self, group: int, blocks: _Ints) -> None:
        """Every byte of every state of these blocks becomes 0xFF, which no byte of any seed is."""
        states = self._of_kind("", group)
        _check_places(states, (blocks,), once=True)
        (index,) = self._upload(blocks)
        for state in states:
            state.whole.index_fill_(0, index, 255 if state.whole.dtype == torch.uint8 else -1)

    def digest(self, group: int, blocks: _Ints) -> torch.Tensor:
        """A number for each block, int64 on the device, of all bytes of its states and of the order in which they stand.

        Only numbers of the same object and group can be compared. A change within one aligned word always shows.
        """
        states = self._of_kind("", group)
        _check_places(states, (blocks,))
        (index,) = self._upload(blocks)
        total = torch.zeros(len(blocks), dtype=torch.int64, device=self.device)
        for state in states:
            weights = self._weights[: state.whole.size(1)]
            for part in self._slices(len(blocks), 8 * weights.numel()):
                words = state.whole[index[part]].to(torch.int64).mul_(weights)
                total[part].add_(words.sum(1), alpha=state.weight)
        return total

    def _of_kind(self, kind: str, group: int) -> list[_StateTensor]:
        if group not in self._groups:
            raise ValueError(f"group = {group}, but should be one of {sorted(self._groups)} [groups]")
        return [state for state in self._groups[group] if kind in ("", state.kind)]

    def _write(self, states: list[_StateTensor], places: _Places, seeds: _Ints) -> None:
        *index, given = self._upload(*places, _checked_seeds(seeds, places[0]))
        before = given == 0 if 0 in seeds else None
        for state, masks in zip(states, self._masks(states, given), strict=True):
            for part in self._slices(len(seeds), state.nbytes):
                state.view[tuple(numbers[part] for numbers in index)] = state.contents(masks, before, part)

    def _check(self, states: list[_StateTensor], places: _Places, seeds: _Ints) -> list[Difference]:
        # The one place where the host waits for the device.
        where = self.different(states, places, seeds).cpu().T.nonzero().tolist()
        return [(i, states[number].layer, states[number].number) for i, number in where]

    def different(self, states: Sequence[_StateTensor], places: _Places, seeds: _Ints) -> torch.Tensor:
        """By state and place, whether something else is there; bool, on the device, which may still be at it."""
        *index, given = self._upload(*places, _checked_seeds(seeds, places[0]))
        before = given == 0 if 0 in seeds else None
        wrong = torch.zeros((len(states), len(seeds)), dtype=torch.bool, device=self.device)
        for state, masks, found in zip(states, self._masks(states, given), wrong, strict=True):
            for part in self._slices(len(seeds), state.nbytes):
                seen = state.view[tuple(numbers[part] for numbers in index)]
                found[part] = (seen != state.contents(masks, before, part)).any(1)
        return wrong

    def _masks(self, states: Sequence[_StateTensor], seeds: torch.Tensor) -> list[torch.Tensor]:
        """For each state a vector: the mask of each seed."""
        if not states:
            return []
        (salts,) = self._upload([state.salt for state in states])
        return list((_random(salts[:, None] ^ seeds) & _SEEDED).unbind())

    def _upload(self, *columns: _Ints) -> tuple[torch.Tensor, ...]:
        """Lists of one length as vectors on the device. From pinned memory, where the host need not wait for the copy."""
        columns = tuple(list(column) for column in columns)
        pinned = self.device.type == "cuda"
        host = torch.tensor(columns, dtype=torch.int64, pin_memory=pinned)
        return host.to(self.device, non_blocking=True).unbind()

    def _slices(self, count: int, nbytes: int) -> Iterator[slice]:
        step = max(1, SLICE_BYTES[self.device.type] // nbytes)
        return (slice(start, start + step) for start in range(0, count, step))


@dataclass(frozen=True, eq=False)
class _StateTensor:
    """A state tensor: `view[block]`, or `view[block, row]` of a conv state, is the vector of words that a seed fills."""

    kind: str
    layer: int
    number: int
    view: torch.Tensor
    whole: torch.Tensor
    base: torch.Tensor
    salt: int
    weight: int

    @classmethod
    def of(cls, kind: str, tensor: torch.Tensor, layout: str, layer: int, number: int) -> _StateTensor:
        flat = tensor.as_strided((tensor.size(0), tensor[0].numel()), (tensor.stride(0), 1))
        whole, blocks = _widest(flat), flat.unflatten(1, tensor.shape[1:])
        if kind == "temporal":
            view = whole
        elif layout == "SD":
            view = _widest(blocks)
        else:
            view = blocks.view(_WORDS[tensor.element_size()]).transpose(1, 2)
        streams = -(-view.size(-1) * view.element_size() // 8)
        base = _random(torch.arange(streams, device=tensor.device) + _salt(layer, number, _BASE)) & _SEEDED
        salts = _salt(layer, number, _MASK), _salt(layer, number, _WEIGHT) | 1
        return cls(kind, layer, number, view, whole, base.view(view.dtype).view(streams, -1), *salts)

    @property
    def nbytes(self) -> int:
        """Bytes that a seed fills."""
        return self.base.nbytes

    def contents(self, masks: torch.Tensor, before: torch.Tensor | None, part: slice) -> torch.Tensor:
        """What the seeds of `part` give, a vector of words each; `before` marks those that stand for no token."""
        masked = masks[part].view(self.base.dtype).view(-1, 1, self.base.size(1))
        words = (masked ^ self.base).flatten(1)[:, : self.view.size(-1)]
        return words if before is None else words.masked_fill_(before[part, None], 0)


def _widest(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as integers, as many bytes in one as its rows, strides and address are a multiple of."""
    bytes_apart = [stride * tensor.element_size() for stride in tensor.stride()[:-1]]
    row = tensor.size(-1) * tensor.element_size()
    offset = tensor.storage_offset() * tensor.element_size()
    return tensor.view(_WORDS[gcd(8, row, *bytes_apart, tensor.data_ptr(), offset)])


def _check_tensor(kind: str, tensor: torch.Tensor, window: int, layout: str, place: str) -> None:
    def check(name: str, value: object, right: bool, rule: str) -> None:
        if not right:
            raise ValueError(f"{name} = {value!r}, but should be {rule} [{place}]")

    shape, rows = tuple(tensor.shape), 1 if layout == "SD" else 2
    check("kind", kind, kind in KINDS, f"one of {KINDS}")
    check("element_size", tensor.element_size(), tensor.element_size() in _WORDS, "1, 2, 4 or 8")
    if kind == "conv":
        check("shape", shape, len(shape) == 3, "of 3 axes")
        check("shape", shape, shape[rows] >= window, f"of {window} rows or more on axis {rows}")
    check("shape", shape, len(shape) >= 2, "of 2 axes or more")
    check("shape", shape, 0 not in shape, "without a 0")
    check("stride", tensor.stride(), tensor[0].is_contiguous(), "that of contiguous blocks")
    apart = tensor.stride(0) >= tensor[0].numel() or len(tensor) == 1
    check("stride", tensor.stride(), apart, "that of blocks apart")


def _only_device(states: Sequence[_StateTensor]) -> torch.device:
    devices = {state.view.device for state in states} or {torch.device("cpu")}
    if len(devices) > 1 or not {device.type for device in devices} <= SLICE_BYTES.keys():
        raise ValueError(f"devices = {sorted(map(str, devices))}, but should be one, of cpu or cuda [layers]")
    return devices.pop()


def _check_places(states: Sequence[_StateTensor], places: _Places, *, once: bool = False) -> None:
    """Blocks, or blocks and rows, are there in each of the states, and distinct where they are written to."""
    for axis, (name, numbers) in enumerate(zip(("blocks", "rows"), places, strict=False)):
        _check_length(name, numbers, places[0])
        end = min((state.view.size(axis) for state in states), default=None)
        for i, number in enumerate(numbers):
            if number < 0 or (end is not None and number >= end):
                raise ValueError(f"{name}[{i}] = {number}, but should be >= 0 and < {end} [num_{name}]")
    seen_places: set[tuple[int, ...]] = set()
    for i, place in enumerate(zip(*places, strict=True)):
        if once and place in seen_places:
            raise ValueError(f"blocks[{i}] = {place[0]}, but should be written to once [{place}]")
        seen_places.add(place)


def _checked_seeds(seeds: _Ints, blocks: _Ints) -> _Ints:
    _check_length("seeds", seeds, blocks)
    for i, seed in enumerate(seeds):
        if not 0 <= seed <= _MOST_SEED:
            raise ValueError(f"seeds[{i}] = {seed}, but should be >= 0 and < 2**63 [seeds]")
    return seeds


def _check_length(name: str, numbers: _Ints, blocks: _Ints) -> None:
    if len(numbers) != len(blocks):
        raise ValueError(f"len({name}) = {len(numbers)}, but should be {len(blocks)} [len(blocks)]")


def _salt(layer: int, number: int, use: int) -> int:
    return int(_random(torch.tensor(layer << 32 | number << 8 | use)))


def _random(numbers: torch.Tensor) -> torch.Tensor:
    """The finalizer of splitmix64, a bijection on 64 bits: different numbers stay different."""
    numbers = (numbers ^ _shifted(numbers, 30)) * (0xBF58476D1CE4E5B9 - (1 << 64))
    numbers = (numbers ^ _shifted(numbers, 27)) * (0x94D049BB133111EB - (1 << 64))
    return numbers ^ _shifted(numbers, 31)


def _shifted(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    # The shift of a signed number brings in copies of its sign.
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)
