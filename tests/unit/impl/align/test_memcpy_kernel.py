"""The kernel of copied runs, launched as documented and with the sizes that a GPU has: the same bytes as memmove."""

from __future__ import annotations

import mmap
import random
from typing import Any

import pytest
import torch

from statecheck.sanitizer import OutsideView, sanitize
from subjects import load

SUBJECT = load("impl")
LENGTH = 60_000
RUNS = (0, 1, 15, 16, 17, 48, 128, 2048, 2400, 4096, 4097, 8 * 700, 8 * 812, 8192)
MOVES = (16, -16, 32, 8, -8, 1, -1, 64, 4096, -4096, 0)


def entries_of(seed: int) -> list[tuple[int, int, int]]:
    """Source, target and size of runs that share no byte with another entry's; half of them lie onto themselves."""
    drawn, found = random.Random(seed), [(64, 64 + 2400, 2400), (8192, 8192 + 6496, 6496)]
    at = 32_768
    while at < LENGTH - 2 * 8192 - 4200:
        size, move = drawn.choice(RUNS), drawn.choice(MOVES)
        first = at + drawn.choice((0, 0, 0, 3, 8))
        move = move if drawn.random() < 0.5 else size + drawn.choice((0, 1, 16))
        source, target = (first, first + move) if move >= 0 else (first - move, first)
        found.append((source, target, size))
        at = -(-(max(source, target) + size) // 16) * 16
    return found


@pytest.fixture
def memory(device: str) -> torch.Tensor:
    """Bytes from an address that is a multiple of 64, and has more than 32 bits."""
    drawn = torch.randint(
        0, 256, (LENGTH + 64,), generator=torch.Generator().manual_seed(1), dtype=torch.uint8
    )
    # A small tensor lies on the heap, which begins below 2 GiB in some builds of Python.
    raw = (
        drawn.to(device)
        if device != "cpu"
        else torch.frombuffer(mmap.mmap(-1, len(drawn)), dtype=torch.uint8)
    )
    raw.copy_(drawn)
    return raw[-raw.data_ptr() % 64 :][:LENGTH]


def vectors(memory: torch.Tensor, entries: list[tuple[int, int, int]]) -> list[torch.Tensor]:
    base, device = memory.data_ptr(), memory.device
    sources, targets, sizes = zip(*entries, strict=True)
    addresses = [
        torch.tensor([base + offset for offset in each], device=device) for each in (sources, targets)
    ]
    return [*addresses, torch.tensor(sizes, dtype=torch.int32, device=device)]


def moved(memory: torch.Tensor, entries: list[tuple[int, int, int]]) -> torch.Tensor:
    before, after = memory.clone(), memory.clone()
    for source, target, size in entries:
        after[target : target + size] = before[source : source + size]
    return after


LAUNCHES: dict[str, dict[str, Any]] = {
    "as documented, one entry for each program": {"BLOCK_SIZE": 1024},
    "with few bytes at a time": {"BLOCK_SIZE": 128},
    "with as many bytes at a time as on a GPU": {"BLOCK_SIZE": 4096},
    "in parts": {"BLOCK_SIZE": 4096, "num_parts": 3},
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("launch", LAUNCHES)
def test_each_run_is_moved_as_through_a_temporary(memory: torch.Tensor, seed: int, launch: str) -> None:
    entries = entries_of(seed)
    expected, options = moved(memory, entries), LAUNCHES[launch]
    given = {"num_entries": len(entries)} if "num_parts" in options else {}
    kernel = SUBJECT.resolve("batch_memcpy_kernel")
    kernel[(len(entries),)](*vectors(memory, entries), **options, **given)
    assert torch.equal(memory, expected)


def test_addresses_may_be_unsigned_and_sizes_wide(memory: torch.Tensor) -> None:
    entries = [(0, 64, 48), (1024, 2048, 512)]
    sources, targets, sizes = vectors(memory, entries)
    expected = moved(memory, entries)
    SUBJECT.resolve("batch_memcpy")(sources.view(torch.uint64), targets.view(torch.uint64), sizes.long())
    assert torch.equal(memory, expected)


@pytest.mark.parametrize("size", [0, -1, -(2**31), 16 - 2**32, -(2**63)])
def test_a_size_that_is_not_positive_moves_nothing(memory: torch.Tensor, size: int) -> None:
    sources, targets, sizes = vectors(memory, [(0, 1024, 0), (2048, 4096, 0)])
    before = memory.clone()
    SUBJECT.resolve("batch_memcpy")(sources, targets, sizes.long() + size)
    assert torch.equal(memory, before)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_a_size_of_31_bits_is_no_negative_size(memory: torch.Tensor, dtype: torch.dtype) -> None:
    sources, targets, sizes = vectors(memory, [(0, 2**40, 2**31 - 1)])
    with sanitize() as watch:
        watch.register(memory[:16], "source")
        with pytest.raises(OutsideView):
            SUBJECT.resolve("batch_memcpy")(sources, targets, sizes.to(dtype))
