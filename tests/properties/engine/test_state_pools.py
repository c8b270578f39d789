"""State pools: contents as an independent reading of their rule gives them, and no way to take one place for another."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from properties.engine.traffic.pool_memory import make_pools
from properties.engine.traffic.state_pools import SLICE_BYTES, StatePools

ALL = (1 << 64) - 1
DTYPES = (
    torch.uint8,
    torch.float8_e4m3fn,
    torch.bool,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)
BLOCKS, WINDOW = 5, 3
ROW_BLOCKS, ROWS = [block for block in range(BLOCKS) for _ in range(4)], [*range(4)] * BLOCKS
ROW_SEEDS = [100 + 10 * block + row for block, row in zip(ROW_BLOCKS, ROWS, strict=True)]
"""Of every row, in `filled`."""
SEEDS = (1, 2, (1 << 63) - 1, 1 << 62)

Kinds = Sequence[tuple[str, tuple[int, ...], torch.dtype]]


def mixed(x: int) -> int:
    """The finalizer of splitmix64, from its publication, on numbers without a sign."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & ALL
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & ALL
    return x ^ (x >> 31)


def stream(layer: int, state: int, seed: int, size: int) -> bytes:
    """The first `size` bytes that a seed gives, of a state or of a row."""
    if seed == 0:
        return bytes(size)
    place = layer << 32 | state << 8
    mask = mixed(seed ^ mixed(place | 1))
    numbers = [mixed((mixed(place | 2) + j) & ALL) ^ mask for j in range(-(-size // 8))]
    return b"".join((number & 0xFEFE_FEFE_FEFE_FEFE).to_bytes(8, "little") for number in numbers)[:size]


def of_kind(
    kind: str, dim: int, dtype: torch.dtype, layout: str, rows: int = 4
) -> tuple[str, tuple[int, ...], torch.dtype]:
    shape = (2, dim) if kind == "temporal" else (rows, dim) if layout == "SD" else (dim, rows)
    return kind, shape, dtype


@dataclass
class Pools:
    """Two layers of group 0 around one of group 1, every byte of their buffers 0x5A, and a picture of the buffers."""

    layers: list[list[tuple[str, torch.Tensor]]]
    pools: StatePools
    layout: str

    @classmethod
    def make(cls, states: Kinds, layout: str, device: str, spare: int = 0) -> Pools:
        unit = max(dtype.itemsize for _, _, dtype in states)
        page = (
            sum(-(-prod(shape) * dtype.itemsize // unit) * unit for _, shape, dtype in states) + spare * unit
        )
        layers = make_pools([states] * 3, num_blocks=BLOCKS, device=device, page_bytes=page)
        for (_, first), *_ in layers:
            raw(first).fill_(0x5A)
        return cls(layers, StatePools(layers, window=WINDOW, layout=layout, groups=[0, 1, 0]), layout)

    def memory(self) -> list[bytes]:
        return [raw(layer[0][1]).cpu().numpy().tobytes() for layer in self.layers]

    def expected(self, kind: str, block: int, row: int, seed: int) -> list[bytes]:
        """The buffers as they are now, but with what the seed gives in this place of group 0."""
        buffers = [bytearray(buffer) for buffer in self.memory()]
        for layer, number in product((0, 2), range(len(self.layers[0]))):
            found, tensor = self.layers[layer][number]
            if found == kind:
                self._place(buffers[layer], (layer, number, seed), tensor, block, row)
        return [bytes(buffer) for buffer in buffers]

    def _place(
        self, buffer: bytearray, what: tuple[int, int, int], tensor: torch.Tensor, block: int, row: int
    ) -> None:
        size, start = tensor.element_size(), tensor.storage_offset() + block * tensor.stride(0)
        if tensor.dim() == 3 and row >= 0:
            channel, along = (2, 1) if self.layout == "SD" else (1, 2)
            count, step = tensor.size(channel), tensor.stride(channel)
            start += row * tensor.stride(along)
        else:
            count, step = tensor[0].numel(), 1
        written = stream(*what, count * size)
        for j in range(count):
            at = (start + j * step) * size
            buffer[at : at + size] = written[j * size : (j + 1) * size]


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of the memory that the tensor is a view of."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def mixed_states(layout: str, dtype: torch.dtype, dim: int) -> Kinds:
    return [
        of_kind(kind, n, dtype, layout) for kind, n in (("conv", dim), ("temporal", dim), ("conv", dim + 1))
    ]


def shapes(test: Callable[..., None]) -> Any:
    """Odd sizes and even ones, in which 1, 2, 4 or 8 bytes are handled at once, and pages with room behind the states."""
    for name, values in (("dtype", DTYPES), ("dim", (1, 3, 8)), ("layout", ("SD", "DS")), ("spare", (0, 1))):
        test = pytest.mark.parametrize(name, values)(test)
    return test


@shapes
def test_a_temporal_state_is_written_as_the_rule_says_and_nothing_else_is(
    device: str, dtype: torch.dtype, dim: int, layout: str, spare: int
) -> None:
    made = Pools.make(mixed_states(layout, dtype, dim), layout, device, spare)
    for block, seed in ((3, SEEDS[0]), (0, SEEDS[2]), (3, 0), (4, SEEDS[1])):
        expected = made.expected("temporal", block, -1, seed)
        made.pools.write_temporal(0, [block], [seed])
        assert made.memory() == expected
        assert made.pools.check_temporal(0, [block], [seed]) == []


@shapes
def test_a_conv_row_is_written_as_the_rule_says_and_nothing_else_is(
    device: str, dtype: torch.dtype, dim: int, layout: str, spare: int
) -> None:
    made = Pools.make(mixed_states(layout, dtype, dim), layout, device, spare)
    for block, row, seed in ((3, 1, SEEDS[0]), (0, 3, SEEDS[2]), (3, 1, 0), (4, 0, SEEDS[1])):
        expected = made.expected("conv", block, row, seed)
        made.pools.write_rows(0, [block], [row], [seed])
        assert made.memory() == expected
        assert made.pools.check_rows(0, [block], [row], [seed]) == []


@shapes
def test_poison_covers_every_byte_of_the_states_of_its_blocks_and_no_other(
    device: str, dtype: torch.dtype, dim: int, layout: str, spare: int
) -> None:
    made = Pools.make(mixed_states(layout, dtype, dim), layout, device, spare)
    expected = [bytearray(buffer) for buffer in made.memory()]
    for layer, (_, tensor), block in product((0, 2), made.layers[0], (4, 1)):
        size, start = tensor.element_size(), tensor.storage_offset() + block * tensor.stride(0)
        expected[layer][start * size : (start + tensor[0].numel()) * size] = b"\xff" * tensor[0].nbytes
    made.pools.poison(0, [4, 1])
    assert made.memory() == expected


def test_no_byte_of_what_a_seed_gives_is_poison() -> None:
    given = b"".join(stream(layer, 1, seed, 64) for layer, seed in product(range(50), range(50)))
    assert set(given) == set(range(0, 256, 2))


def filled(device: str, layout: str = "SD", dtype: torch.dtype = torch.bfloat16) -> Pools:
    """Block b of group 0 stands for seed 10 + b, its row r for seed 100 + 10 b + r."""
    made = Pools.make(mixed_states(layout, dtype, 5), layout, device)
    made.pools.write_temporal(0, range(BLOCKS), [10 + block for block in range(BLOCKS)])
    made.pools.write_rows(0, ROW_BLOCKS, ROWS, ROW_SEEDS)
    return made


def differences(made: Pools) -> list[tuple[int, int, int]]:
    temporal = made.pools.check_temporal(0, range(BLOCKS), [10 + block for block in range(BLOCKS)])
    return temporal + [
        (20 + i, layer, n) for i, layer, n in made.pools.check_rows(0, ROW_BLOCKS, ROWS, ROW_SEEDS)
    ]


both_layouts = pytest.mark.parametrize("layout", ["SD", "DS"])


@both_layouts
@pytest.mark.parametrize("layer", [0, 2])
def test_every_single_bit_that_differs_is_found_in_its_place(device: str, layout: str, layer: int) -> None:
    made = filled(device, layout)
    memory = raw(made.layers[layer][0][1])
    for at in range(memory.numel()):
        before = memory[at].clone()
        memory[at] ^= 1 << at % 8
        found = differences(made)
        assert found == [place(made, layer, at)]
        memory[at] = before


def place(made: Pools, layer: int, at: int) -> tuple[int, int, int]:
    """Where the byte is: 20 + i where it is in place i of the conv rows."""
    for number, (kind, tensor) in enumerate(made.layers[layer]):
        block, in_page = divmod(at // 2, tensor.stride(0))
        inside = in_page - tensor.storage_offset()
        if 0 <= inside < tensor[0].numel():
            row = inside // tensor.size(2) if made.layout == "SD" else inside % tensor.size(2)
            return int(20 + 4 * block + row if kind == "conv" else block), layer, number
    raise AssertionError(f"byte {at} of layer {layer} is in no state")


@both_layouts
@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_shift_by_one_block_row_or_element_is_found_in_every_block(
    device: str, layout: str, number: int, axis: int
) -> None:
    made = filled(device, layout)
    kind, tensor = made.layers[2][number]
    tensor.copy_(tensor.roll(1, axis))
    found = differences(made)
    assert {(layer, state) for _, layer, state in found} == {(2, number)}
    assert len(found) == BLOCKS * (4 if kind == "conv" else 1)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_contents_of_another_layer_are_found(device: str, number: int) -> None:
    made = filled(device)
    made.layers[0][number][1].copy_(made.layers[2][number][1])
    assert {(layer, state) for _, layer, state in differences(made)} == {(0, number)}


@pytest.mark.parametrize("seed", [0, 11, 9, 10 + (1 << 62), (1 << 63) - 11])
def test_another_seed_is_found(device: str, seed: int) -> None:
    made = filled(device)
    assert made.pools.check_temporal(0, [0], [seed]) == [(0, 0, 1), (0, 2, 1)]


def test_ten_thousand_prefixes_one_token_apart_give_as_many_contents(device: str) -> None:
    count, states = 10_000, [of_kind("temporal", 4, torch.uint8, "SD")]
    layers = make_pools([states], num_blocks=count, device=device)
    pools = StatePools(layers, window=0, layout="SD", groups=[0])
    pools.write_temporal(0, range(count), range(count))
    assert len(set(layers[0][0][1].reshape(count, -1).view(torch.int64).flatten().tolist())) == count


@both_layouts
def test_poison_and_no_token_are_no_seeds_contents(device: str, layout: str) -> None:
    made = filled(device, layout)
    made.pools.poison(0, [1])
    made.pools.write_temporal(0, [2], [0])
    temporal = [(i, layer, 1) for i in (1, 2) for layer in (0, 2)]
    rows = [(20 + i, layer, state) for i in range(4, 8) for layer in (0, 2) for state in (0, 2)]
    assert differences(made) == temporal + rows
    assert made.pools.check_temporal(0, [1], [0]) == [(0, 0, 1), (0, 2, 1)]


def test_another_group_is_neither_written_nor_checked(device: str) -> None:
    made = filled(device)
    before = made.memory()
    made.pools.write_temporal(1, [2], [5])
    made.pools.poison(1, [3])
    assert [one == other for one, other in zip(made.memory(), before, strict=True)] == [True, False, True]
    assert differences(made) == []
    assert made.pools.check_temporal(1, [2, 3], [5, 5]) == [(1, 1, 1)]


@both_layouts
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float64])
def test_every_byte_of_a_block_is_in_its_digest_and_in_no_other(
    device: str, layout: str, dtype: torch.dtype
) -> None:
    made = filled(device, layout, dtype)
    before = made.pools.digest(0, range(BLOCKS)).tolist()
    for _, tensor in (*made.layers[0], *made.layers[2]):
        memory, size = raw(tensor), tensor.element_size()
        start = (tensor.storage_offset() + 2 * tensor.stride(0)) * size
        for at in range(start, start + tensor[0].nbytes):
            memory[at] ^= 0x10
            after = made.pools.digest(0, range(BLOCKS)).tolist()
            assert [one == other for one, other in zip(before, after, strict=True)] == [
                True,
                True,
                False,
                True,
                True,
            ]
            memory[at] ^= 0x10
    assert made.pools.digest(0, [4, 2, 4]).tolist() == [before[4], before[2], before[4]]


@pytest.mark.parametrize("axis", [1, 2])
def test_the_order_within_a_block_is_in_its_digest(device: str, axis: int) -> None:
    made = filled(device)
    before = made.pools.digest(0, [0, 1, 2])
    for _, tensor in made.layers[0]:
        tensor.copy_(tensor.roll(1, axis))
        assert not (made.pools.digest(0, [0, 1, 2]) == before).any()
        tensor.copy_(tensor.roll(-1, axis))
    assert (made.pools.digest(0, [0, 1, 2]) == before).all()


class Watched(TorchDispatchMode):
    """The operations of torch in its context: how many, and how large the largest tensor is that one of them made."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if not func.is_view and isinstance(made, torch.Tensor) and not any(made is given for given in args):
            self.largest = max(self.largest, made.nbytes)
        self.count += not func.is_view
        return made


def calls(made: Pools) -> list[Callable[[], object]]:
    """Every method, on all blocks."""
    pools, seeds = made.pools, [10 + block for block in range(BLOCKS)]
    return [
        lambda: pools.write_temporal(0, range(BLOCKS), seeds),
        lambda: pools.write_rows(0, ROW_BLOCKS, ROWS, ROW_SEEDS),
        lambda: pools.check_temporal(0, range(BLOCKS), seeds),
        lambda: pools.check_rows(0, ROW_BLOCKS, ROWS, ROW_SEEDS),
        lambda: pools.digest(0, range(BLOCKS)),
        lambda: pools.poison(0, range(BLOCKS)),
    ]


@both_layouts
@pytest.mark.parametrize("slice_bytes", [1, 50, 200])
def test_slices_change_nothing(
    device: str, layout: str, slice_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = filled(device, layout)
    digest = whole.pools.digest(0, range(BLOCKS)).tolist()
    monkeypatch.setitem(SLICE_BYTES, device, slice_bytes)
    sliced = filled(device, layout)
    assert sliced.memory() == whole.memory()
    assert differences(sliced) == []
    # A pool's weights are the same wherever its tensors are.
    assert sliced.pools.digest(0, range(BLOCKS)).tolist() == digest
    assert sliced.pools.check_temporal(0, [4, 3, 2], [14, 0, 11]) == [
        (i, n, 1) for i in (1, 2) for n in (0, 2)
    ]


@both_layouts
@pytest.mark.parametrize(
    ("dtype", "dim", "blocks"), [(torch.float32, 160, 2), (torch.uint8, 160, 2), (torch.uint8, 161, 8)]
)
def test_no_temporary_is_larger_than_a_slice(
    device: str, layout: str, dtype: torch.dtype, dim: int, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Pools.make([of_kind(kind, dim, dtype, layout) for kind in ("conv", "temporal")], layout, device)
    bound = blocks * max(tensor[0].nbytes for _, tensor in made.layers[0])
    assert max(largest_temporary(call) for call in calls(made)) > bound
    monkeypatch.setitem(SLICE_BYTES, device, bound)
    assert 0 < max(largest_temporary(call) for call in calls(made)) <= bound


def largest_temporary(call: Callable[[], object]) -> int:
    with Watched() as watched:
        call()
    return watched.largest


def operations(call: Callable[[], object]) -> int:
    with Watched() as watched:
        call()
    return watched.count


def test_addresses_beyond_two_to_the_31_elements_are_reached(device: str) -> None:
    stride, shape = (1 << 30) + 1, (2, 3)
    memory = torch.empty(3 * stride + 6, dtype=torch.uint8, device=device)
    tensor = memory.as_strided((4, *shape), (stride, 3, 1))
    pools = StatePools([[("temporal", tensor), ("conv", tensor)]], window=1, layout="SD", groups=[0])
    pools.write_temporal(0, [3, 2], [7, 8])
    assert memory[3 * stride :].cpu().numpy().tobytes() == stream(0, 0, 7, 6)
    assert pools.check_temporal(0, [2, 3], [8, 8]) == [(1, 0, 0)]
    pools.write_rows(0, [3], [1], [9])
    assert memory[3 * stride + 3 :].cpu().numpy().tobytes() == stream(0, 1, 9, 3)
    before = pools.digest(0, [2, 3])
    pools.poison(0, [3])
    assert memory[3 * stride :].tolist() == [255] * 6
    assert (pools.digest(0, [2, 3]) == before).tolist() == [True, False]


def test_only_a_check_makes_the_host_wait(device: str) -> None:
    if device != "cuda":
        pytest.skip("there is no device to wait for")
    made = filled(device)
    write, write_rows, check, check_rows, digest, poison = calls(made)
    try:
        with warnings.catch_warnings():
            # The first time in a process it warns that it may miss some.
            warnings.simplefilter("ignore", UserWarning)
            torch.cuda.set_sync_debug_mode("error")
        for call in (write, write_rows, digest, poison):
            call()
        for call in (check, check_rows):
            with pytest.raises(RuntimeError, match="synchroniz"):
                call()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_nothing_is_done_for_no_blocks(device: str) -> None:
    made = filled(device)
    before = made.memory()
    made.pools.write_temporal(0, [], [])
    made.pools.write_rows(0, [], [], [])
    made.pools.poison(0, [])
    assert made.memory() == before
    assert made.pools.check_temporal(0, [], []) == made.pools.check_rows(0, [], [], []) == []
    assert made.pools.digest(0, []).tolist() == []


@pytest.mark.parametrize("kinds", [(), ("conv",), ("temporal",)])
def test_a_layer_may_lack_a_kind_of_state(device: str, kinds: tuple[str, ...]) -> None:
    layers = make_pools(
        [[of_kind(kind, 3, torch.float16, "SD") for kind in kinds]], num_blocks=3, device=device
    )
    pools = StatePools(layers, window=4, layout="SD", groups=[7])
    pools.poison(7, [1])
    pools.write_temporal(7, [1], [4])
    pools.write_rows(7, [1], [3], [4])
    assert pools.check_temporal(7, [1], [5]) == [(0, 0, 0)] * ("temporal" in kinds)
    assert pools.check_rows(7, [1], [2], [4]) == [(0, 0, 0)] * ("conv" in kinds)


REFUSED: list[tuple[Callable[[StatePools], object], str]] = [
    (lambda p: p.write_temporal(2, [0], [1]), "group = 2, but should be one of [0, 1] [groups]"),
    (lambda p: p.write_temporal(0, [0, 5], [1, 1]), "blocks[1] = 5, but should be >= 0 and < 5 [num_blocks]"),
    (lambda p: p.write_temporal(0, [-1], [1]), "blocks[0] = -1, but should be >= 0 and < 5 [num_blocks]"),
    (
        lambda p: p.write_temporal(0, [1, 2, 1], [1, 1, 1]),
        "blocks[2] = 1, but should be written to once [(1,)]",
    ),
    (lambda p: p.write_temporal(0, [1], [1, 1]), "len(seeds) = 2, but should be 1 [len(blocks)]"),
    (
        lambda p: p.write_temporal(0, [1], [1 << 63]),
        f"seeds[0] = {1 << 63}, but should be >= 0 and < 2**63 [seeds]",
    ),
    (lambda p: p.write_temporal(0, [1], [-1]), "seeds[0] = -1, but should be >= 0 and < 2**63 [seeds]"),
    (lambda p: p.write_rows(0, [1, 1], [2, 4], [1, 1]), "rows[1] = 4, but should be >= 0 and < 4 [num_rows]"),
    (lambda p: p.write_rows(0, [5], [2], [1]), "blocks[0] = 5, but should be >= 0 and < 5 [num_blocks]"),
    (
        lambda p: p.write_rows(0, [1, 1], [2, 2], [1, 1]),
        "blocks[1] = 1, but should be written to once [(1, 2)]",
    ),
    (lambda p: p.write_rows(0, [1], [2, 3], [1]), "len(rows) = 2, but should be 1 [len(blocks)]"),
    (lambda p: p.write_rows(0, [1], [2], []), "len(seeds) = 0, but should be 1 [len(blocks)]"),
    (lambda p: p.check_temporal(0, [5], [1]), "blocks[0] = 5, but should be >= 0 and < 5 [num_blocks]"),
    (lambda p: p.check_temporal(0, [1], [-1]), "seeds[0] = -1, but should be >= 0 and < 2**63 [seeds]"),
    (lambda p: p.check_rows(0, [1], [-1], [1]), "rows[0] = -1, but should be >= 0 and < 4 [num_rows]"),
    (lambda p: p.poison(0, [0, -5]), "blocks[1] = -5, but should be >= 0 and < 5 [num_blocks]"),
    (lambda p: p.poison(0, [2, 2]), "blocks[1] = 2, but should be written to once [(2,)]"),
    (lambda p: p.digest(0, [5]), "blocks[0] = 5, but should be >= 0 and < 5 [num_blocks]"),
]


@pytest.mark.parametrize(("call", "said"), REFUSED)
def test_what_is_not_there_is_refused_before_anything_is_written(
    device: str, call: Callable[[StatePools], object], said: str
) -> None:
    made = filled(device)
    before = made.memory()
    with pytest.raises(ValueError, match="but should be") as caught:
        call(made.pools)
    assert str(caught.value) == said
    assert made.memory() == before


def pools_of(kind: str, tensor: torch.Tensor, layout: str = "SD", window: int = 3) -> StatePools:
    return StatePools([[(kind, tensor)]], window=window, layout=layout, groups=[0])


MISSHAPEN: list[tuple[Callable[[], object], str]] = [
    (
        lambda: pools_of("conv", torch.zeros(2, 3, 4), "XY"),
        "layout = 'XY', but should be one of ('SD', 'DS')",
    ),
    (lambda: StatePools([[]], window=3, layout="SD", groups=[]), "len(groups) = 0, but should be 1"),
    (
        lambda: pools_of("other", torch.zeros(2, 3, 4)),
        "kind = 'other', but should be one of ('conv', 'temporal')",
    ),
    (lambda: pools_of("conv", torch.zeros(2, 12)), "shape = (2, 12), but should be of 3 axes"),
    (lambda: pools_of("temporal", torch.zeros(2)), "shape = (2,), but should be of 2 axes or more"),
    (lambda: pools_of("temporal", torch.zeros(2, 0)), "shape = (2, 0), but should be without a 0"),
    (
        lambda: pools_of("conv", torch.zeros(2, 2, 4)),
        "shape = (2, 2, 4), but should be of 3 rows or more on axis 1",
    ),
    (
        lambda: pools_of("conv", torch.zeros(2, 4, 2), "DS"),
        "shape = (2, 4, 2), but should be of 3 rows or more on axis 2",
    ),
    (
        lambda: pools_of("conv", torch.zeros(2, 4, 3).mT),
        "stride = (12, 1, 3), but should be that of contiguous blocks",
    ),
    (
        lambda: pools_of("temporal", torch.zeros(1, 4).expand(2, 4)),
        "stride = (0, 1), but should be that of blocks apart",
    ),
    (
        lambda: pools_of("temporal", torch.zeros(2, 4, dtype=torch.complex128)),
        "element_size = 16, but should be 1, 2, 4 or 8",
    ),
    (
        lambda: StatePools(
            [[("conv", torch.zeros(2, 3, 4)), ("temporal", torch.zeros(2, 3, device="meta"))]],
            window=3,
            layout="SD",
            groups=[0],
        ),
        "devices = ['cpu', 'meta'], but should be one",
    ),
]


@pytest.mark.parametrize(("make", "said"), MISSHAPEN)
def test_tensors_of_another_form_are_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match="but should be") as caught:
        make()
    assert str(caught.value).startswith(said)


def test_a_single_block_needs_no_stride_of_its_own() -> None:
    tensor = torch.zeros(4, dtype=torch.bfloat16).as_strided((1, 4), (1, 1))
    pools = pools_of("temporal", tensor)
    pools.write_temporal(0, [0], [3])
    assert tensor.view(torch.uint8).numpy().tobytes() == stream(0, 0, 3, 8)


def test_an_address_that_is_a_multiple_of_nothing_is_written_as_any_other() -> None:
    memory = torch.zeros(40, dtype=torch.uint8)
    pools_of("temporal", memory[3:35].view(2, 16)).write_temporal(0, [1], [3])
    assert memory.numpy().tobytes() == bytes(19) + stream(0, 0, 3, 16) + bytes(5)


def test_memory_that_starts_at_an_odd_address_is_written_as_any_other() -> None:
    buffer = bytearray(48)
    odd = (1 - torch.frombuffer(buffer, dtype=torch.uint8).data_ptr()) % 8
    memory = torch.frombuffer(buffer, dtype=torch.uint8, offset=odd)
    pools_of("temporal", memory[7:39].view(2, 16)).write_temporal(0, [1], [3])
    assert memory.numpy().tobytes() == bytes(23) + stream(0, 0, 3, 16) + bytes(9 - odd)


def test_a_block_that_one_layer_of_the_group_lacks_is_refused() -> None:
    layers = [[("temporal", torch.zeros(count, 4))] for count in (3, 2)]
    pools = StatePools(layers, window=3, layout="SD", groups=[0, 0])
    with pytest.raises(ValueError, match=r"blocks\[1\] = 2, but should be >= 0 and < 2"):
        pools.write_temporal(0, [1, 2], [5, 5])


def test_states_lie_one_behind_another_in_each_page_aligned_to_their_elements(device: str) -> None:
    states: Kinds = [
        ("conv", (3, 5), torch.bfloat16),
        ("temporal", (2, 3), torch.float32),
        ("conv", (1,), torch.int8),
    ]
    (layer,) = make_pools([states], num_blocks=4, device=device)
    placed = [(t.storage_offset() * t.element_size(), t.stride(0) * t.element_size()) for _, t in layer]
    assert placed == [(0, 60), (32, 60), (56, 60)]
    assert [(kind, tuple(t.shape), t.dtype) for kind, t in layer] == [(k, (4, *s), d) for k, s, d in states]
    assert {raw(t).data_ptr() for _, t in layer} == {raw(layer[0][1]).data_ptr()}
    assert raw(layer[0][1]).numel() == 240


@pytest.mark.parametrize(("page", "rule"), [(23, ">= 24"), (26, "a multiple of 4")])
def test_a_page_that_does_not_hold_the_states_is_refused(device: str, page: int, rule: str) -> None:
    said = rf"page_bytes = {page}, but should be >= 24 and a multiple of 4 \[layers\[0\]\]"
    assert rule in said
    with pytest.raises(ValueError, match=said):
        make_pools(
            [[of_kind("temporal", 3, torch.float32, "SD")]], num_blocks=2, device=device, page_bytes=page
        )


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_of_writes_leaves_what_was_written_last(device: str, seed: int) -> None:
    rng, made = random.Random(seed), filled(device, ("SD", "DS")[seed % 2], DTYPES[seed % len(DTYPES)])
    temporal = {block: 10 + block for block in range(BLOCKS)}
    rows = dict(zip(product(range(BLOCKS), range(4)), ROW_SEEDS, strict=True))
    for _ in range(10):
        blocks = rng.sample(range(BLOCKS), rng.randint(0, BLOCKS))
        places = rng.sample(sorted(rows), rng.randint(0, 8))
        given = [rng.choice((0, rng.getrandbits(63))) for _ in (*blocks, *places)]
        made.pools.write_temporal(0, blocks, given[: len(blocks)])
        made.pools.write_rows(0, [b for b, _ in places], [r for _, r in places], given[len(blocks) :])
        temporal |= dict(zip(blocks, given[: len(blocks)], strict=True))
        rows |= dict(zip(places, given[len(blocks) :], strict=True))
    assert made.pools.check_temporal(0, list(temporal), list(temporal.values())) == []
    assert made.pools.check_rows(0, ROW_BLOCKS, ROWS, list(rows.values())) == []
