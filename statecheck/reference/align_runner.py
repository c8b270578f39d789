"""Answers about what a runner does around a step of align mode, on the host (document 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from oracle.align import runner as rules
from oracle.align.context import CacheGroup, mamba_groups, require_tables
from oracle.align.decisions import after_v1_steps, last_scheduled_columns
from oracle.align.memory import StateTensor
from oracle.errors import Refused, require
from oracle.layout import Unrepresentable, conv_state_layout
from statecheck.case.values import Call, NumPy, Record, Tensor, Value
from statecheck.reference import answers
from statecheck.reference.align import Answer, initialized_contents, v1_postprocess, working
from statecheck.reference.align_buffers import (
    CHANGES,
    Buffer,
    Lists,
    buffer_of,
    lists_of,
    states_by_list,
)
from statecheck.reference.align_lists import executed
from statecheck.reference.align_values import (
    STAGING,
    Context,
    Known,
    batch_tables,
    cache_groups,
    context_of,
    current_table,
    launch_vector,
    memory_of,
    named_as,
    pools_after,
    rewritten,
    table_views,
)
from statecheck.subject.profile import Profile


def _forgotten(scheduler_output: Record) -> rules.Forgotten:
    return rules.Forgotten(
        tuple(scheduler_output["finished_req_ids"]),
        scheduler_output["preempted_req_ids"],
        tuple(scheduler_output["scheduled_cached_reqs"]["resumed_req_ids"]),
    )


@answers("cleanup_mamba_state_idx", rule=rules.cleaned)
def cleaned(memory: Known, scheduler_output: Record, mamba_state_idx: dict[str, int]) -> Answer:
    """The columns of requests that go on."""
    left = rules.cleaned(mamba_state_idx, _forgotten(scheduler_output))
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

    def _request(self, request: Record) -> rules.RunnerRequest:
        blocks = request["block_ids"]
        if max(self.group_ids) >= len(blocks):
            raise Refused("requests", blocks, f"have blocks of the groups {self.group_ids}")
        own = tuple(tuple(blocks[group_id]) for group_id in self.group_ids)
        return rules.RunnerRequest(own, request["num_computed_tokens"])

    def _plan(self, named: Mapping[str, Any]) -> rules.StepPlan:
        if not named["cache_config"]["enable_prefix_caching"]:
            raise Refused("enable_prefix_caching", False, "be True")
        return rules.preprocess(
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
        rules.require_blocks(self.plan, self.req_ids, self.requests, states)
        return states

    def listed(self) -> Lists:
        """The lists after the call: entries of this step only, and none where block tables do the work."""
        empty = replace(self.lists, listed=(), states=())
        if not self.plan.moves or self.by_table:
            return empty
        states = self.states()
        entries = rules.listed(self.plan, self.req_ids, self.requests, states, self.layout)
        return replace(empty, listed=tuple(entries), states=states)

    def copied_by_tables(self, known: Known) -> dict[str, Value]:
        """The pools after a step whose blocks are found in the batch's tables."""
        states, tables = self.states(), batch_tables(self.batch, self.lists.groups)
        require_tables(table_views(tables), len(tables))
        rows = [current_table(table, index, known) for index, table in enumerate(tables)]
        before = memory_of(states, known)
        after = rules.copied_by_tables(before, self.plan, states, self.layout, rows, self.profile)
        self._assert_same_blocks(before, after, states)
        return pools_after(states, before, after, known)

    def _assert_same_blocks(self, before: Any, after: Any, states: Sequence[StateTensor]) -> None:
        try:
            other = rules.copied_by_lists(before, self.plan, self.req_ids, self.requests, states, self.layout)
        except Unrepresentable:
            return
        assert after == other, "the block tables and the requests' block_ids do not name the same blocks"


CHANGES["preprocess_mamba"] = lambda call, profile: _Step(call, profile).listed()


@answers("preprocess_mamba", rule=rules.preprocess)
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


@answers("stage_mamba_state_idx_to_gpu", rule=rules.staged_columns)
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
    rows = rules.staged_rows(req_ids, num_reqs, buffer.size[0])
    return None, buffer.staged(rules.staged_columns(mamba_state_idx, rows), memory)


@answers("stage_postprocess_metadata_to_gpu", rule=rules.staged_metadata)
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
    rows = rules.staged_rows(req_ids, num_reqs, min(buffer.size[0] for buffer in buffers))
    values = rules.staged_metadata(rows, *_metadata(scheduler_output, requests))
    return None, _all_staged(buffers, values, memory)


@answers("stage_postprocess_inputs_to_gpu", rule=rules.staged)
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
    rows = rules.staged_rows(req_ids, num_reqs, context.max_num_reqs)
    values = rules.staged(rows, mamba_state_idx, *_metadata(scheduler_output, requests))
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
def postprocessed(call: Call, memory: Known, profile: Profile, **arguments: Value) -> Answer:
    """Boundary states in their columns, and counts for the next step on the host."""
    context = context_of(arguments["bufs"])
    if context is None:
        raise Refused("bufs.postprocess_align", None, "be a context")
    num_reqs, host = arguments["num_reqs"], arguments["num_accepted_tokens_cpu_tensor"]
    bound, after = _bound(context, call, profile)
    if working(bound, num_reqs) is None:
        return None, {}
    _require_host_counts(host, num_reqs)
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


def _require_host_counts(host: Tensor, least: int) -> None:
    argument, rule = "num_accepted_tokens_cpu_tensor", f"be an int32 vector of at least {least} entries"
    fits = host.dtype == "int32" and len(host.shape) == 1 and host.shape[0] >= least
    require(fits, argument, host, rule)


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
    rows = rules.staged_rows(req_ids, num_reqs, len(req_ids))
    lengths = {req_id: (0, scheduled.get(req_id, 0)) for req_id in rows}
    for req_id, (_, length) in lengths.items():
        if length == 1 + num_spec_tokens:
            lengths[req_id] = (rules.lookup("requests", requests, req_id)["num_computed_tokens"], length)
    block_size = _block_size(cache_groups(kv_cache_config))
    return None, {name: last_scheduled_columns(mamba_state_idx, lengths, block_size, num_spec_tokens)}


def _block_size(groups: Sequence[CacheGroup]) -> int:
    return mamba_groups(groups)[1].block_size
