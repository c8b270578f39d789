"""Answers about the fused kernels of align mode and the context that launches them (document 4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oracle.align import context as rules
from oracle.align.decisions import (
    AfterStep,
    after_v1_steps,
    after_v2_steps,
    precopy_moves,
)
from oracle.align.memory import Move, apply_moves
from oracle.errors import require, require_int
from oracle.layout import conv_state_layout
from statecheck.case.values import Call, Fake, Record, Tensor, Value, int64, record
from statecheck.reference import answers
from statecheck.reference.align_values import (
    CONTEXT,
    STAGING,
    Context,
    Known,
    cache_groups,
    context_of,
    launch_vector,
    memory_of,
    named_as,
    pools_after,
    rewritten,
    states_of,
    table_views,
    tables_of,
)
from statecheck.subject.profile import Profile

Answer = tuple[Value, dict[str, Value]]
"""A result, and the contents that changed."""

_VECTORS = {
    "state_block_strides": ("int64", "block_stride"),
    "state_inner_sizes": ("int64", "inner_size"),
    "state_dim_row_stride": ("int64", "dim_row_stride"),
    "state_elem_sizes": ("int32", "elem_size"),
    "state_conv_widths": ("int32", "conv_width"),
    "state_group_indices": ("int32", "group"),
    "state_dim_row_count": ("int32", "dim_row_count"),
}
"""Fields of a context with an entry for each state: the dtype, and what the rules call it."""


@answers("get_mamba_groups", rule=rules.mamba_groups)
def get_mamba_groups(kv_cache_config: Record) -> Value:
    """Ids of the mamba groups, and the first one's specification as far as all of them share it."""
    group_ids, spec = rules.mamba_groups(cache_groups(kv_cache_config))
    return list(group_ids), spec_record(spec)


def spec_record(spec: rules.StateSpec) -> Record:
    """A specification as it is returned, without the fields of which torch has its own types."""
    return record(
        "MambaSpec",
        block_size=spec.block_size,
        shapes=spec.shapes,
        mamba_cache_mode=spec.mode,
        num_speculative_blocks=spec.num_speculative_blocks,
    )


@answers(f"{CONTEXT}.create", rule=rules.require_context)
def created(
    environment: dict[str, str],
    profile: Profile,
    max_num_reqs: Value,
    kv_cache_config: Record,
    num_state_types: Value,
    device: Value,  # noqa: ARG001 - there is one
    make_buffer: Value,  # noqa: ARG001 - it makes buffers of zeros
) -> Value:
    """A context that knows of no state yet."""
    groups = cache_groups(kv_cache_config)
    rules.require_context(max_num_reqs, num_state_types, groups, conv_state_layout(environment))
    return context_record(groups, max_num_reqs, num_state_types, profile)


def context_record(
    groups: Sequence[rules.CacheGroup], max_num_reqs: int, num_state_types: int, profile: Profile
) -> Record:
    """The documented fields of a new context."""
    group_ids, spec = rules.mamba_groups(groups)
    layers, slots = rules.num_mamba_layers(groups), rules.num_slots(groups, num_state_types, profile)
    vectors = {name: zeros(slots, dtype) for name, (dtype, _) in _VECTORS.items()}
    return record(
        CONTEXT,
        state_base_addrs=zeros(slots, "int64"),
        **vectors,
        **{name: record("CpuGpuBuffer") for name in STAGING},
        block_size=spec.block_size,
        num_layers=layers,
        num_state_types=num_state_types,
        mamba_group_ids=list(group_ids),
        num_groups=len(group_ids),
        num_accepted_tokens_out=zeros(max_num_reqs, "int32"),
        block_table_ptrs=zeros(len(group_ids), "int64"),
        block_table_stride_req=0,
        is_initialized=False,
    )


def zeros(size: int, dtype: str) -> Tensor:
    """A vector of zeros."""
    return Tensor(dtype, (size,), (0,) * size)


@answers(f"{CONTEXT}.initialize_from_forward_context", rule=rules.bound_states)
def initialized(
    environment: dict[str, str],
    profile: Profile,
    memory: Known,  # noqa: ARG001 - what pools hold does not matter
    self: Value,
    kv_cache_config: Record,
    forward_context: dict[str, Record],
    mamba_state_copy_funcs: tuple[Value, ...],
    block_tables: list[Tensor | Fake],
) -> Answer:
    """Where everything lies, the first time; nothing new afterwards."""
    context = context_of(self)
    assert context is not None, "only a context can be initialised"
    if context.bound is not None:
        return None, {}
    names = ("self", "kv_cache_config", "forward_context", "mamba_state_copy_funcs", "block_tables")
    values = (self, kv_cache_config, forward_context, mamba_state_copy_funcs, block_tables)
    call = Call("initialize", tuple(zip(names, values, strict=True)), environment=tuple(environment.items()))
    return None, initialized_contents(context, call, profile)


def initialized_contents(context: Context, call: Call, profile: Profile) -> dict[str, Value]:
    """The vectors of a context after a call has initialised it, as far as addresses are known."""
    tables = tables_of(call)
    rules.require_tables(table_views(tables), len(rules.mamba_groups(context.groups)[0]))
    states = states_of(context, call)
    slots = rules.num_slots(context.groups, context.num_state_types, profile)
    entries = rules.metadata(states, conv_state_layout(dict(call.environment)), slots)
    vectors = {
        name: Tensor(dtype, (slots,), tuple(getattr(entry, known) for entry in entries))
        for name, (dtype, known) in _VECTORS.items()
    }
    addresses = [state.geometry.offset_bytes for state in states if not state.pool]
    if len(addresses) == len(states):
        known_slots = [*map(rules.as_int64, addresses), *[0] * (slots - len(addresses))]
        vectors["state_base_addrs"] = int64(known_slots)
    fakes = [table for table in tables if isinstance(table, Fake)]
    if len(fakes) == len(tables):
        vectors["block_table_ptrs"] = int64([rules.as_int64(table.address) for table in fakes])
    after: dict[str, Value] = {f"{context.path}.{name}": vector for name, vector in vectors.items()}
    after[f"{context.path}.block_table_stride_req"] = table_views(tables)[0].strides[0]
    after[f"{context.path}.is_initialized"] = True
    return after


def moves_done(context: Context, moves: Sequence[Move], known: Known, profile: Profile) -> dict[str, Value]:
    """The pools that an initialised context's moves change."""
    states = context.states()
    before = memory_of(states, known)
    after = apply_moves(before, states, context.layout, context.tables(known), moves, profile)
    return pools_after(states, before, after, known)


def working(context: Context | None, num_reqs: Value) -> Context | None:
    """The context of a launch, or None where the launch has nothing to do."""
    assert context is not None, "only a context can launch"
    require_int("num_reqs", num_reqs, minimum=0)
    require(num_reqs <= context.max_num_reqs, "num_reqs", num_reqs, f"be <= {context.max_num_reqs}")
    return context if num_reqs > 0 and context.bound is not None else None


@answers(f"{CONTEXT}.run_fused_postprocess", rule=after_v1_steps)
def postprocessed(memory: Known, profile: Profile, self: Value, num_reqs: Value, **vectors: Value) -> Answer:
    """Boundary states in their columns; counts for the next step in the out buffer."""
    context = working(context_of(self), num_reqs)
    if context is None:
        return None, {}
    rows = [launch_vector(value, name, num_reqs).values()[:num_reqs] for name, value in vectors.items()]
    return None, v1_postprocess(context, rows, memory, profile)


def v1_postprocess(
    context: Context, vectors: Sequence[Sequence[int]], known: Known, profile: Profile
) -> dict[str, Value]:
    """What V1's postprocess changes, from counts, running columns, scheduled, computed and draft tokens by row."""
    counts, columns, scheduled, computed, drafts = vectors
    decided = after_v1_steps(counts, columns, scheduled, computed, drafts, context.block_size)
    path = f"{context.path}.num_accepted_tokens_out"
    old = known.get(path) or zeros(context.max_num_reqs, "int32")
    after = moves_done(context, moves_of(decided), known, profile)
    return after | {path: rewritten(old, {row: step.accepted for row, step in enumerate(decided)})}


def moves_of(decided: Iterable[AfterStep]) -> list[Move]:
    """The copies among decisions."""
    return [step.move for step in decided if step.move is not None]


@answers(f"{CONTEXT}.run_fused_postprocess_align", rule=after_v2_steps)
def postprocessed_align(
    memory: Known,
    profile: Profile,
    self: Value,
    num_reqs: Value,
    num_accepted_tokens_gpu: Value,
    state_idx_gpu: Value,
    new_num_computed_tokens_gpu: Value,
    idx_mapping: Value,
) -> Answer:
    """Boundary states in their columns; counts for the next step in place."""
    context = working(context_of(self), num_reqs)
    if context is None:
        return None, {}
    counts = launch_vector(num_accepted_tokens_gpu, "num_accepted_tokens_gpu", num_reqs)
    columns = launch_vector(state_idx_gpu, "state_idx_gpu", num_reqs).values()
    computed = launch_vector(new_num_computed_tokens_gpu, "new_num_computed_tokens_gpu", num_reqs).values()
    mapping = launch_vector(idx_mapping, "idx_mapping", num_reqs).values()[:num_reqs]
    return None, v2_postprocess(context, mapping, counts, columns, computed, memory, profile)


def v2_postprocess(
    context: Context,
    mapping: Sequence[int],
    counts: Tensor,
    columns: Sequence[int],
    computed: Sequence[int],
    known: Known,
    profile: Profile,
) -> dict[str, Value]:
    """What V2's postprocess changes, from each row's slot and values by slot."""
    decided = after_v2_steps(mapping, counts.values(), columns, computed, context.block_size, profile)
    after = moves_done(context, moves_of(decided.values()), known, profile)
    changed = {slot: step.accepted for slot, step in decided.items()}
    return after | {named_as("counts", counts, known): rewritten(counts, changed)}


@answers(f"{CONTEXT}.run_fused_precopy", rule=precopy_moves)
def precopied(
    memory: Known,
    profile: Profile,
    self: Value,
    num_reqs: Value,
    state_idx_gpu: Value,
    src_col_gpu: Value,
    token_bias_gpu: Value,
    idx_mapping: Value,
) -> Answer:
    """States in the columns where their requests go on."""
    context = working(context_of(self), num_reqs)
    if context is None:
        return None, {}
    columns = launch_vector(state_idx_gpu, "state_idx_gpu", num_reqs).values()
    src_col = launch_vector(src_col_gpu, "src_col_gpu", num_reqs).values()
    bias = launch_vector(token_bias_gpu, "token_bias_gpu", num_reqs).values()
    mapping = launch_vector(idx_mapping, "idx_mapping", num_reqs).values()[:num_reqs]
    moves = precopy_moves(mapping, columns, src_col, bias, profile)
    return None, moves_done(context, moves, memory, profile)
