"""Batches of requests in align mode after a forward and sampling, as the fused kernels meet them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from oracle.situations.align import decisions
from properties.strategies.align.batches import OUT, AlignBatch
from properties.strategies.align.cache import with_context
from properties.strategies.align.launches import (
    POSTPROCESS,
    POSTPROCESS_ALIGN,
    POSTPROCESS_ALIGN_VECTORS,
    POSTPROCESS_KERNEL,
)
from properties.strategies.align.requests import RequestAfterStep
from properties.strategies.situations import named
from statecheck.case.values import Call, Let, Name, Step, Value

AT_BOUNDARY = (
    decisions.PUBLISHED,
    decisions.PUBLISHED_BIAS,
    decisions.AT_FRONT,
    decisions.COLLAPSED,
    decisions.ON_BOUNDARY,
    decisions.ONE_BEHIND,
)


@dataclass(frozen=True)
class BatchAfterForward(AlignBatch):
    """A batch after its forward and sampling."""

    requests: tuple[RequestAfterStep, ...]

    @property
    def all_requests(self) -> tuple[RequestAfterStep, ...]:
        return (RequestAfterStep(),) * self.rows.ahead + self.requests

    def written(self) -> set[tuple[int, int]]:
        """Request and column of the block before each boundary that accepted tokens reach, where nothing is flawed."""
        size, every = self.setup.block_size, enumerate(self.all_requests)
        return {(request, one.published(size)) for request, one in every if one.bias(size) >= 0}

    def shifted(self) -> list[tuple[int, int, int]]:
        """Request, column and bias of each request that is stored in the very block that it is in, by so many rows."""
        size, every = self.setup.block_size, enumerate(self.all_requests)
        stored = [(at, one) for at, one in every if at - self.rows.ahead not in self.rows.skipped]
        own = [(at, one) for at, one in stored if one.published(size) == one.running(size)]
        return [(at, one.running(size), one.bias(size)) for at, one in own if one.bias(size) > 0]

    def running(self) -> list[int]:
        """The running columns, -1 for a request that is said to have none."""
        return [
            -1 if one.flaw == "no source column" else one.running(self.setup.block_size)
            for one in self.all_requests
        ]

    def prepared(self) -> list[Step]:
        """Everything but the calls that `rowwise` and `slotwise` describe."""
        return with_context(self.cache, self.capacity)

    def rowwise(self) -> list[Step]:
        """Postprocess with per-request values in the order of the rows; behind them, those of a row that is due."""
        every, size = self.all_requests, self.setup.block_size
        vectors = {
            "counts": ([one.accepted for one in every], 2),
            "columns": (self.running(), 0),
            "scheduled": ([one.length for one in every], 2),
            "computed": ([one.computed for one in every], size),
            "drafts": ([one.drafts for one in every], 1),
        }
        named = [Let(name, self.by_row(values, other)) for name, (values, other) in vectors.items()]
        return [*named, self.postprocess()]

    def postprocess(self) -> Call:
        vectors = {
            "num_accepted_tokens_gpu": "counts",
            "mamba_state_idx_gpu": "columns",
            "num_scheduled_tokens_gpu": "scheduled",
            "num_computed_tokens_gpu": "computed",
            "num_draft_tokens_gpu": "drafts",
        }
        return self.fused(POSTPROCESS, vectors, ("counts", OUT))

    def launched_by_row(self) -> list[Step]:
        """As `rowwise`, with the kernel launched as documented: a program for each row and state.

        Counts go to a copy of the counts, so that a kernel may store all of them or those that change.
        """
        *named, _ = self.rowwise()
        copied = self.by_row([one.accepted for one in self.all_requests], 2)
        arguments: dict[str, Value] = {
            "num_accepted_tokens_ptr": Name("counts"),
            "mamba_state_idx_ptr": Name("columns"),
            "num_scheduled_tokens_ptr": Name("scheduled"),
            "num_computed_tokens_ptr": Name("computed"),
            "num_draft_tokens_ptr": Name("drafts"),
            "num_accepted_tokens_out_ptr": Name("counts_out"),
            "idx_mapping_ptr": None,
        }
        launched = self.launch(POSTPROCESS_KERNEL, arguments, block_size=self.setup.block_size)
        seen = (*launched.observes, "counts", "counts_out")
        return [*named, Let("counts_out", copied), replace(launched, observes=seen)]

    def slotwise(self) -> list[Step]:
        """Postprocess with per-request values in slots; what no row is mapped to would be due."""
        every, size = self.all_requests, self.setup.block_size
        vectors = {
            "counts": ([one.accepted for one in every], 2),
            "columns": (self.running(), 1),
            "computed": ([one.computed_after for one in every], 2 * size),
        }
        named = [Let(name, self.by_slot(values, other)) for name, (values, other) in vectors.items()]
        return [*named, Let("mapping", self.mapping), self.postprocess_align()]

    def postprocess_align(self) -> Call:
        return self.fused(POSTPROCESS_ALIGN, POSTPROCESS_ALIGN_VECTORS, ("counts",))

    def conditions(self) -> dict[str, bool]:
        size = self.setup.block_size
        sound = [one for one in self.requests if not one.flaw]
        due = [one for one in sound if one.bias(size) >= 0]
        own = [one for one in due if one.published(size) == one.running(size)]
        passed = (
            decisions.at_boundary(one.running(size), one.first_state, one.computed_after, size)
            for one in sound
        )
        chunks = (decisions.ends_prompt_chunk(one.computed, one.length, one.drafts, size) for one in sound)
        drafted = [one for one in sound if one.drafts]
        conv = any(state.kind == "conv" for group in self.setup.groups for state in group.states)
        return {
            **named(AT_BOUNDARY, passed),
            "conv rows shifted in place": conv and any(one.bias(size) > 0 for one in own),
            "no boundary": len(due) < len(sound),
            decisions.PROMPT_CHUNK.name: any(chunks),
            "all drafts accepted": any(one.accepted == 1 + one.drafts for one in drafted),
            "some drafts accepted": any(1 < one.accepted < 1 + one.drafts for one in drafted),
            "no draft accepted": any(one.accepted == 1 for one in drafted),
            "fresh request": any(one.computed == 0 for one in sound),
            **self.shared_conditions(),
        }
