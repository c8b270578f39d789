"""The kernel of copied runs, launched as documented and with the sizes that a GPU has: the same bytes as memmove."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

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
    """Bytes from an address that is a multiple of 64."""
    raw = torch.randint(0, 256, (LENGTH + 64,), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    raw = raw.to(device)
    return raw[-raw.data_ptr() % 64 :][:LENGTH]


def vectors(memory: torch.Tensor, entries: list[tuple[int, int, int]]) -> list[torch.Tensor]:
    base, device = memory.data_ptr(), memory.device
    sources, targets, sizes = zip(*entries, strict=True)
    addresses = [torch.tensor([base + one for one in each], device=device) for each in (sources, targets)]
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


@pytest.mark.parametrize("seed", range(4))
def test_runs_are_moved_by_the_function_as_well(memory: torch.Tensor, seed: int) -> None:
    entries = entries_of(10 + seed)
    expected = moved(memory, entries)
    SUBJECT.resolve("batch_memcpy")(*vectors(memory, entries))
    assert torch.equal(memory, expected)
