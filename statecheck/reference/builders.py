"""Answers about the metadata builders (documents 1 and 3): the oracle's metadata in the documented types of their fields (contracts 1.11 and 1.12)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from oracle.builders import base, batch, gdn
from oracle.chunks import CONV_BLOCK_M, ConvPrograms
from oracle.rules import require, rule
from statecheck.case.values import Call, Record, Returned, Tensor, Value, boolean, int32, int64, record
from statecheck.reference import answer, answers, host_vector, matrix, vector
from statecheck.subject.profile import Profile

_ONLY_ALL = (
    "num_computed_tokens_p",
    "block_idx_last_scheduled_token",
    "block_idx_first_scheduled_token_p",
    "block_idx_last_computed_token",
)
"""Fields of mode "all" alone."""
_ONLY_MAMBA2 = ("seq_idx_p", "chunk_size", "prep_initial_states")
_MASKS = ("has_initial_states_p", "has_initial_state", "spec_sequence_masks")
_NO_FIELDS = ("owned", "token_index_dtype")
"""What the rules say about fields."""


def mamba_fields(
    kind: str, metadata: base.BaseMetadata, config: batch.BuilderConfig, width: int
) -> dict[str, Value]:
    """The fields of a Mamba builder's metadata."""
    widths = {"state_indices_tensor_d": _own_width(metadata, config, width)}
    if config.mode == "all":
        widths["state_indices_tensor_p"] = width
    omitted = () if config.profile.keeps_all_blocks else _ONLY_ALL
    return _fields(metadata, widths, without=omitted if kind == "mamba2" else (*omitted, *_ONLY_MAMBA2))


def _own_width(metadata: base.BaseMetadata, config: batch.BuilderConfig, table_width: int) -> int:
    """Columns of the decode rows. A matrix without rows has no width of its own."""
    if config.mode != "all":
        return 1 + config.num_spec
    captured = base.kept_width(config)
    return captured if "state_indices_tensor_d" in metadata.owned else table_width


def gdn_fields(metadata: gdn.GDNMetadata, config: batch.BuilderConfig) -> dict[str, Value]:
    """The fields of the Gated DeltaNet builder's metadata."""
    widths = {"spec_state_indices_tensor": 1 + config.num_spec, "chunk_indices": 2}
    positions = ("spec_token_indx", "non_spec_token_indx") if metadata.token_index_dtype == "int64" else ()
    return _fields(metadata, widths, int64s=("chunk_offsets", *positions))


def _fields(
    metadata: base.BaseMetadata | gdn.GDNMetadata,
    widths: Mapping[str, int],
    *,
    int64s: Collection[str] = (),
    without: Collection[str] = (),
) -> dict[str, Value]:
    """The fields in their order.

    Args:
        widths: columns of the fields that are matrices, of int32.
        int64s: fields that are vectors of int64; others are of int32.
    """
    fields: dict[str, Value] = {}
    for name, value in vars(metadata).items():
        if name == "conv":
            fields |= _conv(value)
        elif name in widths and value is not None:
            flat = tuple(number for row in value for number in row)
            fields[name] = Tensor("int32", (len(value), widths[name]), flat)
        elif isinstance(value, tuple):
            made: Any = boolean if name in _MASKS else int64 if name in int64s else int32
            fields[name] = made(value)
        elif name not in _NO_FIELDS:
            fields[name] = value
    return {name: value for name, value in fields.items() if name not in without}


def _conv(programs: ConvPrograms | None) -> dict[str, Value]:
    if programs is None:
        return {"nums_dict": None, "batch_ptr": None, "token_chunk_offset_ptr": None}
    variant = conv_variant(programs, "int32")
    return {"nums_dict": {CONV_BLOCK_M: variant}} | {name: variant[name] for name in CONV_VECTORS}


CONV_VECTORS = ("batch_ptr", "token_chunk_offset_ptr")
"""Vectors that stand beside the dictionary of variants, too."""


def conv_variant(programs: ConvPrograms, dtype: str) -> dict[str, Value]:
    """The entries of the one variant; `dtype` is that of `nums`."""
    return {
        "nums": Tensor(dtype, (len(programs.nums),), tuple(programs.nums), on="host"),
        "tot": len(programs.mlist),
        "mlist": int64(programs.mlist).on_host(),
        "mlist_len": len(programs.mlist),
        "offsetlist": int32(programs.offsetlist).on_host(),
        "batch_ptr": int32(programs.batch_ptr),
        "token_chunk_offset_ptr": int32(programs.token_chunk_offset_ptr),
    }


_KINDS = {
    "Mamba1AttentionMetadataBuilder": ("mamba1", "Mamba1AttentionMetadata"),
    "Mamba2AttentionMetadataBuilder": ("mamba2", "Mamba2AttentionMetadata"),
    "GDNAttentionMetadataBuilder": ("gdn", "GDNAttentionMetadata"),
}


_ARGUMENTS = {
    "seq_len": "seq_lens",
    "blocks": "block_table_tensor",
    "prefilling": "is_prefilling",
    "seq_len_upper_bound": "seq_lens_cpu_upper_bound",
    "drafts": "num_decode_draft_tokens_cpu",
}
"""The argument of a builder that has a field of every row, by the field."""


def config_of(constructed: Call, profile: Profile) -> batch.BuilderConfig:
    """The oracle's configuration of a release's builder, from the call that constructed it."""
    arguments = constructed.named
    spec, config = arguments["kv_cache_spec"], arguments["vllm_config"]
    return batch.BuilderConfig(
        mode=config["cache_config"]["mamba_cache_mode"],
        block_size=spec["block_size"],
        num_spec=config["num_speculative_tokens"],
        num_speculative_blocks=spec["num_speculative_blocks"],
        max_num_seqs=config["scheduler_config"]["max_num_seqs"],
        max_cudagraph_capture_size=config["compilation_config"]["max_cudagraph_capture_size"],
        full_cudagraphs=config["compilation_config"]["cudagraph_mode"]["has_full_cudagraphs"].value,
        max_model_len=config["model_config"]["max_model_len"],
        chunk_size=config["model_config"]["get_mamba_chunk_size"].value,
        profile=profile,
    )


def _rules(method: str) -> dict[str, Callable[..., Any]]:
    """The rule of a method that builds metadata, by function."""
    return {
        f"{name}.{method}": gdn.gdn_metadata if kind == "gdn" else base.base_metadata
        for name, (kind, _) in _KINDS.items()
    }


@answers(*_KINDS)
def constructed(call: Call, profile: Profile, **_: Value) -> Value:
    """A builder, where its configuration is one that it has."""
    batch.require_config(config_of(call, profile), _KINDS[call.function][0])
    return record(call.function)


@answers(*(f"{name}.build" for name in _KINDS), rule=_rules("build"))
def built(
    call: Call,
    profile: Profile,
    self: Call,
    common_prefix_len: int,  # noqa: ARG001 - documented, and without meaning for states
    common_attn_metadata: Record,
    num_accepted_tokens: Tensor | None = None,
    num_decode_draft_tokens_cpu: Tensor | None = None,
) -> Value:
    """The metadata of a step."""
    step = _step(common_attn_metadata, num_accepted_tokens, num_decode_draft_tokens_cpu)
    return _answer(call, step, config_of(self, profile), common_attn_metadata)


@answers(
    *(f"{name}.build_for_cudagraph_capture" for name in _KINDS), rule=_rules("build_for_cudagraph_capture")
)
def captured(call: Call, profile: Profile, self: Call, common_attn_metadata: Record) -> Value:
    """The metadata that a full graph is captured with."""
    step = _step(common_attn_metadata, None, None)
    return _answer(call, step, config_of(self, profile), common_attn_metadata)


@answers(
    *(f"{name}.update_block_table" for name in _KINDS),
    rule={
        f"{name}.update_block_table": gdn.updated_gdn_metadata if kind == "gdn" else base.updated_block_table
        for name, (kind, _) in _KINDS.items()
    },
)
def updated(
    call: Call,
    profile: Profile,
    self: Call,
    metadata: Call,
    blk_table: Tensor,
    slot_mapping: Value,  # noqa: ARG001 - as above
) -> Value:
    """The metadata of the same step for another block table."""
    kind, result = _kind_of(call)
    step, config, table = step_of(metadata), config_of(self, profile), matrix(blk_table, "blk_table")
    if kind == "gdn":
        return record(result, **gdn_fields(gdn.updated_gdn_metadata(step, config, table), config))
    after = base.updated_block_table(step, config, table, kind=kind)
    return record(result, **mamba_fields(kind, after, config, blk_table.shape[1]))


@answers("harness.owned_fields")
def owned_fields(profile: Profile, owner: Call, result: Call) -> Value:
    """The fields of a built object that must live in its builder's own buffers; in those of another builder, none."""
    if result.named["self"] != owner:
        return ()
    return tuple(sorted(_metadata(result, step_of(result), config_of(owner, profile)).owned))


@answers("harness.capture")
def captured_graph(result: Call, names: tuple[str, ...]) -> Value:  # noqa: ARG001 - a graph has no values yet
    """A graph, whatever it reads."""
    return record("Graph")


@answers("harness.replay")
@rule
def replayed(profile: Profile, graph: Call, latest: Call) -> Value:
    """The captured fields, with the values of what was built last."""
    built = answer(latest, profile=profile)
    assert isinstance(built, Returned)
    fields = dict(built.value.fields)
    return record("GraphReads", values={name: fields[name] for name in graph.named["names"]})


def _kind_of(call: Call) -> tuple[str, str]:
    """The kind of the builder that is called, and the class of what it builds."""
    return _KINDS[call.function.partition(".")[0]]


def step_of(built: Call) -> batch.BuilderStep:
    """The oracle's step of a call that builds metadata or captures them."""
    arguments = built.named
    return _step(
        arguments["common_attn_metadata"],
        arguments.get("num_accepted_tokens"),
        arguments.get("num_decode_draft_tokens_cpu"),
    )


def _metadata(call: Call, step: batch.BuilderStep, config: batch.BuilderConfig) -> Any:
    """The oracle's metadata for a call that builds them or captures them."""
    kind, capture = _kind_of(call)[0], call.function.endswith(".build_for_cudagraph_capture")
    if kind == "gdn":
        return gdn.gdn_metadata(step, config, capture=capture)
    return base.base_metadata(step, config, kind=kind, capture=capture)


def _answer(call: Call, step: batch.BuilderStep, config: batch.BuilderConfig, common: Record) -> Value:
    (kind, result), metadata = _kind_of(call), _metadata(call, step, config)
    if kind == "gdn":
        return record(result, **gdn_fields(metadata, config))
    return record(result, **mamba_fields(kind, metadata, config, common["block_table_tensor"].shape[1]))


def _step(common: Record, counts: Tensor | None, drafts: Tensor | None) -> batch.BuilderStep:
    fields: dict[str, Any] = dict(common.fields)
    num_reqs: int = fields["num_reqs"]
    starts = host_vector(fields["query_start_loc_cpu"], "query_start_loc_cpu")
    require(len(starts) == num_reqs + 1, "query_start_loc_cpu", starts, "have num_reqs + 1 entries")
    marks, bounds = fields.get("is_prefilling"), fields.get("seq_lens_cpu_upper_bound")
    columns: dict[str, Any] = {
        "seq_len": vector(fields["seq_lens"], "seq_lens"),
        "blocks": matrix(fields["block_table_tensor"], "block_table_tensor"),
        "prefilling": None if marks is None else host_vector(marks, "is_prefilling", dtypes=("bool",)),
        "seq_len_upper_bound": None if bounds is None else host_vector(bounds, "seq_lens_cpu_upper_bound"),
        "accepted": None if counts is None else vector(counts, "num_accepted_tokens"),
        "drafts": None if drafts is None else host_vector(drafts, "num_decode_draft_tokens_cpu"),
    }
    for name, values in columns.items():
        if name != "accepted":
            fits = values is None or len(values) == num_reqs
            require(fits, _ARGUMENTS[name], values, "have a row for each request")
    # Which rows need a count depends on the builder.
    columns["accepted"] = [*(columns["accepted"] or ()), *(None,) * num_reqs]
    rows = tuple(
        batch.StepRow(
            query_len=starts[row + 1] - starts[row],
            **dict[str, Any]({name: values[row] if values else None for name, values in columns.items()}),
        )
        for row in range(len(starts) - 1)
    )
    return batch.BuilderStep(
        rows=tuple(replace(row, prefilling=None if marks is None else bool(row.prefilling)) for row in rows),
        num_actual_tokens=fields["num_actual_tokens"],
        max_query_len=fields["max_query_len"],
        has_prefilling=marks is not None,
        has_upper_bound=bounds is not None,
        has_accepted=counts is not None,
        has_drafts=drafts is not None,
        on_host=fields["seq_lens"].on == "host",
    )
