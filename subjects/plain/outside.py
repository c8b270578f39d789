"""Inputs of documented functions that no plain function takes."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType

from statecheck.case.values import Call, Tensor
from subjects import Outside

_CONTEXT = "MambaSpecDecodeGPUContext"


def outside_of(port: ModuleType) -> tuple[Outside, ...]:
    """Inputs outside of a port's domain; inputs that it does not take matter only if it promises to refuse."""
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
    bounds = "plain functions take no bound of query lengths"
    return (*everywhere, Outside("split_decodes_and_prefills", bounds, _bound_too_low))


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


_EMPTY = tuple(
    Outside(function, "the port says that no sequence is empty (EMPTY_SEQUENCES)", _has_an_empty_sequence)
    for function in (
        "compute_varlen_chunk_metadata",
        "compute_causal_conv1d_metadata",
        "prepare_chunk_indices",
        "prepare_chunk_offsets",
    )
)
