"""What the benches of align mode launch: a driver of a context, or the three launches of a V2 step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lab.bench.cache import BLOCK_SIZE, Shape
from lab.bench.clock import Action
from statecheck.subject import Subject

POSTPROCESS, PRECOPY = "run_fused_postprocess", "run_fused_precopy"
POSTPROCESS_ALIGN = "run_fused_postprocess_align"
STEP = "V2 step"
_PREPROCESS = "preprocess_mamba_align_fused_kernel"
# As engines launch it.
_ROWS_PER_PROGRAM = 256


@dataclass(frozen=True)
class Side:
    """An implementation, and its context for a cache."""

    subject: Subject
    context: Any


@dataclass(frozen=True)
class CopyLoad:
    """One launch for `requests` rows, of which `crossing` have a state to copy that is `bias` tokens further on.

    `driver`: the method of a context that makes it. `vectors`: the driver's int32 arguments; V2's values have an entry
    for each slot that there is, as an engine's have.
    """

    driver: str
    requests: int
    crossing: int
    bias: int
    vectors: dict[str, list[int]]

    def tensors(self, device: str) -> dict[str, torch.Tensor]:
        return {
            name: torch.tensor(values, dtype=torch.int32).to(device) for name, values in self.vectors.items()
        }

    def moved_bytes(self, shape: Shape) -> int:
        """Bytes that the copies read and write, in all layers together."""
        return self.crossing * shape.moved_bytes(self.bias)

    def offered_by(self, side: Side) -> bool:
        return hasattr(side.context, self.driver)

    def launch(self, side: Side, vectors: dict[str, torch.Tensor]) -> Action:
        """Ready to be done, with these vectors, which it may change."""
        driver = getattr(side.context, self.driver)
        return lambda: driver(num_reqs=self.requests, **vectors)


@dataclass(frozen=True)
class StepLoad(CopyLoad):
    """What a V2 step launches around its forward: the preprocess kernel, the precopy and the postprocess.

    `vectors`: int32, by slot but for idx_mapping and query_start_loc. `driver`: what the three together are called.
    """

    def moved_bytes(self, shape: Shape) -> int:
        # Into the new column with the drafts of the step before, and behind the boundary with none of this step's.
        return self.crossing * (shape.moved_bytes(self.bias) + shape.moved_bytes(0))

    def offered_by(self, side: Side) -> bool:
        drivers = (PRECOPY, POSTPROCESS_ALIGN)
        return side.subject.has(_PREPROCESS) and all(hasattr(side.context, name) for name in drivers)

    def launch(self, side: Side, vectors: dict[str, torch.Tensor]) -> Action:
        kernel = _released(side.subject.resolve(_PREPROCESS))
        precopy_, postprocess_ = (getattr(side.context, name) for name in (PRECOPY, POSTPROCESS_ALIGN))
        grid, rows = (-(-self.requests // _ROWS_PER_PROGRAM),), self.requests
        idx, columns = vectors["idx_mapping"], vectors["state_idx"]
        before = [vectors[name] for name in ("num_computed_tokens", "query_start_loc", "num_accepted_tokens")]
        sources = vectors["src_col"], vectors["src_off"]
        after = vectors["sampled"], columns, vectors["new_num_computed_tokens"]
        sizes = {"BLOCK_SIZE": _ROWS_PER_PROGRAM, "MAMBA_BLOCK_SIZE": BLOCK_SIZE}

        def step() -> None:
            kernel[grid](idx, columns, *before, *sources, rows, **sizes)
            precopy_(rows, columns, *sources, idx)
            postprocess_(rows, *after, idx)

        return step


def _released(kernel: Any) -> Any:
    """The kernel without what an adapter of the harness's adds, whose time is not the subject's."""
    return kernel.kernel if type(kernel).__module__.startswith("subjects.") else kernel


def postprocess(requests: int, crossing: int) -> CopyLoad:
    """Steps of 1 token and 2 drafts, 1 of them accepted: behind 30 tokens that fills a block, behind 20 it does not.

    A single row that crosses is the one in the middle.
    """
    rows = range(requests)
    crosses = [crossing == requests or (crossing == 1 and row == requests // 2) for row in rows]
    vectors = {
        "num_accepted_tokens_gpu": [2 for _ in rows],
        "mamba_state_idx_gpu": [2 if crosses[row] else 1 for row in rows],
        "num_scheduled_tokens_gpu": [3 for _ in rows],
        "num_computed_tokens_gpu": [30 if crosses[row] else 20 for row in rows],
        "num_draft_tokens_gpu": [2 for _ in rows],
    }
    return CopyLoad(POSTPROCESS, requests, crossing, 1, vectors)


def postprocess_align(requests: int, slots: int) -> CopyLoad:
    """The same steps as V2 has them, all rows crossing."""
    vectors = {
        "num_accepted_tokens_gpu": [2] * slots,
        "state_idx_gpu": [2] * slots,
        "new_num_computed_tokens_gpu": [32] * slots,
        "idx_mapping": list(range(requests)),
    }
    return CopyLoad(POSTPROCESS_ALIGN, requests, requests, 1, vectors)


def precopy(requests: int, slots: int) -> CopyLoad:
    """All rows go on from column 1 to column 2, after 2 accepted drafts."""
    vectors = {
        "state_idx_gpu": [2] * slots,
        "src_col_gpu": [1] * slots,
        "token_bias_gpu": [2] * slots,
        "idx_mapping": list(range(requests)),
    }
    return CopyLoad(PRECOPY, requests, requests, 2, vectors)


def v2_step(requests: int, slots: int, *, crossing: bool) -> StepLoad:
    """Steps of 1 token and 2 drafts, 1 of them accepted, after steps of which both drafts were.

    Behind 31 tokens that leaves a column and fills its block, behind 20 it does neither. All rows do, or none.
    """
    computed = 31 if crossing else 20
    vectors = {
        "idx_mapping": list(range(requests)),
        "state_idx": [1] * slots,
        "num_computed_tokens": [computed] * slots,
        "query_start_loc": [3 * row for row in range(requests + 1)],
        "num_accepted_tokens": [3] * slots,
        "src_col": [-1] * slots,
        "src_off": [0] * slots,
        "sampled": [2] * slots,
        "new_num_computed_tokens": [computed + 2] * slots,
    }
    return StepLoad(STEP, requests, requests if crossing else 0, 2, vectors)


def loads(requests: Sequence[int]) -> Iterator[CopyLoad]:
    """What is timed of each cache, V1 first."""
    few, many = min(requests), max(requests)
    yield from (postprocess(rows, rows) for rows in requests)
    yield from (postprocess(rows, 0) for rows in requests)
    yield postprocess(many, 1)
    for make in (precopy, postprocess_align):
        yield from (make(rows, many) for rows in (few, many))
    yield from (v2_step(rows, many, crossing=True) for rows in requests)
    yield v2_step(many, many, crossing=False)


def idle_loads(requests: int) -> Iterator[CopyLoad]:
    """One call of each driver, and a V2 step; none of the requests copies anything."""
    yield postprocess(requests, 0)
    still = postprocess_align(requests, requests).vectors | {"new_num_computed_tokens_gpu": [20] * requests}
    yield CopyLoad(POSTPROCESS_ALIGN, requests, 0, 0, still)
    fresh = precopy(requests, requests).vectors | {"src_col_gpu": [-1] * requests}
    yield CopyLoad(PRECOPY, requests, 0, 0, fresh)
    yield v2_step(requests, requests, crossing=False)
