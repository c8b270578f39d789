"""The metadata builders of Mamba-1, Mamba-2 and GDN, for eager steps and for full CUDA graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from properties.strategies.builders import (
    CLASSES,
    BuildCall,
    BuilderSetup,
    Session,
    StepRequest,
    captured_step,
    sessions,
    setups,
    written_captures,
    written_sessions,
)
from statecheck.case.values import Call, Name, Record, Tensor, Value, call
from statecheck.execution.example import Example
from statecheck.execution.registry import Configuration, prop

BUILDERS = tuple(CLASSES.values())
BUILD = tuple(f"{name}.build" for name in BUILDERS)
CAPTURE = tuple(f"{name}.build_for_cudagraph_capture" for name in BUILDERS)
MAMBA = ("mamba1", "mamba2")
UPDATE = tuple(f"{CLASSES[kind]}.update_block_table" for kind in MAMBA)
SPECULATING: dict[str, Any] = {"kinds": ("gdn",), "min_spec": 1, "rows": "mixed"}
FULL: dict[str, Any] = {"full_cudagraphs": True, "rows": "decodes"}
TOKEN_LISTS = ("spec_token_indx", "non_spec_token_indx")
"""As long as the step has tokens, so a graph captured for more of them cannot read them."""
BY_ROW = (
    "state_indices_tensor_d",
    "state_indices_tensor_p",
    "spec_state_indices_tensor",
    "non_spec_state_indices_tensor",
    "query_start_loc_d",
    "query_start_loc_p",
    "spec_query_start_loc",
    "non_spec_query_start_loc",
    "spec_sequence_masks",
    "num_accepted_tokens",
    "has_initial_states_p",
    "has_initial_state",
    "num_computed_tokens_p",
    "block_idx_last_computed_token",
    "block_idx_first_scheduled_token_p",
    "block_idx_last_scheduled_token",
)
"""Tensors with an entry or more for each row, in the order of the batch, so that rows of padding come last."""


def built(trial: Example, session: Session) -> Record:
    """The metadata of the session's only step, not compared with anything."""
    trial.returns(session.setup.construct())
    return trial.returns(session.steps[0].build(session.setup))


def with_all_fields(session: Session) -> Session:
    """The session of a runner that says all it knows, as releases promise: what they leave out is no evidence."""
    setup = replace(session.setup, decode_context_parallel_size=1)
    steps = (replace(step, marks=True, bounds=True, drafts=True) for step in session.steps)
    return Session(setup, tuple(steps))


def with_counts(session: Session) -> Session:
    """The session with accepted counts given, without which speculation cannot be built at all."""
    return replace(session, steps=tuple(replace(step, counts=True) for step in session.steps))


def with_drafts(session: Session) -> Session:
    """The session with all tokens of a decode but the first as its drafts."""

    steps = (
        replace(step, requests=tuple(replace(row, drafts=row.query_len - 1) for row in step.requests))
        for step in session.steps
    )
    return replace(session, steps=tuple(steps))


UPDATING = st.sampled_from(("builder", "other"))
"""The builder of the updated metadata, or that of another group of layers, whose buffers hold no step yet."""
SPECULATIVE_SESSIONS = sessions(**SPECULATING).map(with_counts) | sessions(**SPECULATING).map(
    with_counts
).map(with_all_fields)
"""Half of them with all that a runner can say."""
FIELDS = (
    Configuration("builder/fields", session=sessions(), written=[{"session": session} for session in written_sessions()],
        reason="for eager steps"),
    Configuration("builder/full-graphs", session=sessions(**FULL), reason="padded to the rows of the batch for full graphs"),
)  # fmt: skip


@prop(FIELDS, "agreement", *BUILD)
def metadata_are_the_rules(trial: Example, session: Session) -> None:
    """Every field of the metadata is what its sentence says."""
    trial.agrees(session.setup.construct(), session.steps[0].build(session.setup))


# GDN's counts leave padded rows out, or not, as the release has it: `builder/fields` holds them against the rules.
@prop(
    "builder/partition",
    "partition",
    *(f"{CLASSES[kind]}.build" for kind in MAMBA),
    session=sessions(kinds=MAMBA).map(with_counts),
)
def test_builder_partition(trial: Example, session: Session) -> None:
    """Decodes and prefills of a Mamba builder's metadata add up to the batch."""
    metadata, step = built(trial, session), session.steps[0]
    rows = metadata["num_decodes"] + metadata["num_prefills"]
    tokens = metadata["num_decode_tokens"] + metadata["num_prefill_tokens"]
    trial.equals("rows", rows, len(step.rows))
    trial.equals("tokens", tokens, step.num_actual_tokens)


@prop(
    "gdn-builder/token-indices",
    "partition",
    "GDNAttentionMetadataBuilder.build",
    session=SPECULATIVE_SESSIONS,
)
def test_gdn_builder_token_indices(trial: Example, session: Session) -> None:
    """Token indices of GDN are disjoint and cover the step."""
    metadata, step = built(trial, session), session.steps[0]
    if metadata["spec_token_indx"] is None:
        return
    both = (*metadata["spec_token_indx"].values(), *metadata["non_spec_token_indx"].values())
    wanted = tuple(range(step.query_start_loc[-1]))
    trial.equals("token indices", tuple(sorted(both)), wanted)


@prop("builder/no-prior-state", "classification", *BUILD, session=sessions().map(with_counts))
def test_builder_no_prior_state(trial: Example, session: Session) -> None:
    """No row without prior state is a decode."""
    metadata, step = built(trial, session), session.steps[0]
    for r, row in enumerate(decodes_of(metadata, step)):
        trial.holds(
            row.num_computed > 0,
            f"row {r} of the decodes reads a state",
            "should not: it has no computed token",
            place="rows that read state",
        )


def decodes_of(metadata: Record, step: BuildCall) -> list[StepRequest]:
    """The requests of the rows that the metadata handle as decodes, speculative or not."""
    masks = dict(metadata.fields).get("spec_sequence_masks")
    if isinstance(masks, Tensor):
        # Beside speculative rows, all others are prefills.
        return [row for row, mark in zip(step.requests, masks.values(), strict=False) if mark]
    return list(step.requests[: metadata["num_decodes"]])


def with_drafts_of_prompts(session: Session) -> Session:
    """The session of a runner that marks drafts in each row that is short enough to have them, in its prompt or not."""
    spec = session.setup.num_spec
    steps = (
        replace(
            step,
            drafts=True,
            requests=tuple(
                replace(row, drafts=row.query_len - 1) if row.query_len <= 1 + spec else row
                for row in step.requests
            ),
        )
        for step in session.steps
    )
    return replace(session, steps=tuple(steps))


@prop(
    "builder/prompt-rows",
    "classification",
    *BUILD,
    session=sessions().map(with_counts) | SPECULATIVE_SESSIONS.map(with_drafts_of_prompts),
)
def test_builder_prompt_rows(trial: Example, session: Session) -> None:
    """A row that is marked as in its prompt is no decode."""
    step = replace(session.steps[0], marks=True)
    if not trial.profile.drafts_in_prompts:
        requests = (replace(row, drafts=-1) if row.prefilling else row for row in step.requests)
        step = replace(step, requests=tuple(requests))
    metadata = built(trial, replace(session, steps=(step,)))
    marks = [
        row.prefilling and not (trial.profile.tails_decode and row.query_len == 1 and row.num_computed)
        for row in decodes_of(metadata, step)
    ]
    trial.holds(
        not any(marks),
        f"is_prefilling of the decodes = {marks}",
        "should be False throughout",
        place="decodes",
    )


@prop(
    "gdn-builder/no-drafts",
    "classification",
    "GDNAttentionMetadataBuilder.build",
    session=SPECULATIVE_SESSIONS,
)
def test_gdn_builder_no_drafts(trial: Example, session: Session) -> None:
    """A decode that drafted nothing still reads at its accepted offset."""
    step = replace(session.steps[0], marks=True)
    metadata = built(trial, replace(session, steps=(step,)))
    masks = metadata["spec_sequence_masks"]
    for r, row in undrafted(step, plain=trial.profile.gdn_plain_decodes):
        wanted = f"should be a speculative row: it accepted {row.accepted} tokens in the last step"
        marked = masks is not None and bool(masks.values()[r])
        trial.holds(marked, f"row {r} is no speculative row", wanted, place="speculative rows")
        # Speculative rows keep the order of the batch, so a row's place is the number of marks before it.
        place = sum(map(bool, masks.values()[:r]))
        count = metadata["num_accepted_tokens"].values()[place]
        trial.equals("accepted counts", count, row.accepted)


def undrafted(step: BuildCall, *, plain: bool) -> Iterator[tuple[int, StepRequest]]:
    """Decodes that drafted nothing, with their rows; `plain`: but not where one token was accepted and column 0 is right, too."""
    for r, row in enumerate(step.requests):
        if row.query_len == 1 and not row.prefilling and not (plain and row.accepted == 1):
            yield r, row


@prop("builder/padding-blocks", "padding", *BUILD, session=sessions(**FULL).map(with_counts))
def test_builder_padding_blocks(trial: Example, session: Session) -> None:
    """Rows of padding never name a block.

    Whatever a runner leaves in the table rows of padding, no kernel touches a block for them.
    """
    metadata, step = built(trial, session), session.steps[0]
    requests, fields = len(step.requests), dict(metadata.fields)
    spec = fields.get("num_spec_decodes", 0)
    live = {
        "state_indices_tensor_d": min(requests, metadata["num_decodes"]),
        "spec_state_indices_tensor": spec,
        "non_spec_state_indices_tensor": requests - spec,
    }
    for name, rows in live.items():
        tensor = fields.get(name)
        if isinstance(tensor, Tensor):
            width = tensor.shape[1] if len(tensor.shape) == 2 else 1
            # Of a tensor that lacks rows the slice behind them is empty, and would pass.
            seen, wanted = f"{name} has {tensor.shape[0]} rows", f"should have at least {rows}"
            trial.holds(tensor.shape[0] >= rows, seen, wanted, place=f"rows of {name}")
            tail = set(tensor.values()[rows * width :])
            wanted = "should be the null block or -1"
            trial.holds(tail <= {0, -1}, f"{name} of padding = {tail}", wanted, place=f"padding of {name}")


@prop(
    "builder/own-buffers",
    "ownership",
    *BUILD,
    "harness.owned_fields",
    session=sessions(**FULL).map(with_counts),
)
def test_builder_own_buffers(trial: Example, session: Session) -> None:
    """Results for full graphs live in the builder's own buffers."""
    trial.agrees(
        session.setup.construct(),
        session.steps[0].build(session.setup),
        call("harness.owned_fields", owner=Name("builder"), result=Name("metadata")),
    )


@prop(
    "builder/two-builders",
    "ownership",
    *BUILD,
    "harness.owned_fields",
    session=sessions(**FULL).map(with_counts),
)
def test_builder_two_builders(trial: Example, session: Session) -> None:
    """Two builders never share memory."""
    trial.returns(session.setup.construct(), session.setup.construct(bind="other"))
    trial.returns(session.steps[0].build(session.setup))
    shared = trial.returns(call("harness.owned_fields", owner=Name("other"), result=Name("metadata")))
    trial.equals("buffers", shared, ())


@prop("builder/several-steps", "ownership", *BUILD, session=sessions(max_steps=4))
def test_builder_several_steps(trial: Example, session: Session) -> None:
    """Each build is what a new builder would build."""
    trial.agrees(session.setup.construct())
    for step in session.steps:
        trial.agrees(step.build(session.setup))


@prop(
    "builder/full-graph-drafts",
    "ownership",
    f"{CLASSES['gdn']}.build",
    session=sessions(kinds=("gdn",), min_spec=1, max_steps=3, **FULL)
    .map(with_counts)
    .map(with_all_fields)
    .map(with_drafts),
    padded_rows=st.integers(1, 2),
)
def test_builder_full_graph_drafts(trial: Example, session: Session, padded_rows: int) -> None:
    """Rows of padding behind drafts hold nothing of an earlier step."""
    trial.agrees(session.setup.construct())
    for step in session.steps:
        padded = replace(step, padded_rows=padded_rows)
        trial.agrees(padded.build(session.setup))


@prop(
    "builder/padding-rows", "metamorphic", *BUILD, session=sessions().map(with_counts), rows=st.integers(1, 2)
)
def test_builder_padding_rows(trial: Example, session: Session, rows: int) -> None:
    """Rows of padding change no row before them.

    Counts may grow by rows of padding; what the kernels read for the other rows stays the same.
    """
    plain = replace(session.steps[0], padded_rows=0, padded_tokens=0)
    padded = replace(plain, padded_rows=rows)
    metadata = built(trial, replace(session, steps=(plain,)))
    other = built(trial, replace(session, steps=(padded,)))
    for name in ("num_prefill_tokens", "num_decode_tokens", *TOKEN_LISTS, "cu_chunk_seqlen_p", "seq_idx_p"):
        alone, beside = _values(metadata, name), _values(other, name)
        trial.equals(name, beside, alone)
    for name in BY_ROW:
        alone, beside = _rows_both_have(metadata, other, name)
        if alone:
            trial.holds(
                beside is not None and beside[: len(alone)] == alone,
                f"{name} = {beside} with padding",
                f"should begin with {alone}",
                place=name,
            )


def _rows_both_have(metadata: Record, other: Record, name: str) -> tuple[Any, Any]:
    """A field of each, of matrices the columns that both have: a step that no graph was captured for keeps the whole table's."""
    tables = [dict(record.fields).get(name) for record in (metadata, other)]
    if not all(isinstance(table, Tensor) and len(table.shape) == 2 for table in tables):
        return _values(metadata, name), _values(other, name)
    width = min(table.shape[1] for table in tables if table is not None)
    alone, beside = (tuple(row[:width] for row in table.rows()) for table in tables if table is not None)
    return alone, beside


def _values(metadata: Record, name: str) -> Any:
    """A number as it is, the elements of a tensor, None for a field that is not there."""
    value = dict(metadata.fields).get(name)
    return value.values() if isinstance(value, Tensor) else value


@prop(
    "builder/relabelled-blocks",
    "metamorphic",
    *BUILD,
    session=sessions().map(with_counts),
    shift=st.integers(1, 1000),
)
def test_builder_relabelled_blocks(trial: Example, session: Session, shift: int) -> None:
    """Relabelled blocks come out relabelled and nothing else changes."""
    step = replace(session.steps[0], first_block=1)
    metadata = built(trial, replace(session, steps=(step,)))
    other = built(trial, replace(session, steps=(replace(step, first_block=1 + shift),)))
    for name, value in metadata.fields:
        moved = dict(other.fields)[name]
        if (
            name.endswith(("state_indices_tensor", "state_indices_tensor_d", "state_indices_tensor_p"))
            and value is not None
        ):
            wanted = tuple(block + shift if _is_block(block) else block for block in value.values())
            trial.equals(name, moved.values(), wanted)
        else:
            trial.equals(name, moved, value)


def _is_block(block: int) -> bool:
    return 0 < block < 10**6


@prop(
    "builder/capture",
    "agreement",
    *CAPTURE,
    written=written_captures(),
    setup=setups(full_cudagraphs=True),
    rows=st.integers(0, 4),
    padded=st.integers(0, 2),
)
def test_builder_capture(trial: Example, setup: BuilderSetup, rows: int, padded: int) -> None:
    """A captured step has decodes only."""
    trial.agrees(setup.construct(), captured_step(setup, rows, padded))


@prop(
    "builder/update-block-table",
    "agreement",
    *UPDATE,
    session=sessions(kinds=MAMBA),
    first_block=st.integers(1, 50),
    builder=UPDATING,
)
def test_builder_update_block_table(trial: Example, session: Session, first_block: int, builder: str) -> None:
    """Another block table changes the state indices only."""
    setup = replace(session.setup, num_spec=0)
    step = session.steps[0]
    assume(all(row.query_len == 1 or row.prefilling for row in step.requests))
    step = replace(step, requests=tuple(replace(row, accepted=1, slack=0) for row in step.requests))
    update = step.with_blocks_from(500 + first_block).update(setup, builder)
    trial.agrees(setup.construct(), setup.construct(bind="other"), step.build(setup), update)


@prop(
    "builder/update-gdn-block-table",
    "agreement",
    f"{CLASSES['gdn']}.update_block_table",
    session=sessions(kinds=("gdn",)).map(with_counts).map(with_all_fields),
    first_block=st.integers(1, 50),
    builder=UPDATING,
)
def test_builder_update_gdn_block_table(
    trial: Example, session: Session, first_block: int, builder: str
) -> None:
    """Another block table changes the state indices of GDN only."""
    setup, step = session.setup, session.steps[0]
    update = step.with_blocks_from(500 + first_block).update(setup, builder)
    trial.agrees(setup.construct(), setup.construct(bind="other"), step.build(setup), update)


@prop("builder/no-sync", "cost", *BUILD, device="cuda", session=sessions(max_steps=2))
def test_builder_no_sync(trial: Example, session: Session) -> None:
    """No build waits for the device."""
    trial.agrees(session.setup.construct())
    for step in session.steps:
        trial.agrees_without_waiting(step.build(session.setup))


@prop(
    "builder/graph-replay",
    "capture = replay",
    *BUILD,
    *CAPTURE,
    "harness.capture",
    "harness.replay",
    device="cuda",
    setup=setups(full_cudagraphs=True),
    data=st.data(),
)
def test_builder_graph_replay(trial: Example, setup: BuilderSetup, data: st.DataObject) -> None:
    """A replayed graph reads what an eager step builds.

    A graph captured for a shape, replayed after steps of that shape, reads what each of them built.
    """
    most = setup.capture_rows // (1 + setup.num_spec) if setup.kind == "gdn" else setup.capture_rows
    assume(most >= 1)
    rows = data.draw(st.integers(1, min(most, 5)))
    trial.agrees(setup.construct(), captured_step(setup, rows, 0))
    owned = trial.returns(call("harness.owned_fields", owner=Name("builder"), result=Name("metadata")))
    names = tuple(name for name in owned if name not in TOKEN_LISTS)
    trial.agrees(call_bound("harness.capture", "graph", result=Name("metadata"), names=names))
    for step in data.draw(st.lists(steps_of_shape(setup, rows), min_size=5, max_size=10)):
        trial.agrees(
            step.build(setup),
            replace(call("harness.replay", graph=Name("graph"), latest=Name("metadata")), by_content=True),
        )


def call_bound(function: str, bind: str, **arguments: Value) -> Call:
    return replace(call(function, **arguments), bind=bind)


def steps_of_shape(setup: BuilderSetup, rows: int) -> st.SearchStrategy[BuildCall]:
    """Decodes of the captured length, and padding up to `rows` rows."""
    return _steps_of_shape(setup.num_spec, setup.max_model_len, rows)


@cache
def _steps_of_shape(spec: int, max_model_len: int, rows: int) -> st.SearchStrategy[BuildCall]:
    """The same, made once: making them takes longer than drawing from them."""
    decode = st.builds(
        StepRequest,
        st.just(1 + spec),
        st.integers(1, max_model_len - 1 - spec),
        accepted=st.integers(1, 1 + spec),
        drafts=st.just(spec),
    )
    live = st.lists(decode, min_size=1, max_size=rows).map(tuple)
    return st.builds(
        lambda decodes, first: BuildCall(decodes, padded_rows=rows - len(decodes), first_block=first),
        live,
        st.integers(1, 1000),
    )
