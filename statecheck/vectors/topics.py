"""Which functions have vectors, by topic, and how a call of each becomes one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oracle.profile import DOCUMENTS
from statecheck.case.values import ITEM_SIZES, Attribute, Refusal, Value
from statecheck.expectations.align import zeros
from statecheck.expectations.align_buffers import Lists, lists_of
from statecheck.expectations.align_values import CONTEXT, context_of
from statecheck.vectors.pools import copies_of, pools_of, states_of, tables_of
from statecheck.vectors.record import RecordedCall
from statecheck.vectors.values import NotPlain, plain, plain_tensor

Parts = tuple[dict[str, Any], dict[str, Any]]
"""Arguments and what is expected, as JSON data with blobs in it."""

_SHAPES = (
    "linear_attention_state_shape",
    "mamba1_state_shape",
    "mamba2_state_shape",
    "short_conv_state_shape",
    "gated_delta_net_state_shape",
    "kda_state_shape",
    "extra_groups_for_head_shards",
    "_orient_conv_shape",
)
_BUILDERS = ("Mamba1", "Mamba2", "GDN")
_SPECS = ("get_conv_copy_spec", "get_temporal_copy_spec")
_OUT = "num_accepted_tokens_out"
_PREPROCESS = "preprocess_mamba_align_fused_kernel"
_ADVANCED = {
    "columns": "state_idx_ptr",
    "counts": "num_accepted_tokens_ptr",
    "src_col": "src_col_ptr",
    "bias": "src_off_ptr",
}
"""What the preprocess kernel writes to: the names of the vectors in the steps, and those of the arguments."""


def _returned(asked: RecordedCall) -> Parts:
    """A function that only returns something."""
    return plain(asked.call.named), {"result": plain(_value(asked))}


def _value(asked: RecordedCall) -> Value:
    assert not isinstance(asked.outcome, Refusal), "a refusal has no value"
    return asked.outcome.value


def _specified(asked: RecordedCall) -> Parts:
    """A copy specification, as an offset and a count of elements: addresses are everybody's own."""
    arguments, found = plain(asked.call.named), _value(asked)
    start = found["start_addr"].offset // ITEM_SIZES[arguments["state"]["dtype"]]
    return arguments, {"result": {"start_element": start, "num_elements": found["num_elements"]}}


def _remembered(asked: RecordedCall) -> Parts:
    """A function that changes the dictionary `mamba_state_idx` in place."""
    columns = [value for _, value in asked.outcome.after if isinstance(value, dict)]
    if len(columns) != 1:
        raise NotPlain("a dictionary that is not observed")
    return plain(asked.call.named), {"after": {"mamba_state_idx": plain(columns[0])}}


def _advanced(asked: RecordedCall) -> Parts:
    """The preprocess kernel, which decides the columns of a step by slot."""
    named, after = asked.call.named, dict(asked.outcome.after)
    given = {name: plain(value) for name, value in named["arguments"].items()}
    block_size = {**named["arguments"], **named["constexprs"]}["MAMBA_BLOCK_SIZE"]
    left = {argument: plain_tensor(after[name]) for name, argument in _ADVANCED.items()}
    return {**given, "MAMBA_BLOCK_SIZE": block_size}, {"after": left}


def _fused(asked: RecordedCall) -> Parts:
    """A launch through a context: what it copies between blocks, and the accepted counts that it changes."""
    found = context_of(asked.call.named["self"])
    if found is None or found.bound is None:
        raise NotPlain("a context that is bound to nothing")
    vectors = {name: plain(value) for name, value in asked.call.named.items() if name != "self"}
    states = states_of(found)
    before, after = pools_of(asked, (state["pool"] for state in states))
    counts_before, counts_after = _counts(asked, f"{found.path}.{_OUT}", found.max_num_reqs)
    given = {
        "block_size": found.block_size,
        "conv_state_layout": found.layout,
        "states": states,
        "block_tables": tables_of(found, asked),
        **vectors,
        **counts_before,
        "pools": before,
    }
    return given, {"after": {**counts_after, "pools": after}}


def _counts(asked: RecordedCall, path: str, size: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Accepted counts before and after: those of rows go to a vector of their own, those of slots change in place."""
    function, after = asked.call.function, dict(asked.outcome.after)
    if function.endswith("precopy"):
        return {}, {}
    if function.endswith("align"):
        return {}, {"num_accepted_tokens_gpu": plain_tensor(after["counts"])}
    old, new = asked.known.get(path) or zeros(size, "int32"), after[path]
    # Where the rules change nothing of a context's own vector, they do not know it, and it is described by nothing.
    return {_OUT: plain_tensor(old)}, {_OUT: plain_tensor(new if new.shape == old.shape else old)}


def _listed(asked: RecordedCall) -> Parts:
    """Copies that are written down as addresses, here as places in pools."""
    lists = _lists(asked)
    places = [place.pool for entry in lists.listed for place in entry[:2]]
    before, after = pools_of(asked, places)
    unused = lists.capacity - len(lists.listed) if asked.function == "batch_memcpy" else 0
    return {"copies": copies_of(lists.listed, unused), "pools": before}, {"after": {"pools": after}}


def _lists(asked: RecordedCall) -> Lists:
    named = asked.call.named
    owner = named["bufs"] if "bufs" in named else named["src_ptrs"]
    if "bufs" not in named and not isinstance(owner, Attribute):
        raise NotPlain("addresses that are no list's")
    return lists_of(owner, DOCUMENTS)


TOPICS: dict[str, dict[str, Callable[[RecordedCall], Parts]]] = {
    "arithmetic": dict.fromkeys(
        ("cdiv", "divide", "MambaSpec.page_size_bytes.fget", "MambaSpec.max_memory_usage_bytes"), _returned
    ),
    "chunks": dict.fromkeys(
        (
            "compute_varlen_chunk_metadata",
            "compute_causal_conv1d_metadata",
            "prepare_chunk_indices",
            "prepare_chunk_offsets",
        ),
        _returned,
    ),
    "batch": dict.fromkeys(
        (
            "split_decodes_and_prefills",
            "mamba_get_block_table_tensor",
            "CommonAttentionMetadata.compute_num_computed_tokens",
            "CommonAttentionMetadata.naive_query_lens",
        ),
        _returned,
    ),
    "shapes": dict.fromkeys((f"MambaStateShapeCalculator.{name}" for name in _SHAPES), _returned),
    "layout": {
        **dict.fromkeys(("get_conv_state_layout", "is_conv_state_dim_first"), _returned),
        **dict.fromkeys(_SPECS, _specified),
    },
    "columns": {
        _PREPROCESS: _advanced,
        **dict.fromkeys(("cleanup_mamba_state_idx", "postprocess_mamba_all"), _remembered),
    },
    "copies": {
        **dict.fromkeys(
            (
                f"{CONTEXT}.run_fused_precopy",
                f"{CONTEXT}.run_fused_postprocess",
                f"{CONTEXT}.run_fused_postprocess_align",
            ),
            _fused,
        ),
        **dict.fromkeys(("do_mamba_copy_block", "batch_memcpy"), _listed),
    },
    "builders": dict.fromkeys((f"{name}AttentionMetadataBuilder.build" for name in _BUILDERS), _returned),
}
FUNCTIONS = {name: topic for topic, functions in TOPICS.items() for name in functions}
"""The topic of each function."""
_EFFECTS = frozenset(("columns", "copies"))


def parts_of(asked: RecordedCall) -> Parts:
    """Arguments and what is expected.

    Raises:
        NotPlain: the call has no meaning outside of this harness, or is a refusal that has none.
    """
    topic = FUNCTIONS[asked.function]
    if not isinstance(asked.outcome, Refusal):
        return TOPICS[topic][asked.function](asked)
    if topic in _EFFECTS:
        # These refuse tensors of other types and devices, of which a port may know nothing.
        raise NotPlain("a refusal by type")
    refused = {"argument": asked.outcome.argument, "exception": asked.outcome.exception}
    return plain(asked.call.named), {"refused": refused}
