"""Where the metadata builders deviate from documents 1 and 3, and why: more rows of docs/deviations.md."""

from __future__ import annotations

from dataclasses import replace

from properties.strategies.builder_sessions import captured_step
from properties.strategies.builders import BuildCall as Batch
from properties.strategies.builders import BuilderSetup, StepRequest
from statecheck.case.values import Call, Name, Step, call

MAMBA = BuilderSetup(kind="mamba2", mode="none", max_num_seqs=2, max_model_len=8)
GDN = replace(MAMBA, kind="gdn")
DECODE = StepRequest(1, 1)
PROMPT = StepRequest(1, 0, prefilling=True)
DRAFTED = StepRequest(2, 1, accepted=2, drafts=1)


def _built(
    setup: BuilderSetup, *requests: StepRequest, padded_rows: int = 0, **host: bool
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

ROWS = (
    (
        "document 1, `_compute_common_metadata`, rows in their prompt",
        "1 request: the first token of its prompt",
        "a decode: it reads a state that was never written",
        (
            "a prefill, where `is_prefilling` or `seq_lens_cpu_upper_bound` tells; otherwise a precondition, checked for "
            "host tensors"
        ),
        _built(MAMBA, PROMPT),
    ),
    (
        "document 1, `_compute_common_metadata`, rows in their prompt, with accepted counts",
        "1 speculative token; 1 request: the first 2 tokens of its prompt",
        "a decode, being no longer than the threshold",
        "a prefill, as above",
        _built(SPECULATIVE, replace(PROMPT, query_len=2)),
    ),
    (
        "document 1, reorder threshold under parallel drafting",
        "1 speculative token; 1 request of 3 tokens past its prompt",
        "a decode of 3 tokens, which writes to the column behind the 2 that its state indices have",
        "a prefill: the threshold is 1 + the speculative tokens, whatever the drafter does",
        _built(replace(SPECULATIVE, parallel_drafting=True), StepRequest(3, 1)),
    ),
    (
        "document 1, reorder threshold under decode context parallelism",
        "1 speculative token, 2 context ranks; 1 request that drafted",
        "a prefill, which reads column 0 and loses the accepted offset",
        "a decode: recurrent state is not sharded by context",
        _built(replace(SPECULATIVE, decode_context_parallel_size=2), DRAFTED),
    ),
    (
        "document 1, rows of padding among decodes",
        "1 decode, 1 row of padding",
        "the row keeps what the runner left in its block-table row, and kernels write there",
        "-1 in every column, in full graphs and in eager steps",
        _built(MAMBA, DECODE, padded_rows=1),
    ),
    (
        "document 1, rows of padding behind prefills",
        "1 prefill, 1 row of padding",
        "the row keeps its table entry; padded with -1, the scatter of states hits the last block of the pool",
        "the null block",
        _built(MAMBA, PROMPT, padded_rows=1),
    ),
    (
        "document 1, mode all, capture buffer",
        "mode all, 1 speculative token, full graphs; 1 decode",
        "the buffer has no columns for speculative blocks: copying the table into it raises",
        "the buffer has them; a narrower table is filled up with -1, a wider one cut",
        _built(replace(SPECULATIVE, mode="all", full_cudagraphs=True), DRAFTED),
    ),
    (
        "document 1, mode all, block indices for full graphs",
        "the same step",
        "2 entries for 1 request: the buffers are cut at the number of tokens, and the second was never written",
        "1 entry per row, padding 0",
        _owned(replace(SPECULATIVE, mode="all", full_cudagraphs=True), DRAFTED),
    ),
    (
        "document 1, `query_start_loc_d` for full graphs",
        "1 speculative token, full graphs; 1 decode",
        "a view of the runner's tensor, so a graph reads what stands at that address later",
        "in the builder's own buffer, as everything else that a graph reads",
        _owned(replace(SPECULATIVE, full_cudagraphs=True), DRAFTED),
    ),
    (
        "document 1, `num_accepted_tokens` without decodes",
        "1 speculative token; 1 prefill",
        "counts of all rows, though the metadata has no decode",
        "None",
        _built(SPECULATIVE, replace(PROMPT, query_len=3)),
    ),
    (
        "document 1, empty batch under speculation with full graphs",
        "1 speculative token, full graphs; no row",
        "`AssertionError`",
        "metadata without rows",
        _built(replace(SPECULATIVE, full_cudagraphs=True)),
    ),
    (
        "document 1, `build_for_cudagraph_capture`",
        "1 speculative token; 1 row, 1 row of padding",
        "accepted count 0 for padding: a kernel reads the column before the first",
        "1",
        _captured(replace(SPECULATIVE, full_cudagraphs=True)),
    ),
    (
        "document 1, constructor",
        "2 speculative tokens, room for 1 speculative block",
        "accepted; the first full graph fails to copy its state indices, and kernels would read past the row",
        "`ValueError` naming `num_speculative_blocks`",
        _refused(replace(SPECULATIVE, num_spec=2, spare_blocks=-1)),
    ),
    (
        "contract 1.10, Mamba-1 builder under speculation",
        "1 speculative token",
        "`AssertionError` in every step with a decode",
        "`ValueError` naming `num_speculative_tokens`, at construction",
        _refused(replace(SPECULATIVE, kind="mamba1")),
    ),
    (
        "document 3, `build`, a row that drafted nothing",
        "1 speculative token; 1 decode, 2 tokens accepted before, none drafted now",
        "no speculative row: column 0 is read, the state of one token too early",
        "a speculative row of one token, where the host can tell it from a prompt",
        _built(SPECULATIVE_GDN, StepRequest(1, 2, accepted=2, drafts=-1)),
    ),
    (
        "document 3, `build`, a batch in which every draft count is 0",
        "1 speculative token; 1 decode, 2 tokens accepted before, draft count 0",
        "the sum of the drafts is 0, so no speculative row, as above",
        "a speculative row",
        _built(SPECULATIVE_GDN, StepRequest(1, 2, accepted=2, drafts=0)),
    ),
    (
        "document 3, `build`, rows in their prompt",
        "1 request: the first token of its prompt",
        "a decode: it reads a state that was never written",
        "a prefill, as in document 1's row",
        _built(GDN, PROMPT),
    ),
    (
        "document 3, `build`, padding in full graphs",
        "1 speculative token, full graphs; 1 decode of 2 tokens",
        "2 rows of state indices for 1 request: per-request tensors are padded to the number of tokens",
        "as many rows as the batch has, padding included",
        _built(replace(SPECULATIVE_GDN, full_cudagraphs=True), DRAFTED),
    ),
    (
        "document 3, `build`, rows of padding among decodes",
        "1 decode, 1 row of padding",
        "the row keeps what the runner left in its block-table row",
        "the null block",
        _built(GDN, DECODE, padded_rows=1),
    ),
    (
        "document 3, `build`, rows of padding behind prefills",
        "1 prefill, 1 row of padding",
        "2 prefills, against its own comment that empty rows are excluded from the count",
        "1 prefill; the row of padding has the null block",
        _built(GDN, replace(PROMPT, query_len=2), padded_rows=1),
    ),
    (
        "document 3, `build`, device masks",
        "1 speculative token; 1 decode that drafted, 1 prefill",
        "indexing by masks on the device waits for it, five times in a mixed batch",
        "row and token lists are made on the host and uploaded in one copy; nothing waits",
        _built(SPECULATIVE_GDN, DRAFTED, replace(PROMPT, query_len=2)),
    ),
    (
        "document 3, `build_for_cudagraph_capture`",
        "1 speculative token; 1 row, 1 row of padding",
        "accepted count 0 and draft count -1 for padding, after a copy from the device",
        "count 1; everything from the host's starts",
        _captured(replace(SPECULATIVE_GDN, full_cudagraphs=True)),
    ),
    (
        "contract 1.6, `is_prefilling`, as released (V1, to 0.33.0)",
        "1 speculative token; 1 decode that drafted; 1 resumed request of a prompt of 4 that computes tokens 4 and 5 again, no drafts",
        "False, as 4 computed tokens are no less than the prompt: a decode whose next step reads the state after 5 tokens, which breaks I1",
        "True until it has computed all tokens that it had when it was resumed: a prefill",
        _built(SPECULATIVE_GDN, DRAFTED, StepRequest(2, 4, prefilling=True)),
    ),
    (
        "document 3, constructor, mode all",
        "mode all",
        "accepted; column 0 is read whatever the request's position",
        "`ValueError` naming `mamba_cache_mode`",
        _refused(replace(GDN, mode="all")),
    ),
)
