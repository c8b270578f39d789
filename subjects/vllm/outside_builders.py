"""Inputs that the contract of releases leaves out: builders, shapes, chunks and batches."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from oracle.builders.batch import BuilderConfig
from oracle.profile import DOCUMENTS
from statecheck.case.values import Call
from statecheck.reference.builders import config_of, step_of
from subjects import Outside

Condition = Callable[[Call], bool]
_MAMBA = "Mamba?AttentionMetadataBuilder"
_GDN = "GDNAttentionMetadataBuilder"
_SPLIT = "split_decodes_and_prefills"
_GATHER = "mamba_get_block_table_tensor"


def outside_of(release: tuple[int, ...]) -> tuple[Outside, ...]:
    """What a release, such as (0, 33, 0), does not promise anything about."""
    return tuple(outside for since, outside in _SINCE if release >= since)


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


def _said(
    since: tuple[int, ...], function: str, reason: str, condition: Condition
) -> tuple[tuple[int, ...], Outside]:
    return since, Outside(function, reason, condition)


_SINCE = (
    _said((0,), _SPLIT, "no batch without rows is split", splits_nothing),
    _said((0,), "*Builder.build*", "no step without rows is built", builds_nothing),
    _said((0,), f"{_MAMBA}.build", "runners say which rows are in their prompt", says_no_prompts),
    _said((0, 31), f"{_GDN}.build", "runners say which rows are in their prompt", says_no_prompts),
    _said((0,), f"{_MAMBA}.build", "runners say how long the rows are", says_no_lengths),
    _said((0, 31), f"{_GDN}.build", "runners say how long the rows are", says_no_lengths),
    _said((0,), f"{_GDN}.build", "accepted counts come with counts of drafts", counts_without_drafts),
    _said((0, 32), f"{_GDN}.build", "decodes that drafted nothing are marked with 0", unmarked_decode),
    _said((0,), "*Builder.build", "runners mark all rows that are in their prompt", unmarked_prompt),
    _said((0,), "*Builder.build", "padding has an accepted count of 1 and no drafts", stale_padding),
    _said((0,), "*Builder.build", "runners put decodes before prompts", decodes_after_prompts),
    _said((0,), f"{_MAMBA}.build_for*", "graphs for drafts are captured without padding", captures_padding),
    _said((0,), f"{_GDN}.build", "padding never exceeds what is captured", pads_beyond_graphs),
    _said((0,), "*AttentionMetadataBuilder", "states do not go with context parallelism", shards_by_context),
    _said((0,), "prepare_chunk_indices", "empty sequences have no chunks to name", indexes_nothing),
    _said((0,), "prepare_chunk_*", "chunks have 64 tokens, not thousands of millions", rounds_beyond_int32),
    _said((0, 33), _GATHER, "every row has a length", fewer_lengths),
)
