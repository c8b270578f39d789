"""Bad input of align mode, one kind at a time: a `ValueError` names the argument, and nothing is written."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import assume
from hypothesis import strategies as st

from properties.strategies.align.afters import After
from properties.strategies.align.befores import Before
from properties.strategies.align.kept import Group, Kept
from properties.strategies.align.launches import POSTPROCESS, POSTPROCESS_ALIGN, PRECOPY
from properties.strategies.align.pointers import COLLECT, MEMCPY, collect
from properties.strategies.align.requests import Sampled, Starting
from properties.strategies.align.runner import (
    BUFFERS,
    COPY_BUFFERS,
    PREPROCESS,
    STAGE,
    STAGE_COLUMNS,
    STAGE_METADATA,
    STAGING,
    Scheduled,
    buffers,
    copy_buffers,
    postprocess,
    requests_of,
    scheduler_output,
    stage,
)
from properties.strategies.align.runner_steps import RunnerStep, runner_steps
from properties.strategies.align.setup import CONTEXT, Setup
from statecheck.case.values import (
    Attribute,
    Call,
    Device,
    DType,
    Function,
    Let,
    Name,
    Record,
    Step,
    Tensor,
    Value,
    View,
    int32,
    int64,
    record,
)
from statecheck.execution.example import Bench, Trial
from statecheck.execution.registry import PROPERTIES, prop, written_examples

CREATE = f"{CONTEXT}.create"
INITIALIZE = f"{CONTEXT}.initialize_from_forward_context"
BUFFER, TO_GPU = "CpuGpuBuffer", "CpuGpuBuffer.copy_to_gpu"
GROUPS, ALL = "get_mamba_groups", "postprocess_mamba_all"

CONV, TEMPORAL = Kept("conv", (5, 2)), Kept("temporal", (2, 2))
SETUP = Setup((Group((CONV, TEMPORAL)),), ("conv", "temporal"), block_size=4, num_spec=2)
TWO_GROUPS = replace(SETUP, groups=SETUP.groups * 2)
CHANNELS_FIRST = replace(SETUP, groups=(Group((Kept("conv", (2, 5)), TEMPORAL)),), layout="DS")
AFTER = After(SETUP, (Sampled(3, 3, 2, 3), Sampled(10, 1)))
BEFORE = Before(SETUP, (Starting(3, 4, 2), Starting(10, 1)))
STEP = RunnerStep(SETUP, (Starting(3, 4, 2), Starting(10, 1)), spare=1)
LISTED = replace(STEP, pointers=True)
UNSHIFTED = replace(STEP, requests=(Starting(4, 4), Starting(10, 1)))
ACROSS = replace(LISTED, requests=(Starting(3, 12, 2), Starting(10, 1)))
FURTHER = replace(STEP, requests=(Starting(2, 4, 3), Starting(10, 1)))


@dataclass(frozen=True)
class BadSteps:
    """Steps of which the last is a call with one bad argument; `name` says what is wrong with it."""

    name: str
    steps: tuple[Step, ...]

    @property
    def call(self) -> Call:
        assert isinstance(self.steps[-1], Call)
        return self.steps[-1]


def changed(call: Call, **changes: Value) -> Call:
    """The call with other arguments."""
    arguments, keywords = dict(call.arguments), dict(call.keywords)
    for name, value in changes.items():
        (arguments if name in arguments else keywords)[name] = value
    return replace(call, arguments=tuple(arguments.items()), keywords=tuple(keywords.items()))


def with_fields(value: Record, **changes: Value) -> Record:
    return replace(value, fields=tuple((dict(value.fields) | changes).items()))


def create(setup: Setup = SETUP, **changes: Value) -> tuple[Step, ...]:
    return Let("config", setup.config(4)), changed(setup.create(2), **changes)


def initialize(setup: Setup = SETUP, **changes: Value) -> tuple[Step, ...]:
    batch = replace(AFTER, setup=setup)
    return *batch.prepared()[:-1], setup.initialize(**changes)


def layers(**views: Value) -> dict[str, Value]:
    """The layers of SETUP with another `conv` or `temporal` view."""
    plain = SETUP.forward_context(3)["layer0"]["kv_cache"]
    kept = dict(zip(("conv", "temporal"), plain, strict=True)) | views
    return {"layer0": record("Layer", kv_cache=[view for view in kept.values() if view is not None])}


def launch(function: str, **changes: Value) -> tuple[Step, ...]:
    batch = BEFORE if function == PRECOPY else AFTER
    steps = AFTER.rowwise() if function == POSTPROCESS else batch.slotwise()
    last = steps[-1]
    assert isinstance(last, Call)
    return *batch.prepared(), *steps[:-1], changed(last, **changes)


VECTORS = {
    POSTPROCESS: (
        "num_accepted_tokens_gpu",
        "mamba_state_idx_gpu",
        "num_scheduled_tokens_gpu",
        "num_computed_tokens_gpu",
        "num_draft_tokens_gpu",
    ),
    POSTPROCESS_ALIGN: (
        "num_accepted_tokens_gpu",
        "state_idx_gpu",
        "new_num_computed_tokens_gpu",
        "idx_mapping",
    ),
    PRECOPY: ("state_idx_gpu", "src_col_gpu", "token_bias_gpu", "idx_mapping"),
}
BAD_VECTORS = {
    "of 64 bits": int64([1, 1]),
    "as a matrix": int32([[1, 1]]),
    "with gaps": Tensor("int32", (2,), (1, 0, 1), (2,)),
    "with too few entries": int32([1]),
    "as a list": [1, 1],
}


def preprocess(step: RunnerStep = STEP, **changes: Value) -> tuple[Step, ...]:
    return *step.prepared(), changed(step.preprocess(), **changes)


def with_requests(step: RunnerStep, **changes: Value) -> dict[str, Value]:
    """What the runner remembers, with another first request."""
    known = requests_of(step.cache, step.rows)
    return known | {"r0": with_fields(known["r0"], **changes)}


def with_blocks(step: RunnerStep, blocks: list[int]) -> dict[str, Value]:
    return with_requests(step, block_ids=[blocks])


def with_counts(*counts: int) -> tuple[Step, ...]:
    """Preprocess of rows with these accepted counts."""
    named = [
        Let("accepted", int32(counts).on_host()) if one == named_counts() else one for one in STEP.prepared()
    ]
    return *named, STEP.preprocess()


def named_counts() -> Let:
    return Let("accepted", STEP.accepted())


def collected(
    src_col: int, dst_col: int, bias: int = 0, blocks: list[int] | None = None, **changes: Value
) -> tuple[Step, ...]:
    named = [*AFTER.cache.steps(), copy_buffers(SETUP, 1)]
    return *named, collect(
        SETUP, [[1, 2, 3, 4] if blocks is None else blocks], src_col, dst_col, bias, **changes
    )


def memcpy(**changes: Value) -> tuple[Step, ...]:
    arguments: dict[str, Value] = {
        "src_ptrs": int64([0, 0]),
        "dst_ptrs": int64([0, 0]),
        "sizes": int32([0, 0]),
    }
    return (Call(MEMCPY, tuple((arguments | changes).items())),)


def staged(function: str = STAGE, **changes: Value) -> tuple[Step, ...]:
    """Staging of STEP; `columns` are the remembered ones."""
    columns = changes.pop("columns", {row.id: 1 for row in STEP.rows})
    capacity = changes.pop("capacity", STEP.capacity)
    call = stage(STEP.cache, STEP.rows, STEP.output)
    if function != STAGE:
        buffers = STAGING[1:] if function == STAGE_METADATA else STAGING[:1]
        wanted = ["mamba_state_idx"] if function == STAGE_COLUMNS else ["scheduler_output"]
        wanted += ["req_ids", "num_reqs"] + ["requests"] * (function == STAGE_METADATA)
        given = {name: value for name, value in call.arguments if name in wanted}
        names = buffers if function == STAGE_METADATA else ("gpu_buf",)
        given |= {name: Attribute(Name("ctx"), buffer) for name, buffer in zip(names, buffers, strict=True)}
        call = Call(
            function, tuple((name, given[name]) for name in (*wanted, *names)), observes=call.observes
        )
    return (
        Let("config", SETUP.config(4)),
        SETUP.create(capacity),
        Let("state_idx", columns),
        changed(call, **changes),
    )


def postprocessed(*, with_postprocess: bool = True, **changes: Value) -> tuple[Step, ...]:
    rows = [Scheduled("r0", 0, 3, 3, 2), Scheduled("r1", 1, 10, 1)]
    return (
        *AFTER.cache.steps(),
        buffers(SETUP, 2, with_postprocess=with_postprocess),
        Let("counts", int32([3, 1])),
        Let("accepted", int32([1, 1]).on_host()),
        replace(
            postprocess(AFTER.cache, rows),
            keywords=tuple((dict(postprocess(AFTER.cache, rows).keywords) | changes).items()),
        ),
    )


def groups(*specs: Record) -> tuple[Step, ...]:
    """`get_mamba_groups` of groups with these specifications."""
    found = [
        record("KVCacheGroupSpec", layer_names=[f"layer{number}"], kv_cache_spec=spec)
        for number, spec in enumerate(specs)
    ]
    config = record("KVCacheConfig", num_blocks=4, kv_cache_tensors=[], kv_cache_groups=found)
    return (Call(GROUPS, (("kv_cache_config", config),)),)


SPEC: Record = SETUP.config(4)["kv_cache_groups"][0]["kv_cache_spec"]
ATTENTION = record("FullAttentionSpec", block_size=16)


def buffer(*size: int, dtype: str = "int32", **keywords: Value) -> Call:
    arguments = tuple((f"size{axis}", one) for axis, one in enumerate(size))
    given: dict[str, Value] = {"dtype": DType(dtype), "device": Device(), "pin_memory": False}
    return Call(BUFFER, arguments, tuple((given | keywords).items()), bind="buffer")


def uploaded(n: Value) -> tuple[Step, ...]:
    return buffer(3), Call(TO_GPU, (("self", Name("buffer")), ("n", n)))


def without_states() -> Record:
    group = record("KVCacheGroupSpec", layer_names=["layer0"], kv_cache_spec=ATTENTION)
    return record("KVCacheConfig", num_blocks=4, kv_cache_tensors=[], kv_cache_groups=[group])


BAD_CONTEXTS = (
    BadSteps("more drafts than a block has room for", create(replace(SETUP, block_size=2))),
    BadSteps(
        "conv rows without room for the drafts",
        create(replace(SETUP, groups=(Group((Kept("conv", (2, 5)), TEMPORAL)),))),
    ),
    BadSteps(
        "channel-first conv rows without room for the drafts",
        create(replace(CHANNELS_FIRST, groups=(Group((CONV, TEMPORAL)),))),
    ),
    BadSteps(
        "a conv state alone, without room for the drafts",
        create(Setup((Group((Kept("conv", (2, 5)),)),), ("conv",), block_size=4, num_spec=2)),
    ),
    BadSteps(
        "a conv state between others without room for the drafts",
        create(
            Setup(
                (Group((CONV, Kept("conv", (2, 5)), TEMPORAL)),),
                ("conv", "conv", "temporal"),
                block_size=4,
                num_spec=2,
            )
        ),
    ),
    BadSteps("room for no request", create(max_num_reqs=0)),
    BadSteps("no state at all", create(num_state_types=0)),
    BadSteps("a cache without recurrent state", create(kv_cache_config=without_states())),
    BadSteps(
        "an unknown copy function",
        initialize(mamba_state_copy_funcs=(Function("get_conv_copy_spec"), Function("cdiv"))),
    ),
    BadSteps("an unknown layer", initialize(forward_context={})),
    BadSteps(
        "more states than copy functions",
        initialize(mamba_state_copy_funcs=(Function("get_conv_copy_spec"),)),
    ),
    BadSteps(
        "a conv state of two dimensions",
        initialize(forward_context=layers(conv=View("pool0", "uint8", (3, 10), (14, 1)))),
    ),
    BadSteps(
        "a temporal state of one dimension",
        initialize(forward_context=layers(temporal=View("pool0", "uint8", (3,)))),
    ),
    BadSteps(
        "a conv state whose rows lie apart",
        initialize(forward_context=layers(conv=View("pool0", "uint8", (2, 5, 2), (14, 3, 1)))),
    ),
    BadSteps(
        "a temporal state whose rows lie apart",
        initialize(forward_context=layers(temporal=View("pool0", "uint8", (2, 2, 2), (14, 3, 1)))),
    ),
    BadSteps(
        "a conv state with too few rows",
        initialize(forward_context=layers(conv=View("pool0", "uint8", (3, 2, 2), (14, 2, 1)))),
    ),
    BadSteps("no block table", initialize(block_tables=[])),
    BadSteps("a block table too many", initialize(block_tables=[Name("table0"), Name("table0")])),
    BadSteps("a block table of one dimension", initialize(block_tables=[int32([1, 2, 3])])),
    BadSteps("a block table of 64 bits", initialize(block_tables=[int64([[1, 2, 3]])])),
    BadSteps(
        "a block table with gaps in its rows",
        initialize(block_tables=[Tensor("int32", (2, 2), (1,) * 8, (4, 2))]),
    ),
    BadSteps(
        "block tables whose rows are not the same distance apart",
        initialize(TWO_GROUPS, block_tables=[int32([[1, 2, 3]] * 2), int32([[1, 2, 3, 4]] * 2)]),
    ),
)
BAD_LAUNCHES = (
    *(
        BadSteps(f"{name} of {function}", launch(function, num_reqs=number))
        for function in VECTORS
        for name, number in (
            ("a negative number of requests", -1),
            ("more requests than there is room for", 3),
        )
    ),
    *(
        BadSteps(f"{vector} of {function} {kind}", launch(function, **{vector: value}))
        for function, vectors in VECTORS.items()
        for vector in vectors
        for kind, value in BAD_VECTORS.items()
    ),
)
BAD_STEPS = (
    BadSteps(
        "prefix caching is off", preprocess(cache_config=record("CacheConfig", enable_prefix_caching=False))
    ),
    BadSteps("an unknown request", preprocess(requests={"r1": requests_of(STEP.cache, STEP.rows)["r1"]})),
    BadSteps("a request that is not scheduled", preprocess(scheduler_output=scheduler_output(STEP.rows[1:]))),
    BadSteps("an accepted count of 0", with_counts(0, 1, 1)),
    BadSteps("a negative accepted count", with_counts(2, -1, 1)),
    BadSteps("an accepted count above 1 and the drafts", with_counts(2, 4, 1)),
    BadSteps(
        "no token scheduled",
        preprocess(scheduler_output=scheduler_output([replace(row, length=0) for row in STEP.rows])),
    ),
    BadSteps(
        "more rows than there is room for",
        (
            *STEP.cache.steps(),
            Let("state_idx", STEP.state_idx),
            named_counts(),
            copy_buffers(SETUP, 1),
            STEP.preprocess(),
        ),
    ),
    *(
        BadSteps(
            f"{name}{', by pointers' if step.pointers else ''}",
            preprocess(step, requests=with_blocks(step, blocks)),
        )
        for step in (STEP, LISTED)
        for name, blocks in (
            ("a row that ends before the running column", [1]),
            ("a row that ends before the accepted column", []),
            ("a null block where the state comes from", [0, 2, 3, 4]),
            ("a null block where the state goes to", [1, 0, 3, 4]),
        )
    ),
    *(
        BadSteps(
            f"a null block in column {column} of four",
            preprocess(ACROSS, requests=with_blocks(ACROSS, blocks)),
        )
        for column, blocks in ((0, [0, 2, 3, 4, 5]), (1, [1, 0, 3, 4, 5]), (3, [1, 2, 3, 0, 5]))
    ),
    BadSteps(
        "a row that ends before the column that it goes to",
        preprocess(UNSHIFTED, requests=with_blocks(UNSHIFTED, [1])),
    ),
    BadSteps(
        "a row that ends before the accepted column, behind the one that it goes to",
        preprocess(FURTHER, requests=with_blocks(FURTHER, [1, 2])),
    ),
    BadSteps("a shift of channel-first rows by pointers", preprocess(replace(LISTED, setup=CHANNELS_FIRST))),
)
BAD_COPIES = (
    BadSteps("a negative source column", collected(-1, 1)),
    BadSteps("a negative target column", collected(1, -1)),
    BadSteps("a negative bias", collected(0, 1, -1)),
    BadSteps("a source column past the row", collected(4, 1)),
    BadSteps("a target column past the row", collected(1, 4)),
    BadSteps("a bias past the row", collected(2, 1, 2)),
    BadSteps("a null block as source", collected(0, 1, blocks=[0, 2])),
    BadSteps("a null block as target", collected(0, 1, blocks=[1, 0])),
    BadSteps("a null block behind the bias", collected(0, 2, 1, blocks=[1, 0, 3])),
    BadSteps("a block past the pool", collected(0, 1, blocks=[1, 99])),
    BadSteps("a copy without its function", collected(0, 1, copy_funcs=(Function("get_conv_copy_spec"),))),
    BadSteps("a copy of an unknown layer", collected(0, 1, forward_context={})),
    BadSteps("a copy too many", (*collected(0, 1), collected(0, 1)[-1])),
    *(
        BadSteps(f"{name} of entries {kind}", memcpy(**{name: value}))
        for name, wide in (("src_ptrs", True), ("dst_ptrs", True), ("sizes", False))
        for kind, value in (
            ("as a matrix", int64([[0, 0]]) if wide else int32([[0, 0]])),
            ("as floats", Tensor("float32", (2,), (0, 0))),
        )
    ),
    BadSteps("fewer targets than sources", memcpy(dst_ptrs=int64([0]))),
    BadSteps("fewer sizes than sources", memcpy(sizes=int32([0]))),
    BadSteps("addresses of 32 bits", memcpy(dst_ptrs=int32([0, 0]))),
    BadSteps("sizes as floats", memcpy(sizes=Tensor("float32", (2,), (0, 0)))),
    BadSteps(
        "lists for no request",
        (Let("config", SETUP.config(4)), changed(copy_buffers(SETUP, 1), max_num_reqs=0)),
    ),
)
BAD_HOST_CALLS = (
    *(
        BadSteps(f"{name}, {function}", staged(function, **changes))
        for function, name, changes in (
            (STAGE, "a row without a column", {"columns": {"r1": 1}}),
            (STAGE_COLUMNS, "a row without a column", {"columns": {"r1": 1}}),
            (STAGE, "a row that is not scheduled", {"scheduler_output": scheduler_output(STEP.rows[1:])}),
            (
                STAGE_METADATA,
                "a row that is not scheduled",
                {"scheduler_output": scheduler_output(STEP.rows[1:])},
            ),
            (STAGE, "an unknown row", {"requests": requests_of(STEP.cache, STEP.rows[1:])}),
            (STAGE_METADATA, "an unknown row", {"requests": requests_of(STEP.cache, STEP.rows[1:])}),
            (STAGE, "more rows than ids", {"num_reqs": 3}),
            (STAGE_COLUMNS, "more rows than ids", {"num_reqs": 3}),
            (STAGE_METADATA, "a negative number of rows", {"num_reqs": -1}),
        )
    ),
    *(
        BadSteps(f"more rows than the buffers, {function}", staged(function, capacity=1))
        for function in (STAGE, STAGE_COLUMNS, STAGE_METADATA)
    ),
    BadSteps("no context", postprocessed(with_postprocess=False)),
    BadSteps(
        "host counts with too few entries", postprocessed(num_accepted_tokens_cpu_tensor=int32([1]).on_host())
    ),
    *(
        BadSteps(f"host counts {name}", postprocessed(num_accepted_tokens_cpu_tensor=value))
        for name, value in (
            ("of 64 bits", int64([1, 1]).on_host()),
            ("as a matrix", int32([[1, 1], [1, 1]]).on_host()),
        )
    ),
    BadSteps("sampled counts of 64 bits", postprocessed(num_accepted_tokens_gpu=int64([3, 1]))),
    BadSteps("no group with states", groups(ATTENTION)),
    BadSteps("groups with different block sizes", groups(SPEC, with_fields(SPEC, block_size=8))),
    BadSteps("groups with different drafts", groups(SPEC, with_fields(SPEC, num_speculative_blocks=1))),
    BadSteps("groups with different modes", groups(SPEC, with_fields(SPEC, mamba_cache_mode="none"))),
    BadSteps("a NumPy view of a type that NumPy does not have", (buffer(3, dtype="bfloat16"),)),
    BadSteps("more rows than a buffer has", uploaded(4)),
    BadSteps("a negative number of rows of a buffer", uploaded(-1)),
)
BAD_INPUTS = (*BAD_CONTEXTS, *BAD_LAUNCHES, *BAD_STEPS, *BAD_COPIES, *BAD_HOST_CALLS)


@prop(
    "bad-input/align-mode",
    "refusal",
    *sorted({bad.call.function for bad in BAD_INPUTS}),
    bad=st.sampled_from(BAD_INPUTS),
)
def test_bad_input_of_align_mode_is_refused_by_name_before_anything_is_written(
    trial: Trial, bad: BadSteps
) -> None:
    """A `ValueError` names the argument, the value and the rule; no memory and no dict has changed."""
    before, last = bad.steps[:-1], bad.call
    if any(isinstance(step, Call) for step in before):
        trial.agrees(*before)
        trial.refuses(last)
    else:
        trial.refuses(*before, last)


@written_examples(
    "bad_input_of_align_mode_is_refused_by_name_before_anything_is_written",
    "bad",
    BAD_INPUTS,
    lambda bad: bad.name,
)
def test_each_bad_input_of_align_mode_is_refused(trial: Bench, bad: BadSteps) -> None:
    refusal = PROPERTIES["bad_input_of_align_mode_is_refused_by_name_before_anything_is_written"]
    refusal.example(trial, bad=bad)


ROW_DEFECTS = ("count", "length", "unknown", "not scheduled", "blocks")


def one_bad_row(step: RunnerStep, row: int, defect: str) -> list[Step]:
    """Preprocess of `step` after something about one of its rows has been made wrong."""
    name, output, known = step.rows[row].id, step.output, requests_of(step.cache, step.rows)
    lengths = dict(output["num_scheduled_tokens"])
    named = step.prepared()
    match defect:
        case "count":
            counts = [*step.accepted().values()]
            counts[row] = 0
            named.append(Let("accepted", int32(counts).on_host()))
        case "length":
            lengths[name] = 0
        case "unknown":
            del known[name]
        case "not scheduled":
            del lengths[name]
        case "blocks":
            known[name] = with_fields(known[name], block_ids=[[0] * 9 for _ in known[name]["block_ids"]])
    output = with_fields(output, num_scheduled_tokens=lengths)
    return [*named, step.preprocess(scheduler_output=output, requests=known)]


@prop(
    "preprocess/bad-row",
    "refusal",
    PREPROCESS,
    COPY_BUFFERS,
    step=runner_steps(),
    row=st.integers(0, 3),
    defect=st.sampled_from(ROW_DEFECTS),
)
def test_a_step_with_one_bad_row_changes_nothing_for_any_row(
    trial: Trial, step: RunnerStep, row: int, defect: str
) -> None:
    assume(row < len(step.requests))
    assume(defect != "blocks" or step.requests[row].moves(step.setup.block_size))
    *named, last = one_bad_row(step, row, defect)
    trial.agrees(*named)
    trial.refuses(last)


@prop(
    "copy-meta/bad-column",
    "refusal",
    COLLECT,
    COPY_BUFFERS,
    columns=st.permutations(range(4)),
    defect=st.sampled_from(("src_col", "dst_col", "bias", "null source", "null target")),
    by=st.integers(1, 3),
    below=st.booleans(),
)
def test_columns_and_blocks_that_a_request_does_not_have_are_never_written_down(
    trial: Trial, columns: list[int], defect: str, by: int, below: bool
) -> None:
    move, blocks = {"src_col": columns[0], "dst_col": columns[1], "bias": 0}, [1, 2, 3, 4]
    if defect in move:
        beyond = 3 + by - (columns[0] if defect == "bias" else 0)
        move[defect] = -by if below else beyond
    else:
        blocks[columns[0] if defect == "null source" else columns[1]] = -by if below else 0
    *named, last = collected(move["src_col"], move["dst_col"], move["bias"], blocks)
    trial.agrees(*named)
    trial.refuses(last)


@prop(
    "align-context/no-room-for-drafts",
    "refusal",
    CREATE,
    COPY_BUFFERS,
    BUFFERS,
    block_size=st.integers(1, 4),
    num_spec=st.integers(0, 4),
    rows=st.integers(1, 5),
    layout=st.sampled_from(("SD", "DS")),
)
def test_drafts_that_a_block_or_a_window_has_no_room_for_are_refused(
    trial: Trial, block_size: int, num_spec: int, rows: int, layout: str
) -> None:
    """Two boundaries in one step, or tokens that no conv row is left for, could not be distinguished later."""
    conv = Kept("conv", (rows, 2) if layout == "SD" else (2, rows))
    setup = Setup((Group((conv, TEMPORAL)),), ("conv", "temporal"), block_size, num_spec, layout)
    made = setup.create(2), copy_buffers(setup, 2), buffers(setup, 2)
    trial.agrees(Let("config", setup.config(4)), *made)
