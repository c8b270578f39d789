"""Answers about align mode (document 4): the fused kernels and the context that launches them, kernels that are launched by themselves, buffers with two
sides and copies that are written down as addresses (contract 1.8), and what a runner does around a step on the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from oracle.align import buffers, runner
from oracle.align import context as rules
from oracle.align.context import copy_capacity, mamba_groups, require_context, require_tables
from oracle.align.decisions import (
    AfterStep,
    Slots,
    advanced,
    after_step,
    after_v1_steps,
    after_v2_steps,
    last_scheduled_columns,
    precopy_moves,
)
from oracle.align.memory import Move, Place, StateTensor, apply_moves
from oracle.align.pointers import entries, memory_after, require_lists
from oracle.layout import Unrepresentable, conv_state_layout
from oracle.rules import Refused, require, require_int
from statecheck.case.values import Address, Attribute, Call, Fake, NumPy, Record, Tensor, Value, int64, record
from statecheck.reference import answers
from statecheck.reference.align_values import (
    CHANGES,
    CONTEXT,
    LISTS,
    STAGING,
    Buffer,
    Context,
    Known,
    Lists,
    batch_tables,
    buffer_of,
    cache_groups,
    collected_lists,
    context_of,
    current_table,
    launch_vector,
    lists_of,
    memory_of,
    named_as,
    pools_after,
    rewritten,
    size_of,
    states_by_list,
    states_of,
    table_views,
    tables_of,
    used_entries,
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


@answers("CpuGpuBuffer")
def made(**arguments: Value) -> Value:
    """A buffer of zeros."""
    buffers.require_buffer(size_of(arguments), arguments["dtype"].name, arguments.get("with_numpy", True))
    return record("CpuGpuBuffer")


@answers("CpuGpuBuffer.copy_to_gpu", rule=buffers.copied_elements)
def copied_to_gpu(memory: Known, profile: Profile, self: Value, n: int | None = None) -> Answer:
    """The device side's part that was written."""
    return _copied(buffer_of(self, profile), "cpu", "gpu", n, memory)


@answers("CpuGpuBuffer.copy_to_cpu", rule=buffers.copied_elements)
def copied_to_cpu(memory: Known, profile: Profile, self: Value, n: int | None = None) -> Answer:
    """The host side's part that was written."""
    return _copied(buffer_of(self, profile), "gpu", "cpu", n, memory)


def _copied(buffer: Buffer, source: str, target: str, n: int | None, known: Known) -> Answer:
    size = buffers.copied_elements(buffer.size, n)
    part = buffer.side(source, known)[:size]
    shape = buffer.size if n is None else (n, *buffer.size[1:])
    written = Tensor(buffer.dtype, shape, part, on="host" if target == "cpu" else "device")
    return written, buffer.holding(target, buffers.overwritten(buffer.side(target, known), part))


@answers(f"{LISTS}.create", rule=copy_capacity)
def lists_created(
    environment: dict[str, str],
    max_num_reqs: Value,
    kv_cache_config: Record,
    copy_funcs: tuple[Value, ...],
    make_buffer: Value,  # noqa: ARG001 - it makes buffers of zeros
) -> Value:
    """Lists with nothing in them."""
    groups = cache_groups(kv_cache_config)
    require_int("max_num_reqs", max_num_reqs, minimum=1)
    require(len(copy_funcs) > 0, "copy_funcs", copy_funcs, "have a function")
    require_context(max_num_reqs, len(copy_funcs), groups, conv_state_layout(environment))
    group_ids, spec = mamba_groups(groups)
    lists = {name: record("CpuGpuBuffer") for name in ("src_ptrs", "dst_ptrs", "sizes")}
    return record(LISTS, **lists, mamba_group_ids=list(group_ids), mamba_spec=spec_record(spec), offset=0)


@answers("MambaBuffers.create", rule=require_context)
def buffers_created(
    environment: dict[str, str],
    profile: Profile,
    device: Value,  # noqa: ARG001 - there is one
    with_postprocess_align: bool,
    **arguments: Value,
) -> Value:
    """Lists, and a context where it is asked for."""
    lists = lists_created(environment, **arguments)
    groups = cache_groups(arguments["kv_cache_config"])
    size = (arguments["max_num_reqs"], len(arguments["copy_funcs"]))
    context = plain_fields(context_record(groups, *size, profile)) if with_postprocess_align else None
    return record("MambaBuffers", preprocess=lists, postprocess_align=context)


def plain_fields(context: Record) -> Record:
    """A context's fields but its vectors, which it may well share with the lists' own context."""
    return Record(context.type, tuple(field for field in context.fields if not isinstance(field[1], Tensor)))


@answers("collect_mamba_copy_meta", rule=entries)
def collected(call: Call, memory: Known, profile: Profile, **_: Value) -> Answer:
    """One entry more for every state of the request, or none where it stays."""
    return None, collected_lists(call, profile).contents(memory, uploaded=False)


@answers("do_mamba_copy_block", rule=memory_after)
def copied_block(memory: Known, profile: Profile, bufs: Value) -> Answer:
    """The memory after every listed copy."""
    lists = lists_of(bufs, profile)
    return None, executed(lists, memory)


def executed(lists: Lists, known: Known) -> dict[str, Value]:
    """Contents by name after the listed copies: pools, and what was uploaded."""
    if not lists.listed:
        return lists.contents(known, uploaded=False)
    before = memory_of(lists.states, known)
    after = memory_after(before, lists.listed)
    return pools_after(lists.states, before, after, known) | lists.contents(known, uploaded=True)


@answers("batch_memcpy", rule=memory_after)
def memcpy(memory: Known, profile: Profile, src_ptrs: Value, dst_ptrs: Value, sizes: Value) -> Answer:
    """The memory after every copy.

    Addresses are those of lists (`src_ptrs.gpu` and `dst_ptrs.gpu`, uploaded), or elements that say where they are.
    """
    sources = _addresses(src_ptrs, "src_ptrs", "source", profile)
    targets = _addresses(dst_ptrs, "dst_ptrs", "target", profile)
    size_vector = _sizes(sizes, profile)
    require_lists([sources.length, targets.length, len(size_vector)])
    listed = used_entries(sources.places, targets.places, size_vector)
    pools = {place.pool for entry in listed for place in entry[:2]}
    whole = {pool: bytes(memory[pool].elements) for pool in pools if memory.get(pool) is not None}
    before = memory_of(sources.states + targets.states, memory) | whole
    return None, pools_after(sources.states + targets.states, before, memory_after(before, listed), memory)


class _Addresses(NamedTuple):
    """A vector of addresses: where those that are known lie, by entry, and the states that they may lie in."""

    length: int
    places: dict[int, Place]
    states: tuple[StateTensor, ...] = ()


def _addresses(vector: Value, name: str, side: str, profile: Profile) -> _Addresses:
    if isinstance(vector, Attribute):
        lists = lists_of(vector.of, profile)
        listed = {index: getattr(entry, side) for index, entry in enumerate(lists.listed)}
        return _Addresses(lists.capacity, listed, lists.states)
    if vector.dtype not in {"int64", "uint64"} or len(vector.shape) != 1:
        raise Refused(name, vector, "be a vector of int64 or uint64")
    known = ((index, one) for index, one in enumerate(vector.values()) if isinstance(one, Address))
    places = {index: Place(address.argument, address.offset) for index, address in known}
    return _Addresses(vector.shape[0], places)


def _sizes(vector: Value, profile: Profile) -> tuple[int, ...]:
    if isinstance(vector, Attribute):
        return zeros(lists_of(vector.of, profile).capacity, "int64").values()
    if vector.dtype not in {"int32", "int64"} or len(vector.shape) != 1:
        raise Refused("sizes", vector, "be a vector of int32 or int64")
    values: tuple[int, ...] = vector.values()
    return values


@answers(
    "harness.launch",
    rule={
        "preprocess_mamba_align_fused_kernel": advanced,
        "precopy_mamba_align_fused_kernel": precopy_moves,
        "postprocess_mamba_fused_kernel": after_step,
        "batch_memcpy_kernel": memory_after,
    },
)
def launched(
    memory: Known,
    profile: Profile,
    kernel: str,
    grid: tuple[int, ...],
    arguments: dict[str, Value],
    constexprs: dict[str, Any],
) -> Answer:
    """What a kernel that is launched by itself changes."""
    match kernel:
        case "preprocess_mamba_align_fused_kernel":
            return None, _preprocess_kernel(grid, arguments, constexprs, memory, profile)
        case "precopy_mamba_align_fused_kernel":
            names = ("mamba_state_idx_ptr", "src_col_ptr", "token_bias_ptr")
            columns, src_col, bias = _values(arguments, *names)
            moves = precopy_moves(_mapping(arguments), columns, src_col, bias, profile)
            return None, moves_done(_launching(arguments), moves, memory, profile)
        case "postprocess_mamba_fused_kernel":
            return None, _postprocess_kernel(arguments, constexprs, memory, profile)
        case "batch_memcpy_kernel":
            return memcpy(memory, profile, **arguments)
    raise AssertionError(f"there is no rule for the kernel {kernel}")


def _values(arguments: Mapping[str, Value], *names: str) -> list[tuple[int, ...]]:
    return [arguments[name].values() for name in names]


def _preprocess_kernel(
    grid: tuple[int, ...],
    arguments: Mapping[str, Value],
    constexprs: Mapping[str, int],
    known: Known,
    profile: Profile,
) -> dict[str, Value]:
    rows, per_program = arguments["num_reqs"], constexprs["BLOCK_SIZE"]
    assert grid[0] * per_program >= rows, f"{grid[0]} programs of {per_program} rows leave some of {rows} out"
    # The names that the vectors go by, in the order of the rule's fields.
    names = {
        "columns": "state_idx_ptr",
        "counts": "num_accepted_tokens_ptr",
        "src_col": "src_col_ptr",
        "bias": "src_off_ptr",
    }
    slots = Slots(*_values(arguments, *names.values()))
    mapping, starts, computed = _values(
        arguments, "idx_mapping_ptr", "query_start_loc_ptr", "num_computed_tokens_ptr"
    )
    block_size = {**arguments, **constexprs}["MAMBA_BLOCK_SIZE"]
    after = advanced(slots, mapping[:rows], starts, computed, block_size, profile)
    results = (after.columns, after.counts, after.src_col, after.src_off)
    return {
        named_as(name, arguments[argument], known): rewritten(arguments[argument], dict(enumerate(values)))
        for (name, argument), values in zip(names.items(), results, strict=True)
    }


def _launching(arguments: Mapping[str, Value]) -> Context:
    """The context whose vectors a kernel is handed, which is initialised."""
    owner = next(value.of for value in arguments.values() if isinstance(value, Attribute))
    context = context_of(owner)
    assert context is not None, "a context's vectors are those of a context"
    assert context.bound is not None, "a context without states has nothing to launch on"
    return context


def _mapping(arguments: Mapping[str, Value]) -> tuple[int, ...]:
    rows, mapping = arguments["num_reqs"], arguments["idx_mapping_ptr"]
    return tuple(range(rows)) if mapping is None else mapping.values()[:rows]


def _postprocess_kernel(
    arguments: Mapping[str, Value], constexprs: Mapping[str, Any], known: Known, profile: Profile
) -> dict[str, Value]:
    context, rows = _launching(arguments), arguments["num_reqs"]
    names = ["num_accepted_tokens_ptr", "mamba_state_idx_ptr", "num_computed_tokens_ptr"]
    if constexprs.get("PRECOMPUTED_NEW_COMPUTED", False):
        _, columns, computed = _values(arguments, *names)
        counts = arguments[names[0]]
        return v2_postprocess(context, _mapping(arguments), counts, columns, computed, known, profile)
    names[2:2] = ["num_scheduled_tokens_ptr"]
    vectors = _values(arguments, *names, "num_draft_tokens_ptr")
    after = v1_postprocess(context, [vector[:rows] for vector in vectors], known, profile)
    # The kernel is handed the vector that it writes counts to, where the driver has the context's.
    counts = after.pop(f"{context.path}.num_accepted_tokens_out")
    written = arguments["num_accepted_tokens_out_ptr"]
    stored = rewritten(written, dict(enumerate(counts.values()[:rows])))
    return {**after, named_as("counts_out", written, known): stored}


def _forgotten(scheduler_output: Record) -> runner.Forgotten:
    return runner.Forgotten(
        tuple(scheduler_output["finished_req_ids"]),
        scheduler_output["preempted_req_ids"],
        tuple(scheduler_output["scheduled_cached_reqs"]["resumed_req_ids"]),
    )


@answers("cleanup_mamba_state_idx", rule=runner.cleaned)
def cleaned(memory: Known, scheduler_output: Record, mamba_state_idx: dict[str, int]) -> Answer:
    """The columns of requests that go on."""
    left = runner.cleaned(mamba_state_idx, _forgotten(scheduler_output))
    return None, {named_as("state_idx", mamba_state_idx, memory): left}


class _Step:
    """A call of a release's `preprocess_mamba` in the oracle's terms."""

    def __init__(self, call: Call, profile: Profile) -> None:
        named = call.named
        self.call = call
        self.profile = profile
        self.lists = lists_of(named["copy_bufs"], profile)
        self.batch: Record = named["input_batch"]
        self.req_ids: list[str] = self.batch["req_ids"]
        counts = self.batch["num_accepted_tokens_cpu"]
        assert isinstance(counts, NumPy), f"{counts} does not say which tensor's array it is"
        self.counts: Tensor = counts.of
        self.group_ids, self.spec = mamba_groups(self.lists.groups)
        self.requests = {name: self._request(request) for name, request in named["requests"].items()}
        self.layout = conv_state_layout(dict(call.environment))
        self.plan = self._plan(named)

    @property
    def by_table(self) -> bool:
        return "block_table" in dict(self.batch.fields)

    def _request(self, request: Record) -> runner.RunnerRequest:
        blocks = request["block_ids"]
        if max(self.group_ids) >= len(blocks):
            raise Refused("requests", blocks, f"have blocks of the groups {self.group_ids}")
        own = tuple(tuple(blocks[group_id]) for group_id in self.group_ids)
        return runner.RunnerRequest(own, request["num_computed_tokens"])

    def _plan(self, named: Mapping[str, Any]) -> runner.StepPlan:
        if not named["cache_config"]["enable_prefix_caching"]:
            raise Refused("enable_prefix_caching", False, "be True")
        return runner.preprocess(
            named["mamba_state_idx"],
            _forgotten(named["scheduler_output"]),
            self.req_ids,
            self.counts.values(),
            named["scheduler_output"]["num_scheduled_tokens"],
            self.requests,
            self.spec.block_size,
            self.spec.num_speculative_blocks,
            self.lists.max_num_reqs,
        )

    def states(self) -> tuple[StateTensor, ...]:
        """The states to copy, whose blocks every request has."""
        named = self.call.named
        copy_funcs = named["mamba_state_copy_funcs"]
        states = states_by_list(self.lists.groups, named["forward_context"], copy_funcs, self.layout)
        runner.require_blocks(self.plan, self.req_ids, self.requests, states)
        return states

    def listed(self) -> Lists:
        """The lists after the call: entries of this step only, and none where block tables do the work."""
        empty = replace(self.lists, listed=(), states=())
        if not self.plan.moves or self.by_table:
            return empty
        states = self.states()
        entries = runner.listed(self.plan, self.req_ids, self.requests, states, self.layout)
        return replace(empty, listed=tuple(entries), states=states)

    def copied_by_tables(self, known: Known) -> dict[str, Value]:
        """The pools after a step whose blocks are found in the batch's tables."""
        states, tables = self.states(), batch_tables(self.batch, self.lists.groups)
        require_tables(table_views(tables), len(tables))
        rows = [current_table(table, index, known) for index, table in enumerate(tables)]
        before = memory_of(states, known)
        after = runner.copied_by_tables(before, self.plan, states, self.layout, rows, self.profile)
        self._assert_same_blocks(before, after, states)
        return pools_after(states, before, after, known)

    def _assert_same_blocks(self, before: Any, after: Any, states: Sequence[StateTensor]) -> None:
        try:
            other = runner.copied_by_lists(
                before, self.plan, self.req_ids, self.requests, states, self.layout
            )
        except Unrepresentable:
            return
        assert after == other, "the block tables and the requests' block_ids do not name the same blocks"


CHANGES["preprocess_mamba"] = lambda call, profile: _Step(call, profile).listed()


@answers("preprocess_mamba", rule=runner.preprocess)
def preprocessed(call: Call, memory: Known, profile: Profile, **_: Value) -> Answer:
    """States in the columns where their requests go on, which are remembered, and counts of 1 for these requests."""
    step = _Step(call, profile)
    lists = step.listed()
    pools = step.copied_by_tables(memory) if step.by_table and step.plan.moves else {}
    state_idx = call.named["mamba_state_idx"]
    return None, {
        **pools,
        **executed(lists, memory),
        named_as("state_idx", state_idx, memory): step.plan.state_idx,
        named_as("accepted", step.counts, memory): rewritten(step.counts, dict(enumerate(step.plan.counts))),
    }


@answers("stage_mamba_state_idx_to_gpu", rule=runner.staged_columns)
def staged_columns(
    memory: Known,
    profile: Profile,
    mamba_state_idx: dict[str, int],
    req_ids: list[str],
    num_reqs: Value,
    gpu_buf: Value,
) -> Answer:
    """Running columns on both sides of a buffer."""
    buffer = buffer_of(gpu_buf, profile)
    rows = runner.staged_rows(req_ids, num_reqs, buffer.size[0])
    return None, buffer.staged(runner.staged_columns(mamba_state_idx, rows), memory)


@answers("stage_postprocess_metadata_to_gpu", rule=runner.staged_metadata)
def staged_metadata(
    memory: Known,
    profile: Profile,
    scheduler_output: Record,
    req_ids: list[str],
    num_reqs: Value,
    requests: dict[str, Record],
    num_scheduled_tokens_buf: Value,
    num_computed_tokens_buf: Value,
    num_draft_tokens_buf: Value,
) -> Answer:
    """Scheduled, computed and draft tokens on both sides of three buffers."""
    given = (num_scheduled_tokens_buf, num_computed_tokens_buf, num_draft_tokens_buf)
    buffers = [buffer_of(buffer, profile) for buffer in given]
    rows = runner.staged_rows(req_ids, num_reqs, min(buffer.size[0] for buffer in buffers))
    values = runner.staged_metadata(rows, *_metadata(scheduler_output, requests))
    return None, _all_staged(buffers, values, memory)


@answers("stage_postprocess_inputs_to_gpu", rule=runner.staged)
def staged_inputs(
    memory: Known,
    ctx: Value,
    scheduler_output: Record,
    req_ids: list[str],
    num_reqs: Value,
    requests: dict[str, Record],
    mamba_state_idx: dict[str, int],
) -> Answer:
    """Everything that the postprocess reads beside counts, on both sides of the context's buffers."""
    context = context_of(ctx)
    assert context is not None, "staging wants a context"
    rows = runner.staged_rows(req_ids, num_reqs, context.max_num_reqs)
    values = runner.staged(rows, mamba_state_idx, *_metadata(scheduler_output, requests))
    return None, _all_staged(_staging(context), values, memory)


def _metadata(scheduler_output: Record, requests: Mapping[str, Record]) -> tuple[Any, Any, dict[str, int]]:
    computed = {name: request["num_computed_tokens"] for name, request in requests.items()}
    drafts = scheduler_output["scheduled_spec_decode_tokens"]
    return scheduler_output["num_scheduled_tokens"], drafts, computed


def _staging(context: Context) -> list[Buffer]:
    return [Buffer(f"{context.path}.{name}", "int32", (context.max_num_reqs,)) for name in STAGING]


def _all_staged(buffers: Sequence[Buffer], values: Sequence[Sequence[int]], known: Known) -> dict[str, Value]:
    after: dict[str, Value] = {}
    for buffer, column in zip(buffers, values, strict=True):
        after |= buffer.staged(column, known)
    return after


@answers("postprocess_mamba_align_gpu", rule=after_v1_steps)
def postprocessed_on_host(call: Call, memory: Known, profile: Profile, **arguments: Value) -> Answer:
    """Boundary states in their columns, and counts for the next step on the host."""
    context = context_of(arguments["bufs"])
    if context is None:
        raise Refused("bufs.postprocess_align", None, "be a context")
    num_reqs, host = arguments["num_reqs"], arguments["num_accepted_tokens_cpu_tensor"]
    bound, after = _bound(context, call, profile)
    if working(bound, num_reqs) is None:
        return None, {}
    fits = host.dtype == "int32" and len(host.shape) == 1 and host.shape[0] >= num_reqs
    rule = f"be an int32 vector of at least {num_reqs} entries"
    require(fits, "num_accepted_tokens_cpu_tensor", host, rule)
    counts = launch_vector(arguments["num_accepted_tokens_gpu"], "num_accepted_tokens_gpu", num_reqs)
    staged = [buffer.side("gpu", memory)[:num_reqs] for buffer in _staging(bound)]
    after |= v1_postprocess(bound, [counts.values()[:num_reqs], *staged], memory, profile)
    out = after[f"{bound.path}.num_accepted_tokens_out"].elements[:num_reqs]
    return None, after | {named_as("accepted", host, memory): rewritten(host, dict(enumerate(out)))}


def _bound(context: Context, call: Call, profile: Profile) -> tuple[Context, dict[str, Value]]:
    """The initialised context, and what its first use makes known. A batch without rows has no table to bind."""
    if context.bound is not None or call.named["num_reqs"] == 0:
        return context, {}
    return replace(context, bound=call), initialized_contents(context, call, profile)


@answers("postprocess_mamba_all", rule=last_scheduled_columns)
def postprocessed_all(
    memory: Known,
    scheduler_output: Record,
    kv_cache_config: Record,
    input_batch: Record,
    requests: dict[str, Record],
    mamba_state_idx: dict[str, int],
    num_spec_tokens: int,
    num_reqs: int,
) -> Answer:
    """The columns of full decodes; without drafts, what there was."""
    name = named_as("state_idx", mamba_state_idx, memory)
    if num_spec_tokens <= 0:
        return None, {name: mamba_state_idx}
    req_ids, scheduled = input_batch["req_ids"], scheduler_output["num_scheduled_tokens"]
    rows = runner.staged_rows(req_ids, num_reqs, len(req_ids))
    lengths = {req_id: (0, scheduled.get(req_id, 0)) for req_id in rows}
    for req_id, (_, length) in lengths.items():
        if length == 1 + num_spec_tokens:
            lengths[req_id] = (runner.lookup("requests", requests, req_id)["num_computed_tokens"], length)
    block_size = mamba_groups(cache_groups(kv_cache_config))[1].block_size
    return None, {name: last_scheduled_columns(mamba_state_idx, lengths, block_size, num_spec_tokens)}
