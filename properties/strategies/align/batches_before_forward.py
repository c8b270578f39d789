"""Batches of requests in align mode before a forward, as the fused kernels meet them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from oracle.situations.align import decisions
from properties.strategies.align.batches import AlignBatch
from properties.strategies.align.cache import spread, with_context
from properties.strategies.align.launches import (
    PRECOPY,
    PRECOPY_KERNEL,
    PRECOPY_VECTORS,
    preprocess_launch,
)
from properties.strategies.align.requests import RequestBeforeStep
from properties.strategies.situations import named
from statecheck.case.values import Call, Let, Name, Step, Value, int32

AT_CHANGE = (
    decisions.FRESH,
    decisions.STAYS_OFFSET,
    decisions.COMES_OFFSET,
    decisions.BACK,
    decisions.LEAPS,
)


@dataclass(frozen=True)
class BatchBeforeForward(AlignBatch):
    """A batch before its forward."""

    requests: tuple[RequestBeforeStep, ...]
    tile: int = 256

    @property
    def all_requests(self) -> tuple[RequestBeforeStep, ...]:
        return (RequestBeforeStep(remembered=False),) * self.rows.ahead + self.requests

    def written(self) -> set[tuple[int, int]]:
        """Request and column of the block where each request that moves goes on, where nothing is flawed."""
        size, every = self.setup.block_size, enumerate(self.all_requests)
        return {(request, one.running(size)) for request, one in every if one.moves(size)}

    def previous(self) -> list[int]:
        """The columns of the last step, -1 for a request that is said to have none."""
        return [
            -1 if one.flaw == "no source column" else one.previous(self.setup.block_size)
            for one in self.all_requests
        ]

    def running(self) -> list[int]:
        return [one.running(self.setup.block_size) for one in self.all_requests]

    def prepared(self) -> list[Step]:
        return with_context(self.cache, self.capacity)

    def slotwise(self) -> list[Step]:
        """Precopy; what no row is mapped to would be copied."""
        vectors = {
            "columns": (self.running(), 1),
            "src_col": (self.previous(), 0),
            "bias": ([one.bias for one in self.all_requests], 0),
        }
        named = [Let(name, self.by_slot(values, other)) for name, (values, other) in vectors.items()]
        return [*named, Let("mapping", self.mapping), self.precopy()]

    def precopy(self) -> Call:
        return self.fused(PRECOPY, PRECOPY_VECTORS)

    def launched_by_slot(self) -> list[Step]:
        """As `slotwise`, with the kernel launched as documented: a program for each row and state."""
        arguments: dict[str, Value] = {
            "mamba_state_idx_ptr": Name("columns"),
            "src_col_ptr": Name("src_col"),
            "token_bias_ptr": Name("bias"),
            "idx_mapping_ptr": Name("mapping"),
        }
        return [*self.slotwise()[:-1], self.launch(PRECOPY_KERNEL, arguments)]

    def advance(self) -> list[Step]:
        """The preprocess kernel; the outputs hold poison before."""
        starts = tuple(accumulate((self.all_requests[r].length for r in self.row_order), initial=0))
        vectors = {
            "columns": (self.previous(), 5),
            "computed": ([one.computed for one in self.all_requests], 9),
            "counts": ([one.accepted for one in self.all_requests], 4),
            "src_col": ([77] * self.num_reqs, 77),
            "bias": ([88] * self.num_reqs, 88),
        }
        named: list[Step] = [Let(name, self.by_slot(*values)) for name, values in vectors.items()]
        last = spread(starts, self.capacity + 1, starts[-1])
        return [*named, Let("mapping", self.mapping), Let("starts", int32(last)), self.preprocess()]

    def preprocess(self) -> Call:
        return preprocess_launch(self.num_reqs, self.tile, self.setup.block_size, self.schedule)

    def conditions(self) -> dict[str, bool]:
        size = self.setup.block_size
        sound = [one for one in self.requests if not one.flaw]
        moving = [one for one in sound if one.moves(size)]
        changes = (decisions.at_change(one.previous(size), one.running(size), one.accepted) for one in sound)
        return {
            **named(AT_CHANGE, changes),
            "moves, bias 0": any(one.bias == 0 for one in moving),
            "stays": any(one.previous(size) == one.running(size) for one in sound),
            "request with a hit": any(not one.remembered and one.computed for one in sound),
            "self copy of the temporal state": any(
                one.previous(size) + one.bias == one.running(size) for one in moving
            ),
            decisions.UNCOUNTED.name: any(one.accepted == 0 for one in sound),
            "several programs": self.num_reqs > self.tile,
            **self.shared_conditions(),
        }
