"""What releases promise in align mode: their own rules, and inputs that their contract leaves out."""

from __future__ import annotations

from functools import partial
from typing import Any

from oracle.profile import Profile
from statecheck.case.values import Attribute, Call
from statecheck.reference.align_buffers import lists_of
from statecheck.reference.align_values import context_of
from subjects import Outside


def align_rules(release: tuple[int, ...]) -> dict[str, Any]:
    """The fields of a release's profile that are about align mode."""
    return {
        "pointer_dtype": "uint64",
        "copy_size_dtype": "int32",
        "spare_state_slots": release < (0, 29),
        "skips_missing_states": False,
        "preprocess_skips_rows": False,
        "tables_by_slot": release >= (0, 32),
        "marks_every_decode": release >= (0, 32),
    }


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


_AFTER_STEP = "MambaSpecDecodeGPUContext.run_fused_postprocess*"
_ONE_WAY = "lists of pointers bring states to blocks of their own or to their block's beginning, never towards its end"


def outside_of(release: tuple[int, ...]) -> tuple[Outside, ...]:
    """What a release, such as (0, 33, 0), does not promise anything about."""
    moves_back = partial(_moves_back, profile=Profile(**align_rules(release)))
    return (
        Outside("batch_memcpy", _ONE_WAY, moves_back),
        Outside("do_mamba_copy_block", _ONE_WAY, moves_back),
        Outside(
            _AFTER_STEP,
            "the columns from the running one to that of the last accepted token are in the table",
            _runs_nowhere,
        ),
        Outside("postprocess_mamba_align_gpu", "a step that a runner takes has a request", _binds_nothing),
    )
