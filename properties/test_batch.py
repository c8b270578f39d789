"""Batches: the decode/prefill split, the block-table gather, computed tokens."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from properties.strategies.batch import (
    POISON,
    Batch,
    BlockTable,
    Splitting,
    batches,
    block_tables,
    metadata,
    shuffled_batches,
    splittings,
)
from statecheck.case.values import Let, Name, Overwrite, call, int32
from statecheck.execution.example import Example
from statecheck.execution.registry import Configuration, prop

SPLIT, GATHER = "split_decodes_and_prefills", "mamba_get_block_table_tensor"
COMPUTED, LENGTHS = (
    "CommonAttentionMetadata.compute_num_computed_tokens",
    "CommonAttentionMetadata.naive_query_lens",
)
BATCHES = (
    Configuration("split/decodes-first", splitting=splittings(), reason="where decodes come first"),
    Configuration("split/short-prefills", splitting=splittings(shuffled_batches()), reason="also where a prefill is as short as a decode"),
)  # fmt: skip


@prop(BATCHES, "agreement", SPLIT)
def a_batch_is_split_by_the_rules(trial: Example, splitting: Splitting) -> None:
    """Decodes are the rows before the first prefill."""
    trial.agrees(splitting.call())


@prop("split/partition", "partition", SPLIT, splitting=splittings(shuffled_batches()))
def test_split_partition(trial: Example, splitting: Splitting) -> None:
    """Decodes and prefills add up to the batch."""
    decodes, prefills, decode_tokens, prefill_tokens = trial.returns(splitting.call())
    rows, tokens = splitting.batch.num_reqs, splitting.batch.num_actual_tokens
    trial.holds(
        min(decodes, prefills, decode_tokens, prefill_tokens) >= 0,
        "a count is negative",
        "should not be",
        place="counts",
    )
    trial.equals("rows", decodes + prefills, rows)
    sums = decode_tokens + prefill_tokens
    trial.equals("tokens", sums, tokens)


@prop("split/threshold", "classification", SPLIT, splitting=splittings(shuffled_batches()))
def test_split_threshold(trial: Example, splitting: Splitting) -> None:
    """No decode is longer than the threshold."""
    decodes, *_ = trial.returns(splitting.call())
    lens = splitting.batch.query_lens[:decodes]
    fits = all(length <= splitting.decode_threshold for length in lens)
    trial.holds(
        fits,
        f"decodes of {lens} tokens",
        f"should have at most {splitting.decode_threshold}",
        place="decodes",
    )


@prop("split/prompt-rows", "classification", SPLIT, splitting=splittings(shuffled_batches()))
def test_split_prompt_rows(trial: Example, splitting: Splitting) -> None:
    """A row in its prompt is no decode where short extends are prefills."""
    decodes, *_ = trial.returns(replace(splitting, treat_short_extends_as_decodes=False).call())
    marks = splitting.batch.is_prefilling[:decodes]
    trial.holds(
        not any(marks),
        f"is_prefilling of the decodes = {marks}",
        "should be False throughout",
        place="decodes",
    )


@prop("split/uniform", "classification", SPLIT, splitting=splittings(shuffled_batches()))
def test_split_uniform(trial: Example, splitting: Splitting) -> None:
    """Uniform decodes are all as long as the first or padding."""
    decodes, *_ = trial.returns(replace(splitting, require_uniform=True).call())
    lens = splitting.batch.query_lens[:decodes]
    even = len(set(lens) - {0}) <= 1
    trial.holds(even, f"uniform decodes of {lens} tokens", "should be of one length or none", place="decodes")


@prop("split/padding-rows", "metamorphic", SPLIT, splitting=splittings(), rows=st.integers(1, 3))
def test_split_padding_rows(trial: Example, splitting: Splitting, rows: int) -> None:
    """Padding rows join the last kind of row."""
    padded = replace(
        splitting, batch=replace(splitting.batch, padded_rows=splitting.batch.padded_rows + rows)
    )
    decodes, prefills, *tokens = trial.returns(splitting.call())
    found = trial.returns(padded.call())
    wanted = (decodes, prefills + rows, *tokens) if prefills else (decodes + rows, 0, *tokens)
    trial.equals("result", found, wanted)


@prop("block-table/align-columns", "agreement", GATHER, table=block_tables())
def test_block_table_align_columns(trial: Example, table: BlockTable) -> None:
    """Align mode keeps the running column and the speculative ones."""
    trial.agrees(table.call())


@prop(
    "block-table/none-and-all",
    "ownership",
    GATHER,
    table=block_tables(),
    mode=st.sampled_from(("none", "all")),
)
def test_block_table_none_and_all(trial: Example, table: BlockTable, mode: str) -> None:
    """Modes none and all hand back the very same table."""
    trial.agrees(table.call(mode))


@prop("block-table/own-row", "red zone", GATHER, table=block_tables())
def test_block_table_own_row(trial: Example, table: BlockTable) -> None:
    """No entry comes from memory outside the row."""
    for r, row in enumerate(trial.returns(table.call()).rows()):
        foreign = set(row) - set(table.rows[r])
        trial.holds(
            not foreign and POISON not in row,
            f"result[{r}] = {row}",
            "should hold ids of its own row only",
            place=f"result[{r}]",
        )


@prop(
    "block-table/relabelled-blocks", "metamorphic", GATHER, table=block_tables(), shift=st.integers(1, 1000)
)
def test_block_table_relabelled_blocks(trial: Example, table: BlockTable, shift: int) -> None:
    """Relabelled physical blocks come out relabelled."""
    table = replace(table, rows=tuple(tuple(block % 2**30 for block in row) for row in table.rows))
    moved = replace(table, rows=tuple(tuple(block + shift for block in row) for row in table.rows))
    plain, relabelled = trial.returns(table.call()), trial.returns(moved.call())
    wanted = tuple(block + shift for block in plain.values())
    trial.equals("result", relabelled.values(), wanted)


@prop(
    "block-table/row-order", "metamorphic", GATHER, table=block_tables(rows_per_length=True), data=st.data()
)
def test_block_table_row_order(trial: Example, table: BlockTable, data: st.DataObject) -> None:
    """Permuted requests come out permuted."""
    order = data.draw(st.permutations(range(len(table.rows))))
    moved = replace(
        table, rows=tuple(table.rows[r] for r in order), seq_lens=tuple(table.seq_lens[r] for r in order)
    )
    plain, permuted = trial.returns(table.call()).rows(), trial.returns(moved.call()).rows()
    wanted = tuple(plain[r] for r in order)
    trial.equals("result", permuted, wanted)


@prop(
    "common-metadata/no-sync",
    "cost",
    GATHER,
    COMPUTED,
    LENGTHS,
    device="cuda",
    table=block_tables(rows_per_length=True),
    batch=batches(),
)
def test_common_metadata_no_sync(trial: Example, table: BlockTable, batch: Batch) -> None:
    """Nothing waits for the device."""
    record = metadata(batch)
    trial.agrees_without_waiting(table.call(), call(COMPUTED, self=record), call(LENGTHS, self=record))


@prop("common-metadata/computed-tokens", "agreement", COMPUTED, batch=batches())
def test_common_metadata_computed_tokens(trial: Example, batch: Batch) -> None:
    """Computed tokens are the length after the step less the query."""
    trial.agrees(call(COMPUTED, self=metadata(batch)))


@prop("common-metadata/query-lens", "agreement", LENGTHS, batch=shuffled_batches())
def test_common_metadata_query_lens(trial: Example, batch: Batch) -> None:
    """Query lengths are the differences of the starts."""
    trial.agrees(call(LENGTHS, self=metadata(batch)))


@prop(
    "common-metadata/changed-in-place",
    "ownership",
    COMPUTED,
    LENGTHS,
    batch=batches(),
    grown=st.integers(1, 9),
)
def test_common_metadata_changed_in_place(trial: Example, batch: Batch, grown: int) -> None:
    """Metadata that changed in place gives fresh computed tokens."""
    starts, lens = batch.query_start_loc, batch.seq_lens
    record = metadata(batch, query_start_loc=Name("query_start_loc"), seq_lens=Name("seq_lens"))
    computed, lengths = call(COMPUTED, self=Name("batch")), call(LENGTHS, self=Name("batch"))
    trial.agrees(
        Let("query_start_loc", int32(starts)),
        Let("seq_lens", int32(lens)),
        Let("batch", record),
        computed,
        lengths,
        Overwrite("seq_lens", tuple(length + grown for length in lens)),
        computed,
        Overwrite("query_start_loc", tuple(start * 2 for start in starts)),
        computed,
        lengths,
    )
