"""Differences of releases on purpose: the variants of the rules that they follow, and inputs that their contract leaves out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

from oracle.builders.batch import BuilderConfig
from statecheck.case.values import Attribute, Call
from statecheck.reference.align_values import context_of, lists_of
from statecheck.reference.builders import config_of, step_of
from statecheck.subject.profile import DOCUMENTS, Profile
from subjects import Outside


def _moves_back(call: Call, profile: Profile) -> bool:
    """Whether a run that is written down overlaps itself towards higher addresses."""
    value = call.named.get("bufs", call.named.get("src_ptrs"))
    lists = lists_of(value.of if isinstance(value, Attribute) else value, profile)
    return any(
        source.pool == target.pool and source.offset < target.offset < source.offset + size
        for source, target, size in lists.listed
    )


def _runs_nowhere(call: Call) -> bool:
    """Whether a row's running column, or that of its last accepted token, is none of its table."""
    found = context_of(call.named["self"])
    tables = found.bound.named.get("block_tables") if found is not None and found.bound is not None else None
    if not tables:
        return False
    width = min(table.shape[1] for table in tables)
    return any(not 0 <= column <= width - max(count, 1) for column, count in _running(call))


def _running(call: Call) -> list[tuple[int, int]]:
    """The running column and the accepted count of each row."""
    named, rows = call.named, call.named["num_reqs"]
    counts = named["num_accepted_tokens_gpu"].values()
    if "mamba_state_idx_gpu" in named:
        return list(zip(named["mamba_state_idx_gpu"].values()[:rows], counts, strict=False))
    columns, slots = named["state_idx_gpu"].values(), named["idx_mapping"].values()[:rows]
    return [(columns[slot], counts[slot]) for slot in slots if 0 <= slot < min(len(columns), len(counts))]


def _binds_nothing(call: Call) -> bool:
    """Whether a step without requests is the first one that has a context."""
    found = context_of(call.named["bufs"])
    return call.named["num_reqs"] == 0 and found is not None and found.bound is None


def _config(constructed: Call) -> BuilderConfig:
    """A builder's configuration; the fields that are looked at here are those of every release."""
    return config_of(constructed, DOCUMENTS)


def splits_nothing(call: Call) -> bool:
    """A batch without rows whose first row is looked at."""
    options, batch = call.named, call.named["common_attn_metadata"]
    threshold = options["decode_threshold"]
    uniform = options["require_uniform"] and threshold > 1
    short = batch["max_query_len"] <= threshold and not uniform
    return batch["num_reqs"] == 0 and not (short and options["treat_short_extends_as_decodes"])


def builds_nothing(call: Call) -> bool:
    """A step without rows."""
    return bool(call.named["common_attn_metadata"]["num_reqs"] == 0)


def says_no_prompts(call: Call) -> bool:
    """Nothing says which rows are in their prompt."""
    return dict(call.named["common_attn_metadata"].fields).get("is_prefilling") is None


def says_no_lengths(call: Call) -> bool:
    """The host does not know how long the rows are."""
    return dict(call.named["common_attn_metadata"].fields).get("seq_lens_cpu_upper_bound") is None


def counts_without_drafts(call: Call) -> bool:
    """Accepted counts are given and counts of drafts are not."""
    given = call.named
    speculates = _config(given["self"]).num_spec > 0
    has_counts = given.get("num_accepted_tokens") is not None
    return speculates and has_counts and given.get("num_decode_draft_tokens_cpu") is None


def unmarked_decode(call: Call) -> bool:
    """A decode that drafted nothing is marked as none, with -1 in place of 0."""
    step, config = step_of(call), _config(call.named["self"])
    if not (config.num_spec and step.has_accepted and step.has_drafts):
        return False
    return any(row.query_len == 1 and not row.prefilling and row.drafts == -1 for row in step.rows)


def unmarked_prompt(call: Call) -> bool:
    """A row without computed tokens is marked as no prompt."""
    return any(
        not row.is_padding and row.num_computed == 0 and row.prefilling is False for row in step_of(call).rows
    )


def stale_padding(call: Call) -> bool:
    """A row of padding has an accepted count or drafts, as a request of an earlier step."""
    step, config = step_of(call), _config(call.named["self"])
    padding = [row for row in step.rows if row.is_padding]
    stale_count = step.has_accepted and any(row.accepted != 1 for row in padding)
    stale_drafts = step.has_drafts and any(row.drafts != -1 for row in padding)
    return config.num_spec > 0 and (stale_count or stale_drafts)


def decodes_after_prompts(call: Call) -> bool:
    """A decode comes after a row in its prompt."""
    rows = [row for row in step_of(call).rows if not row.is_padding]
    prompts = [number for number, row in enumerate(rows) if row.prefilling]
    return any(not row.prefilling for row in rows[prompts[0] :]) if prompts else False


def captures_padding(call: Call) -> bool:
    """A graph for rows with drafts is captured with rows of padding."""
    step, config = step_of(call), _config(call.named["self"])
    return config.num_spec > 0 and any(row.is_padding for row in step.rows)


def pads_beyond_graphs(call: Call) -> bool:
    """Rows of padding make a batch larger than any captured one."""
    step, config = step_of(call), _config(call.named["self"])
    limit = config.max_num_seqs * (1 + config.num_spec)
    if config.max_cudagraph_capture_size is not None:
        limit = min(limit, config.max_cudagraph_capture_size)
    padded = any(row.is_padding for row in step.rows)
    return config.full_cudagraphs and padded and len(step.rows) > limit


def shards_by_context(call: Call) -> bool:
    """Drafts under decode context parallelism."""
    config = call.named["vllm_config"]
    ranks = config["parallel_config"]["decode_context_parallel_size"]
    return bool(ranks > 1 and config["num_speculative_tokens"])


def indexes_nothing(call: Call) -> bool:
    """No sequence, or an empty one before another."""
    starts = call.named["cu_seqlens"].values()
    lens = [end - start for start, end in pairwise(starts)]
    return not lens or any(not length and any(lens[at:]) for at, length in enumerate(lens))


def rounds_beyond_int32(call: Call) -> bool:
    """A sequence that is rounded up to whole chunks as an int32, and with the size of a chunk is none any more."""
    starts = call.named["cu_seqlens"]
    longest = max((end - start for start, end in pairwise(starts.values())), default=0)
    return bool(starts.dtype == "int32" and longest + call.named["chunk_size"] > 2**31)


def fewer_lengths(call: Call) -> bool:
    """Rows without a length."""
    arguments = call.named
    gathers = arguments["mamba_cache_mode"] != "none"
    return bool(gathers and arguments["block_table"].shape[0] != arguments["seq_lens"].shape[0])


def profile_of(release: tuple[int, ...]) -> Profile:
    """The variants of the rules that a release, such as (0, 33, 0), follows."""
    return Profile(
        padding_block=0,
        starts_in_buffers=False,
        kept_columns="blocks",
        kept_pages_of_drafts=True,
        tails_decode=True,
        drafts_in_prompts=False,
        gdn_chunks_of_decodes=False,
        gdn_counts_padding=release < (0, 31),
        gdn_padded_tokens=release < (0, 31),
        keeps_all_blocks=release < (0, 32),
        gdn_plain_decodes=release < (0, 32),
        null_slots=(0,),
        accumulates={
            **dict.fromkeys(("conv_update", "conv_prefill"), "input"),
            **dict.fromkeys(("ssd_prefill", "gdn_chunk", "kda_chunk", "linear_chunk"), "dot"),
        },
        without_drafts=("linear_recurrent",),
        lightning=("linear_recurrent", "linear_chunk"),
        without_shared_heads=("kda_recurrent", "kda_chunk"),
        # Of releases before this one it was not read since when.
        blocks_wider_than_steps=release >= (0, 33),
        dummy_batches=release >= (0, 33),
        pointer_dtype="uint64",
        copy_size_dtype="int32",
        spare_state_slots=False,
        skips_missing_states=False,
        preprocess_skips_rows=False,
        tables_by_slot=release >= (0, 32),
        marks_every_decode=release >= (0, 32),
    )


def outside_of(release: tuple[int, ...]) -> tuple[Outside, ...]:
    """Inputs that a release, such as (0, 33, 0), promises nothing about."""
    one_way = "lists of pointers bring states to blocks of their own or to their block's beginning, never towards its end"
    moves_back = partial(_moves_back, profile=profile_of(release))
    mamba, gdn = "Mamba?AttentionMetadataBuilder", "GDNAttentionMetadataBuilder"
    prompts, lengths = "runners say which rows are in their prompt", "runners say how long the rows are"
    rules: tuple[tuple[tuple[int, ...], str, str, Callable[[Call], bool]], ...] = (
        ((0,), "split_decodes_and_prefills", "no batch without rows is split", splits_nothing),
        ((0,), "*Builder.build*", "no step without rows is built", builds_nothing),
        ((0,), f"{mamba}.build", prompts, says_no_prompts),
        ((0, 31), f"{gdn}.build", prompts, says_no_prompts),
        ((0,), f"{mamba}.build", lengths, says_no_lengths),
        ((0, 31), f"{gdn}.build", lengths, says_no_lengths),
        ((0,), f"{gdn}.build", "accepted counts come with counts of drafts", counts_without_drafts),
        ((0, 32), f"{gdn}.build", "decodes that drafted nothing are marked with 0", unmarked_decode),
        ((0,), "*Builder.build", "runners mark all rows that are in their prompt", unmarked_prompt),
        ((0,), "*Builder.build", "padding has an accepted count of 1 and no drafts", stale_padding),
        ((0,), "*Builder.build", "runners put decodes before prompts", decodes_after_prompts),
        ((0,), f"{mamba}.build_for*", "graphs for drafts are captured without padding", captures_padding),
        ((0,), f"{gdn}.build", "padding never exceeds what is captured", pads_beyond_graphs),
        ((0,), "*AttentionMetadataBuilder", "states do not go with context parallelism", shards_by_context),
        ((0,), "prepare_chunk_indices", "empty sequences have no chunks to name", indexes_nothing),
        ((0,), "prepare_chunk_*", "chunks have 64 tokens, not thousands of millions", rounds_beyond_int32),
        ((0, 33), "mamba_get_block_table_tensor", "every row has a length", fewer_lengths),
        ((0,), "batch_memcpy", one_way, moves_back),
        ((0,), "do_mamba_copy_block", one_way, moves_back),
        (
            (0,),
            "MambaSpecDecodeGPUContext.run_fused_postprocess*",
            "the columns from the running one to that of the last accepted token are in the table",
            _runs_nowhere,
        ),
        ((0,), "postprocess_mamba_align_gpu", "a step that a runner takes has a request", _binds_nothing),
    )
    return tuple(
        Outside(function, reason, holds) for since, function, reason, holds in rules if release >= since
    )
