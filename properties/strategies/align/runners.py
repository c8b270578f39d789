"""The calls of both runners around a forward, in their order: V1 keeps requests in rows, V2 in slots.

The caller that takes requests through steps says which steps: a history that was drawn, or an engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from properties.strategies.align.launches import (
    POSTPROCESS_ALIGN,
    POSTPROCESS_ALIGN_VECTORS,
    PRECOPY,
    PRECOPY_VECTORS,
    fused,
    preprocess_launch,
)
from properties.strategies.align.runner import Blocks, Scheduled, buffers, postprocess, preprocess, stage
from properties.strategies.align.setup import Setup
from statecheck.case.values import Call, Let, Overwrite, Record, Step, int32

TILE = 256
"""Rows of a program of the preprocess kernel."""


@dataclass(frozen=True)
class InRows:
    """The V1 order: preprocess, forward, staging, acceptance, postprocess; decisions are the host's. Contract 2.4.

    `size` rows there may be; their accepted counts are `accepted` on the host, and `counts` after the forward.
    """

    setup: Setup
    size: int
    pointers: bool = False
    schedule: str = ""

    def begin(self, *, with_postprocess: bool = True) -> Call:
        return buffers(self.setup, self.size, with_postprocess=with_postprocess)

    def named(self) -> list[Step]:
        """Nothing is remembered of any request."""
        counts = self.by_row(())
        return [Let("state_idx", {}), Let("counts", int32(counts)), Let("accepted", int32(counts).on_host())]

    def by_row(self, values: Sequence[int]) -> tuple[int, ...]:
        return (*values, *(1,) * (self.size - len(values)))

    def counted(self, counts: Sequence[int]) -> Step:
        """The counts that the step starts with."""
        return Overwrite("accepted", self.by_row(counts))

    def before(self, cache: Blocks, rows: Sequence[Scheduled], output: Record) -> Call:
        """What is called before the forward; it leaves the accepted counts in `accepted`."""
        pointers, schedule = self.pointers, self.schedule
        return preprocess(
            cache, rows, output, pointers=pointers, copy_bufs="bufs.preprocess", schedule=schedule
        )

    def staged(self, cache: Blocks, rows: Sequence[Scheduled], output: Record) -> Call:
        return stage(cache, rows, output, "bufs.postprocess_align")

    def after(self, cache: Blocks, rows: Sequence[Scheduled], sampled: Sequence[int]) -> list[Step]:
        """From sampling on; the counts of the next step are left in `accepted`."""
        accepted = Overwrite("counts", self.by_row(sampled))
        return [accepted, postprocess(cache, rows, schedule=self.schedule)]


@dataclass(frozen=True)
class InSlots:
    """The V2 order: fused preprocess, precopy, forward, fused postprocess; decisions are the device's. Contract 2.5.

    `size` slots there are; values by slot are `columns`, `computed`, `counts`, `src_col` and `bias`. Calls that copy
    observe what is in `observes`.
    """

    setup: Setup
    size: int
    observes: tuple[str, ...]
    schedule: str = ""

    def begin(self) -> list[Call]:
        return [self.setup.create(self.size), self.setup.initialize()]

    def step(self, slots: Sequence[int], lengths: Sequence[int]) -> list[Step]:
        """The slot of each row, and where its tokens begin."""
        starts = int32(tuple(accumulate(lengths, initial=0)))
        return [Let("mapping", int32(slots)), Let("starts", starts)]

    def advance(self, num_rows: int) -> Call:
        """The preprocess kernel, which decides where each of the rows runs."""
        return preprocess_launch(num_rows, TILE, self.setup.block_size, self.schedule)

    def precopy(self, num_rows: int, observes: Sequence[str] = ()) -> Call:
        return self._fused(PRECOPY, num_rows, PRECOPY_VECTORS, observes)

    def after(self, num_rows: int, counts: Sequence[int], computed: Sequence[int]) -> Iterator[Step]:
        """From sampling on; the counts of the next step are left in `counts`."""
        yield Overwrite("counts", tuple(counts))
        yield Overwrite("computed", tuple(computed))
        yield self._fused(POSTPROCESS_ALIGN, num_rows, POSTPROCESS_ALIGN_VECTORS, ("counts",))

    def _fused(
        self, function: str, num_rows: int, vectors: Mapping[str, str], observes: Sequence[str]
    ) -> Call:
        return fused(self.setup, function, num_rows, vectors, (*self.observes, *observes), self.schedule)
