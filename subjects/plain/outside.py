"""Inputs of documented functions that no plain function takes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import ModuleType

from oracle.align.context import require_geometry
from oracle.errors import Refused
from oracle.layout import Unrepresentable, conv_state_layout
from oracle.profile import Profile
from statecheck.case.values import Call, Tensor
from statecheck.expectations.align_buffers import lists_of
from statecheck.expectations.align_values import cache_groups
from subjects import Outside

_CONTEXT = "MambaSpecDecodeGPUContext"


def outside_of(port: ModuleType, profile: Profile) -> tuple[Outside, ...]:
    """What is outside for a port that follows these rules; inputs that it does not take matter only if it promises to refuse."""
    everywhere: tuple[Outside, ...] = (
        Outside(
            f"{_CONTEXT}.initialize_from_forward_context",
            "plain functions are handed states, and describe none",
            _describes_states,
            lacked=True,
        ),
    )
    if getattr(port, "EMPTY_SEQUENCES", True) is False:
        everywhere = (*everywhere, *_EMPTY)
    if not getattr(port, "REFUSES", False):
        return everywhere
    with_a_bad_row = partial(_with_a_bad_row, profile=profile)
    named = Outside("preprocess_mamba", "plain functions have rows, no requests to name", with_a_bad_row)
    return (*everywhere, *_REFUSED, named)


def _has_an_empty_sequence(call: Call) -> bool:
    """Whether two of the cumulative starts that the function takes first are the same."""
    starts = next(iter(call.named.values()))
    return isinstance(starts, Tensor) and any(start == end for start, end in pairwise(starts.values()))


def _describes_states(call: Call) -> bool:
    return any(name.startswith("ctx.state_") for name in call.observes)


def _bound_too_low(call: Call) -> bool:
    fields = dict(call.named["common_attn_metadata"].fields)
    starts = fields["query_start_loc_cpu"].values()
    longest = max((end - start for start, end in pairwise(starts)), default=0)
    return bool(fields["max_query_len"] < longest)


def _without_room(call: Call) -> bool:
    """Whether blocks or conv rows are too few for the drafts."""
    try:
        require_geometry(
            cache_groups(call.named["kv_cache_config"]), conv_state_layout(dict(call.environment))
        )
    except Refused:
        return True
    return False


def _with_a_bad_row(call: Call, profile: Profile) -> bool:
    """Whether the rules refuse the step, for its requests or because a list cannot say what to copy."""
    batch = call.named["input_batch"]
    fields = tuple(field for field in batch.fields if field[0] != "block_table")
    arguments = call.named | {"input_batch": replace(batch, fields=fields)}
    try:
        # By lists, since these ask for every block of every request.
        lists_of(replace(call, arguments=tuple(arguments.items()), keywords=()), profile)
    except Unrepresentable:
        return fields == batch.fields
    except Refused:
        return True
    return False


_EMPTY = tuple(
    Outside(function, "the port says that no sequence is empty (EMPTY_SEQUENCES)", _has_an_empty_sequence)
    for function in (
        "compute_varlen_chunk_metadata",
        "compute_causal_conv1d_metadata",
        "prepare_chunk_indices",
        "prepare_chunk_offsets",
    )
)
_REFUSED = (
    Outside("split_decodes_and_prefills", "plain functions take no bound of query lengths", _bound_too_low),
    *(
        Outside(f"{owner}.create", "plain functions take no drafts where caches are made", _without_room)
        for owner in (_CONTEXT, "MambaCopyBuffers", "MambaBuffers")
    ),
)
