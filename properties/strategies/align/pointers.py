"""Copies that are written down as pointers and sizes: of a request's states, and of any runs of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from hypothesis import strategies as st

from properties.strategies.align.cache import Cache, pattern
from properties.strategies.align.runner import copy_buffers
from properties.strategies.align.setup import Group, Kept, Setup
from properties.strategies.bounds import MANY_ROWS, crowded, seldom
from properties.strategies.orders import schedules
from statecheck.case.values import Attribute, Call, Let, Name, Record, Step, Tensor, Value, View, call, record

COLLECT = "collect_mamba_copy_meta"
DO_COPY = "do_mamba_copy_block"
MEMCPY = "batch_memcpy"
LAYERS = Name("layers")
LISTS = ("copy_bufs.offset", "copy_bufs.sizes.np")
POINTERS = ("copy_bufs.src_ptrs.np", "copy_bufs.dst_ptrs.np")


def collect(
    setup: Setup,
    block_ids: Sequence[Sequence[int]],
    src_col: Value,
    dst_col: Value,
    bias: Value,
    *,
    observes: Sequence[str] = LISTS,
    forward_context: Value = LAYERS,
) -> Call:
    """Write the copies of one request down in `copy_bufs`."""
    other = [[1]] * setup.attention
    request = record("CachedRequestState", block_ids=[*other, *map(list, block_ids)], num_computed_tokens=0)
    return call(
        COLLECT,
        bufs=Name("copy_bufs"),
        kv_cache_config=Name("config"),
        copy_funcs=setup.copy_functions,
        group_ids=list(setup.group_ids),
        src_col=src_col,
        dst_col=dst_col,
        bias=bias,
        req_state=request,
        forward_context=forward_context,
        environment=setup.environment,
        observes=observes,
        updates="copy_bufs",
    )


def collect_request(cache: Cache, request: int, src_col: int, dst_col: int, bias: int) -> Call:
    blocks = [cache.block_ids(group, request) for group in range(cache.num_groups)]
    return collect(cache.setup, blocks, src_col, dst_col, bias)


def do_copies(pools: Sequence[str], *, schedule: str = "") -> Call:
    """Do what is written down in `copy_bufs`."""
    return call(DO_COPY, bufs=Name("copy_bufs"), observes=pools, schedule=schedule)


def copy_again(pools: Sequence[str], *, sizes: Tensor | None = None, schedule: str = "") -> Call:
    """Do the copies that the device's lists hold; entries that were not written have size 0.

    Args:
        sizes: of all entries, by default those of the list.
    """
    return call(
        MEMCPY,
        src_ptrs=Attribute(Name("copy_bufs"), "src_ptrs.gpu"),
        dst_ptrs=Attribute(Name("copy_bufs"), "dst_ptrs.gpu"),
        sizes=Attribute(Name("copy_bufs"), "sizes.gpu") if sizes is None else sizes,
        observes=pools,
        schedule=schedule,
    )


MEMCPY_KERNEL = "batch_memcpy_kernel"


def launch_again(entries: int, pools: Sequence[str], *, schedule: str = "") -> Call:
    """The same by a launch of the kernel, with a program for each of the first `entries`."""
    again = copy_again(pools, schedule=schedule)
    return call(
        "harness.launch",
        kernel=MEMCPY_KERNEL,
        grid=(entries,),
        arguments=again.named,
        constexprs={"BLOCK_SIZE": 256},
        observes=pools,
        schedule=schedule,
    )


@dataclass(frozen=True)
class MovedRun:
    """`size` bytes that move by `distance`, behind `gap` bytes that stay."""

    size: int
    distance: int = 0
    gap: int = 0

    @property
    def reach(self) -> int:
        """Bytes that are read or written, what lies between included."""
        return self.size + abs(self.distance)


@dataclass(frozen=True)
class MovedRuns:
    """Runs of bytes of one pool, each in a zone of its own; the lists have room for `spare` requests more."""

    runs: tuple[MovedRun, ...]
    spare: int = 0
    seed: int = 0
    schedule: str = ""

    @property
    def setup(self) -> Setup:
        """A model with a group for each run: any byte of the pool can start one of its blocks."""
        return Setup(tuple(Group((Kept("temporal", (1, 1, run.size)),)) for run in self.runs))

    @property
    def zones(self) -> tuple[int, ...]:
        """Where each run's zone begins, and where the last one ends. The first byte is of the null block."""
        ends = accumulate((run.gap + run.reach for run in self.runs), initial=1)
        return tuple(ends)

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Source and target of each run, in bytes of the pool."""
        starts = [start + run.gap for start, run in zip(self.zones, self.runs, strict=False)]
        return tuple(
            (start + max(0, -run.distance), start + max(0, run.distance))
            for start, run in zip(starts, self.runs, strict=True)
        )

    @property
    def contents(self) -> bytes:
        """The bytes of the pool."""
        return pattern(self.seed, "pool0", self.zones[-1] + 3)

    def sizes(self, dtype: str) -> Tensor:
        """The bytes of each entry of the lists, in numbers of that type."""
        numbers = [run.size for run in self.runs]
        entries = (1 + self.spare) * len(numbers)
        return Tensor(dtype, (entries,), (*numbers, *(0,) * (entries - len(numbers))))

    def moved_through_a_temporary(self) -> bytes:
        """The bytes of the pool after every run has moved."""
        found = bytearray(self.contents)
        for run, (source, target) in zip(self.runs, self.places, strict=True):
            found[target : target + run.size] = self.contents[source : source + run.size]
        return bytes(found)

    def steps(self) -> list[Step]:
        """Name pool, layers and configuration, and make `copy_bufs`."""
        end = self.zones[-1] + 3
        layers: dict[str, Record] = {
            f"layer{number}": record(
                "Layer",
                kv_cache=[
                    View("pool0", "uint8", (end - run.size + 1, 1, 1, run.size), (1, run.size, run.size, 1))
                ],
            )
            for number, run in enumerate(self.runs)
        }
        return [
            Let("pool0", Tensor("uint8", (end,), self.contents)),
            Let("layers", layers),
            Let("config", self.setup.config(end)),
            copy_buffers(self.setup, 1 + self.spare),
        ]

    def collect(self) -> Call:
        return collect(self.setup, self.places, 0, 1, 0)


SIZES = (*range(1, 21), 33, 64, 128, 1024, 1500, 4096, 17000, 17000, 17008, 17008, 32784, 32784)
SMALL = 20
"""Bytes of a run, of which there may be many."""
LARGE = 4096
"""Bytes of a run from which on it is copied alone: a CPU copies it in many small steps."""
GAPS = (0, 1, 2, 3, 15, 15, 31)


def _run(size: int, shift: int, back: bool, gap: int) -> MovedRun:
    """A run that moves not at all, by a little, by some of its size, or by more than that."""
    distance = (0, 1, size, size + 2, 16, 3, size // 2, size - 1)[shift]
    return MovedRun(size, -distance if back else distance, gap)


def addresses() -> st.SearchStrategy[int]:
    """Addresses with room for some gigabytes behind them, many of them in the upper half of the address space."""
    bases = st.sampled_from((2**12, 2**31 - 2**12, 2**40, 2**63 - 2**20, 2**63, 2**64 - 2**40))
    return st.builds(lambda base, pages: base + 64 * pages, bases, st.integers(0, 1000))


def runs(*, reordered: bool = False) -> st.SearchStrategy[MovedRuns]:
    """Runs of bytes that overlap themselves or not, in either direction; small ones if they are run in every order."""
    sizes = tuple(size for size in SIZES if size < LARGE) if reordered else SIZES
    return _runs(st.lists(_one_run(st.sampled_from(sizes)), min_size=1, max_size=2))


@st.composite
def _one_run(draw: st.DrawFn, sizes: st.SearchStrategy[int]) -> MovedRun:
    return _run(draw(sizes), draw(_SHIFTS), draw(_BACK), draw(_GAPS))


@st.composite
def _runs(draw: st.DrawFn, some: st.SearchStrategy[list[MovedRun]]) -> MovedRuns:
    runs = _affordable(tuple(draw(some)))
    if draw(_MANY) and max(run.size for run in runs) <= SMALL:
        runs = tuple(crowded(runs, MANY_ROWS[1] + 1))
    return MovedRuns(runs, draw(_SPARE), draw(_SEEDS), draw(schedules()))


_SHIFTS, _BACK, _GAPS = st.integers(0, 7), st.booleans(), st.sampled_from(GAPS)
_SPARE, _SEEDS, _MANY = st.sampled_from((0, 0, 1)), st.integers(0, 7), seldom(24)


def _affordable(found: tuple[MovedRun, ...]) -> tuple[MovedRun, ...]:
    """The runs up to the first large one."""
    large = (number for number, run in enumerate(found) if run.size >= LARGE)
    return found[: next(large, len(found)) + 1]
