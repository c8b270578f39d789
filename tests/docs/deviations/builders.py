"""Inputs on which the metadata builders deviate from documents 1 and 3: see docs/deviations.md."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from properties.strategies.builder_sessions import captured_step
from properties.strategies.builders import BuildCall as Batch
from properties.strategies.builders import BuilderSetup, StepRequest
from statecheck.case.values import Call, Name, Step, call
from tests.docs.deviations import Row

MAMBA = BuilderSetup(kind="mamba2", mode="none", max_num_seqs=2, max_model_len=8)
GDN = replace(MAMBA, kind="gdn")
DECODE = StepRequest(1, 1)
PROMPT = StepRequest(1, 0, prefilling=True)
DRAFTED = StepRequest(2, 1, accepted=2, drafts=1)


def _built(
    setup: BuilderSetup, *requests: StepRequest, padded_rows: int = 0, **host: Any
) -> tuple[Step, ...]:
    batch = Batch(requests, padded_rows=padded_rows, **host)
    return setup.construct(), batch.build(setup)


def _owned(setup: BuilderSetup, *requests: StepRequest) -> tuple[Step, ...]:
    owned = call("harness.owned_fields", owner=Name("builder"), result=Name("metadata"))
    return (*_built(setup, *requests), owned)


def _captured(setup: BuilderSetup) -> tuple[Step, ...]:
    return setup.construct(), captured_step(setup, 1, 1)


def _refused(setup: BuilderSetup) -> tuple[Call]:
    return (setup.construct(),)


SPECULATIVE = replace(MAMBA, num_spec=1)
SPECULATIVE_GDN = replace(GDN, num_spec=1)

ROWS: tuple[Row, ...] = (
    (
        "document 1, `_compute_common_metadata`, rows in their prompt",
        _built(MAMBA, PROMPT),
    ),
    (
        "document 1, `_compute_common_metadata`, rows in their prompt, with accepted counts",
        _built(SPECULATIVE, replace(PROMPT, query_len=2)),
    ),
    (
        "document 1, reorder threshold under parallel drafting",
        _built(replace(SPECULATIVE, parallel_drafting=True), StepRequest(3, 1)),
    ),
    (
        "document 1, reorder threshold under decode context parallelism",
        _built(replace(SPECULATIVE, decode_context_parallel_size=2), DRAFTED),
    ),
    (
        "document 1, rows of padding among decodes",
        _built(MAMBA, DECODE, padded_rows=1),
    ),
    (
        "document 1, rows of padding behind prefills",
        _built(MAMBA, PROMPT, padded_rows=1),
    ),
    (
        "document 1, mode all, capture buffer",
        _built(replace(SPECULATIVE, mode="all", full_cudagraphs=True), DRAFTED),
    ),
    (
        "document 1, mode all, block indices for full graphs",
        _owned(replace(SPECULATIVE, mode="all", full_cudagraphs=True), DRAFTED),
    ),
    (
        "document 1, `query_start_loc_d` for full graphs",
        _owned(replace(SPECULATIVE, full_cudagraphs=True), DRAFTED),
    ),
    (
        "document 1, `num_accepted_tokens` without decodes",
        _built(SPECULATIVE, replace(PROMPT, query_len=3)),
    ),
    (
        "document 1, empty batch under speculation with full graphs",
        _built(replace(SPECULATIVE, full_cudagraphs=True)),
    ),
    (
        "document 1, `build_for_cudagraph_capture`",
        _captured(replace(SPECULATIVE, full_cudagraphs=True)),
    ),
    (
        "document 1, constructor",
        _refused(replace(SPECULATIVE, num_spec=2, spare_blocks=-1)),
    ),
    (
        "contract 1.10, Mamba-1 builder under speculation",
        _refused(replace(SPECULATIVE, kind="mamba1")),
    ),
    (
        "document 3, `build`, a row that drafted nothing",
        _built(SPECULATIVE_GDN, StepRequest(1, 2, accepted=2, drafts=-1)),
    ),
    (
        "document 3, `build`, a batch in which every draft count is 0",
        _built(SPECULATIVE_GDN, StepRequest(1, 2, accepted=2, drafts=0)),
    ),
    (
        "document 3, `build`, rows in their prompt",
        _built(GDN, PROMPT),
    ),
    (
        "document 3, `build`, padding in full graphs",
        _built(replace(SPECULATIVE_GDN, full_cudagraphs=True), DRAFTED),
    ),
    (
        "document 3, `build`, rows of padding among decodes",
        _built(GDN, DECODE, padded_rows=1),
    ),
    (
        "document 3, `build`, rows of padding behind prefills",
        _built(GDN, replace(PROMPT, query_len=2), padded_rows=1),
    ),
    (
        "document 3, `build`, device masks",
        _built(SPECULATIVE_GDN, DRAFTED, replace(PROMPT, query_len=2)),
    ),
    (
        "document 3, `build_for_cudagraph_capture`",
        _captured(replace(SPECULATIVE_GDN, full_cudagraphs=True)),
    ),
    (
        "contract 1.6, `is_prefilling`, as released (V1, to 0.33.0)",
        _built(SPECULATIVE_GDN, DRAFTED, StepRequest(2, 4, prefilling=True)),
    ),
    (
        "document 3, constructor, mode all",
        _refused(replace(GDN, mode="all")),
    ),
)
