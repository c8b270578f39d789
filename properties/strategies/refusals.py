"""Bad input: for each documented function a call that is in order, and the values that it refuses, one at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter

from properties.strategies.align.batches import (
    RUN_FUSED_POSTPROCESS,
    RUN_FUSED_POSTPROCESS_ALIGN,
    RUN_FUSED_PRECOPY,
    BatchAfterForward,
    BatchBeforeForward,
)
from properties.strategies.align.pointers import MEMCPY, collect
from properties.strategies.align.requests import RequestAfterStep, RequestBeforeStep
from properties.strategies.align.runner import (
    STAGE,
    STAGE_COLUMNS,
    STAGE_METADATA,
    STAGING,
    RunnerStep,
    Scheduled,
    buffers,
    copy_buffers,
    postprocess,
    requests_of,
    scheduler_output,
    stage,
)
from properties.strategies.align.setup import Group, Kept, Setup
from properties.strategies.batch import Batch, BlockTable, RequestRow, metadata
from properties.strategies.builders import BuildCall, BuilderSetup, StepRequest, captured_step
from properties.strategies.layout import LAYOUT_VARIABLE, Copy, PaddedState
from properties.strategies.shapes import ShapeArguments
from statecheck.case.failure import brief
from statecheck.case.values import (
    Attribute,
    Call,
    Device,
    DType,
    Function,
    Let,
    Name,
    Record,
    Rows,
    Step,
    Tensor,
    Value,
    View,
    boolean,
    call,
    int32,
    int64,
    record,
)

Steps = tuple[Step, ...]
Bad = Value | Callable[[Value], Value]
"""A value, or what makes one from the value that is in order."""


@dataclass(frozen=True, repr=False)
class BadInput:
    """Steps that end with a call with one bad argument, and the only device on which it is refused, if there is one.

    `form`: the argument is of another type than the documented one, apart from numbers; plain functions are handed no such thing.
    """

    name: str
    steps: Steps
    device: str | None = None
    form: bool = False

    @property
    def call(self) -> Call:
        assert isinstance(self.steps[-1], Call)
        return self.steps[-1]

    def __repr__(self) -> str:
        # The steps are in the case. Those of some thirty rows would be 100 kB of text; Hypothesis warns of more than 30 kB.
        name = self.name if len(self.name) <= 100 else f"{self.name[:100]}…"
        return f"BadInput({name!r})"

    def _repr_pretty_(self, printer: RepresentationPrinter, _cycle: bool) -> None:
        printer.text(repr(self))


def bad_inputs(
    steps: Steps | Call, values: Mapping[str, Sequence[Bad]], *, about: str = "", device: str | None = None
) -> Iterator[BadInput]:
    """The steps with each bad value in turn.

    Args:
        values: by path, such as "common_attn_metadata.seq_lens" for a field of the last call's argument; a path that begins with no
            argument of this call is what an earlier step names.
        about: what the steps are about, where several have the same call.
    """
    whole = (steps,) if isinstance(steps, Call) else steps
    for path, bads in values.items():
        for bad in bads:
            changed = with_value(whole, path, bad)
            shown = bad.__name__.replace("_", " ") if callable(bad) else f"= {brief(bad)}"
            last = changed[-1]
            assert isinstance(last, Call)
            name = f"{last.function}{about and f', {about}'}: {path} {shown}"
            form = _form(_value_at(changed, path)) != _form(_value_at(whole, path))
            yield BadInput(name, changed, device, form)


def with_value(steps: Steps, path: str, bad: Bad) -> Steps:
    """The steps with another value at a path, see `bad_inputs`."""
    first, *rest = path.split(".")
    *before, last = steps
    assert isinstance(last, Call)
    if first in last.named:
        changed = _changed(last.named[first], rest, bad)
        return *before, with_arguments(last, **{first: changed})
    return tuple(
        replace(step, value=_changed(step.value, rest, bad))
        if isinstance(step, Let) and step.name == first
        else step
        for step in steps
    )


def _value_at(steps: Steps, path: str) -> Value:
    first, *rest = path.split(".")
    named = {step.name: step.value for step in steps if isinstance(step, Let)}
    last = steps[-1]
    assert isinstance(last, Call)
    value = (named | last.named)[first]
    for name in rest:
        value = value[int(name)] if isinstance(value, list | tuple) else value[name]
    return value


def _form(value: Value) -> object:
    """The same for values of one documented type; bools and floats are numbers."""
    if isinstance(value, Tensor):
        return (value.dtype, len(value.shape), value.strides is None, value.on)
    return "number" if isinstance(value, int | float) else type(value)


def with_arguments(last: Call, **changes: Value) -> Call:
    """The call with other arguments; those that it does not have become keywords."""
    arguments, keywords = dict(last.arguments), dict(last.keywords)
    for name, value in changes.items():
        (arguments if name in arguments else keywords)[name] = value
    return replace(last, arguments=tuple(arguments.items()), keywords=tuple(keywords.items()))


def _changed(held: Value, path: Sequence[str], bad: Bad) -> Value:
    if not path:
        return bad(held) if callable(bad) else bad
    first, *rest = path
    if isinstance(held, Record):
        fields = dict(held.fields)
        return replace(held, fields=tuple((fields | {first: _changed(fields[first], rest, bad)}).items()))
    if isinstance(held, dict):
        return held | {first: _changed(held[first], rest, bad)}
    items = list(held)
    items[int(first)] = _changed(items[int(first)], rest, bad)
    return type(held)(items)


def as_a_list(tensor: Any) -> Value:
    return list(tensor.elements or ())


def of_floats(tensor: Any) -> Value:
    return replace(tensor, dtype="float32")


def with_a_dimension_too_many(tensor: Any) -> Value:
    return replace(tensor, shape=(1, *tensor.shape), strides=None)


def on_the_device(tensor: Any) -> Value:
    return replace(tensor, on="device")


FORMS: tuple[Bad, ...] = (as_a_list, of_floats, with_a_dimension_too_many)
"""Tensors of integers that are refused."""


# A table: a row keeps its line.
# fmt: off
# Numbers, pages and shapes.

def numbers() -> Iterator[BadInput]:
    yield from bad_inputs(call("cdiv", x=4, y=2), {"x": (True, 2.5), "y": (True, 2.5, 0, int32([2]))})
    tensor = call("cdiv", x=int32([0, 2, 5]), y=2)
    yield from bad_inputs(tensor, {"x": (of_floats,), "y": (2**31, -(2**31) - 1, 2**64)})
    yield from bad_inputs(call("cdiv", x=int32([]), y=2), {"y": (0,)}, about="no element")
    yield from bad_inputs(call("divide", x=4, y=2), {"x": (True, 5), "y": (True, 0)})
    yield from bad_inputs(call("divide", x=1, y=-1), {"y": (-2,)}, about="a negative remainder")

def pages() -> Iterator[BadInput]:
    spec: dict[str, Value] = {"block_size": 4, "shapes": ((2, 3),), "dtypes": (DType("float32"),)}
    page = call("MambaSpec.page_size_bytes.fget", self=record("MambaSpec", **spec, page_size_padded=99))
    yield from bad_inputs(page, {"self.page_size_padded": (True, 0, 23), "self.dtypes": ((),), "self.shapes.0.1": (True, 0)})
    spec |= {"mamba_cache_mode": "all", "num_speculative_blocks": 1}
    config = record("VllmConfig", model_config=record("ModelConfig", max_model_len=9))
    memory = call("MambaSpec.max_memory_usage_bytes", self=record("MambaSpec", **spec), vllm_config=config)
    yield from bad_inputs(memory, {"self.block_size": (True, 0), "self.num_speculative_blocks": (True, -1), "self.mamba_cache_mode": ("aligned",)})

GDN = {"head_k_dim": 4, "head_v_dim": 4, "conv_kernel_size": 4}
MAMBA2 = {"intermediate_size": 8, "head_dim": 2, "state_size": 4, "conv_kernel": 4}
SHAPES = (
    ("linear_attention_state_shape", {"num_heads": 2, "head_dim": 4}, {"num_heads": (True, 3)}),
    ("mamba1_state_shape", {"intermediate_size": 4, "state_size": 2, "conv_kernel": 4}, {"intermediate_size": (True, 3), "conv_kernel": (1,)}),
    ("mamba2_state_shape", {"n_groups": 2, "num_heads": 8, **MAMBA2}, {"num_heads": (3,), "n_groups": (True, 3), "conv_kernel": (1,), "num_spec": (True, -1)}),
    ("short_conv_state_shape", {"intermediate_size": 4, "conv_kernel": 4}, {"intermediate_size": (True, 3), "conv_kernel": (1,), "num_spec": (-1,)}),
    (
        "gated_delta_net_state_shape",
        {"num_k_heads": 2, "num_v_heads": 2, **GDN},
        {"num_k_heads": (True, 1), "num_v_heads": (3,), "conv_kernel_size": (1,), "num_spec": (-1,)},
    ),
    ("kda_state_shape", {"num_heads": 2, "head_dim": 4, "conv_kernel_size": 4}, {"num_heads": (True, 3), "conv_kernel_size": (1,), "num_spec": (-1,)}),
)
"""Families of layers, their arguments on two ranks, and bad values of these."""

def shapes() -> Iterator[BadInput]:
    for family, arguments, values in SHAPES:
        shape = ShapeArguments(family, tuple(arguments.items()), 2)
        yield from bad_inputs(shape.call(), {shape.tp_argument: (True, 0), **values})
    replicated = call("MambaStateShapeCalculator.extra_groups_for_head_shards", ngroups=2, tp_size=2)
    yield from bad_inputs(replicated, {"ngroups": (True, 3), "tp_size": (True, 0)})

# Chunks, batches and copies.

STARTS = int32([0, 2, 5])
STEP_BACK = int32([0, 5, 3, 9])
"""The last start is the largest all the same."""

def chunks() -> Iterator[BadInput]:
    yield from bad_inputs(call("compute_varlen_chunk_metadata", query_start_loc=STARTS, chunk_size=4), {
        "query_start_loc": (*FORMS, Tensor("bool", (2,), (0, 1)), int32([]), int32([1, 5]), int32([0, 5, 3]), STEP_BACK, Tensor("int64", (2,), (0, 2**31))),
        "chunk_size": (True, 2.5, 0, -4),
    })
    conv = Call("compute_causal_conv1d_metadata", (("query_start_loc_p_cpu", STARTS.on_host()),), (("device", Device()),))
    yield from bad_inputs(conv, {"query_start_loc_p_cpu": (*FORMS, int32([]).on_host(), STEP_BACK.on_host())})
    yield from bad_inputs(conv, {"query_start_loc_p_cpu": (on_the_device,)}, device="cuda")
    for function in ("prepare_chunk_indices", "prepare_chunk_offsets"):
        yield from bad_inputs(call(function, cu_seqlens=STARTS, chunk_size=64), {"cu_seqlens": (*FORMS, int32([]), STEP_BACK), "chunk_size": (True, 0)})

COMMON = "common_attn_metadata"
STARTS_ON_HOST, MARKS = f"{COMMON}.query_start_loc_cpu", f"{COMMON}.is_prefilling"
BATCH = Batch((RequestRow(1, 3), RequestRow(5, 0, prefilling=True)))
TABLE = BlockTable(((1, 2),), (5,), block_size=4, width=2)

def batches() -> Iterator[BadInput]:
    split = Call("split_decodes_and_prefills", ((COMMON, metadata(BATCH)),), (("decode_threshold", 1), ("treat_short_extends_as_decodes", False)))
    yield from bad_inputs(split, {
        STARTS_ON_HOST: (*FORMS, *(int32(starts).on_host() for starts in ([0, 5, 1], [1, 2, 6], [0, 1]))),
        f"{COMMON}.max_query_len": (4,),
        f"{COMMON}.num_actual_tokens": (5,),
        MARKS: (*FORMS, None, boolean([True]).on_host()),
        "decode_threshold": (True, 0),
    })
    yield from bad_inputs(split, {STARTS_ON_HOST: (on_the_device,), MARKS: (on_the_device,)}, device="cuda")
    owner = metadata(BATCH)
    yield from bad_inputs(Call("CommonAttentionMetadata.compute_num_computed_tokens", (("self", owner),)), {"self.query_start_loc": FORMS, "self.seq_lens": (*FORMS, int32([4]))})
    yield from bad_inputs(Call("CommonAttentionMetadata.naive_query_lens", (("self", owner),)), {"self.query_start_loc": (*FORMS, int32([]))})

def block_tables() -> Iterator[BadInput]:
    def on_host(table: BlockTable) -> Call:
        """Lengths on a device are not read before the launch."""
        whole = table.call()
        tensors = {name: value for name, value in whole.named.items() if isinstance(value, Tensor)}
        return with_arguments(whole, **{name: value.on_host() for name, value in tensors.items()})

    yield from bad_inputs(TABLE.call(), {
        "block_table": (*FORMS, int32([1, 2])),
        "seq_lens": (*FORMS, int32([5, 5])),
        "kv_cache_spec.block_size": (True, 0),
        "kv_cache_spec.num_speculative_blocks": (True, -1, 2, 3),
        "mamba_cache_mode": ("aligned",),
    })
    yield from bad_inputs(on_host(TABLE), {"seq_lens": (int32([9]).on_host(),)})
    bounded = replace(TABLE, width=3, rows=((1, 2, 3),), num_speculative_blocks=1)
    yield from bad_inputs(bounded.call(max_seq_len=8), {"max_seq_len": (9,)})
    two_rows = replace(bounded, rows=((1, 2, 3), (4, 5, 6)), seq_lens=(8, 8))
    yield from bad_inputs(on_host(two_rows), {"seq_lens": (int32([8, 9]).on_host(),)})
    bare = BlockTable(((1,),), (0,), block_size=4, width=1, num_speculative_blocks=1)
    yield BadInput("a bound of a table without a column beside its drafts", (bare.call(max_seq_len=0),))

CONV_COPY, TEMPORAL_COPY = "get_conv_copy_spec", "get_temporal_copy_spec"

def copies() -> Iterator[BadInput]:
    copy = Copy(PaddedState(4, (3, 2)), (1, 2))
    pools = tuple(Tensor("float32", shape, None) for shape in ((0, 3, 2), (1, 3, 2)))
    apart = tuple(Tensor("float32", (blocks, 3, 2), None, (12, 4, 1)) for blocks in (1, 4))
    values: dict[str, Sequence[Bad]] = {"cur_block_idx": (True, -1, 2), "num_accepted_tokens": (True, 0, 3), "block_ids": ([4, 2], [0, 2], [-1, 2])}
    for function, short in ((CONV_COPY, (4, 6)), (TEMPORAL_COPY, (4,))):
        states = [[[1.0]]] * 3, Tensor("float32", short, None), *pools
        yield from bad_inputs(copy.call(function), {**values, "state": states})
        yield from bad_inputs(copy.call(function), {"state": apart}, about="rows that lie apart")
    longer = replace(copy, block_ids=(1, 2, 3, 1))
    yield from bad_inputs(longer.call(CONV_COPY), {"num_accepted_tokens": (4,)}, about="three stored rows")
    for layout in ("NHD", "sd"):
        for function in ("get_conv_state_layout", "is_conv_state_dim_first"):
            name = f"{function}: {LAYOUT_VARIABLE} = {layout}"
            yield BadInput(name, (call(function, environment={LAYOUT_VARIABLE: layout}),))

# Builders.

COUNTS, DRAFTS = "num_accepted_tokens", "num_decode_draft_tokens_cpu"
BOUNDS = f"{COMMON}.seq_lens_cpu_upper_bound"
SETUPS = {"mamba1": BuilderSetup("mamba1"), "mamba2": BuilderSetup("mamba2", num_spec=2), "gdn": BuilderSetup("gdn", num_spec=2)}
DECODE, DRAFTED, PROMPT = StepRequest(1, 4), StepRequest(3, 4, drafts=2), StepRequest(5, 0, prefilling=True)
STEP_OF_TWO = BuildCall((DECODE, PROMPT))

def built(setup: BuilderSetup, *rows: StepRequest, **about: Any) -> Steps:
    """A builder, and a step of it; of a decode and a prompt where no rows are given."""
    return setup.construct(), replace(BuildCall(rows or STEP_OF_TWO.requests), **about).build(setup)

def constructions() -> Iterator[BadInput]:
    spec, config = "kv_cache_spec", "vllm_config"
    for kind, setup in SETUPS.items():
        yield from bad_inputs(setup.construct(), {
            f"{spec}.block_size": (True, 0),
            f"{spec}.num_speculative_blocks": (True, setup.num_spec - 1),
            f"{config}.cache_config.mamba_cache_mode": ("aligned", *(("all",) if kind == "gdn" else ())),
            f"{config}.scheduler_config.max_num_seqs": (True, 0),
        })
        if kind != "gdn":
            in_all = replace(setup, mode="all").construct()
            yield from bad_inputs(in_all, {f"{config}.model_config.max_model_len": (True, 0)})
    yield BadInput("a draft of Mamba-1", (replace(SETUPS["mamba1"], num_spec=1).construct(),))
    for size in (None, True, 2.5, 0):
        yield BadInput(f"chunks of {size}", (replace(SETUPS["mamba2"], chunk_size=size).construct(),))  # type: ignore[arg-type]

def builds() -> Iterator[BadInput]:
    for kind, setup in SETUPS.items():
        empty = StepRequest(0), DECODE
        yield BadInput(f"an empty row before another, {kind}", built(setup, *empty))
    for kind in ("mamba2", "gdn"):
        setup = SETUPS[kind]
        forms: tuple[Bad, ...] = FORMS if kind == "gdn" else ()
        values: dict[str, Sequence[Bad]] = {
            STARTS_ON_HOST: (*forms, *(int32(starts).on_host() for starts in ([0, 1], [0, 6, 1]))),
            f"{COMMON}.seq_lens": (*forms, int32([5])),
            f"{COMMON}.block_table_tensor": (*forms, int32([[1] * 11])),
            MARKS: (*forms, boolean([False]).on_host()),
            BOUNDS: (*forms, int32([5]).on_host(), int32([5, 4]).on_host()),
            f"{COMMON}.max_query_len": (True, 4),
            f"{COMMON}.num_actual_tokens": (True, 5),
            COUNTS: (*forms, int32([])),
        }
        places = dict.fromkeys((STARTS_ON_HOST, MARKS, BOUNDS), (on_the_device,))
        if kind == "gdn":
            values[DRAFTS] = (*forms, int32([-1]).on_host())
            places[DRAFTS] = (on_the_device,)
        yield from bad_inputs(built(setup), values)
        yield from bad_inputs(built(setup), places, device="cuda")
    yield BadInput("a prompt whose length only the device knows", built(SETUPS["mamba2"], bounds=False), "cuda")
    yield BadInput("decodes under speculation without counts", built(SETUPS["mamba2"], DECODE, DECODE, counts=False))

def drafted_builds() -> Iterator[BadInput]:
    gdn = SETUPS["gdn"]
    yield BadInput("more drafts than there may be", built(gdn, replace(DRAFTED, drafts=3)))
    yield BadInput("more tokens and drafts than there may be", built(gdn, StepRequest(4, 4, drafts=3)))
    yield BadInput("drafts below -1", built(gdn, replace(DRAFTED, drafts=-2)))
    yield BadInput("drafts that are not all tokens but one", built(gdn, replace(DRAFTED, drafts=1)))
    yield BadInput("drafts without counts", built(gdn, DRAFTED, counts=False))

def narrow_tables() -> Iterator[BadInput]:
    """Tables with a column too few for the states of a row, or for its tokens where the lengths lie on the host."""
    lengthy = BuildCall((StepRequest(1, 4), StepRequest(1, 3)), host_lengths=True)
    for kind, plain in SETUPS.items():
        for mode, spare in (("none", 0), ("align", 1)):
            setup = replace(plain, mode=mode, spare_blocks=spare, full_cudagraphs=True)
            states = 1 + setup.num_spec + spare
            steps = setup.construct(), STEP_OF_TWO.build(setup)
            yield from _with_columns(steps, states - 1, f"{kind}, mode {mode}, {spare} spare")
            if mode == "align":
                lengths = setup.construct(), lengthy.build(setup)
                yield from _with_columns(lengths, states, f"{kind}, {spare} spare, a token too many", "cpu")
    for kind in ("mamba1", "mamba2"):
        for mode, columns in (("none", 0), ("align", 1)):
            setup = replace(SETUPS[kind], num_spec=0, mode=mode)
            updated = setup.construct(), lengthy.build(setup), STEP_OF_TWO.update(setup)
            yield from _with_columns(updated, columns, f"mode {mode}", "cpu")

def _with_columns(steps: Steps, columns: int, about: str, device: str | None = None) -> Iterator[BadInput]:
    last = steps[-1]
    path = f"{COMMON}.block_table_tensor" if isinstance(last, Call) and COMMON in last.named else "blk_table"
    table = Tensor("int32", (2, columns), (1,) * (2 * columns))
    yield from bad_inputs(steps, {path: (table,)}, about=about, device=device)

def counts_on_the_host() -> Iterator[BadInput]:
    """Counts that a builder reads, because they lie on the host: on a GPU, it does not wait for them."""
    lost = {"marks": False, "bounds": False}
    for name, kind, rows, about in (
        ("an accepted count of 0", "mamba2", [replace(DECODE, accepted=0)], {}),
        ("an accepted count above 1 and the drafts", "gdn", [replace(DRAFTED, accepted=4)], {}),
        *(
            (f"an accepted count of {accepted} between others", kind, [row, replace(row, accepted=accepted, drafts=drafts), row], {})
            for kind, row, drafts in (("mamba2", DECODE, -1), ("gdn", DRAFTED, 2))
            for accepted in (0, 4)
        ),
        ("a lost count of a decode without drafts", "gdn", [replace(DECODE, accepted=2), DECODE], lost),
        ("a lost count of a prompt", "gdn", [replace(PROMPT, num_computed=4, accepted=2)], {}),
        ("a decode by its length without computed tokens", "mamba1", [StepRequest(1)], lost),
        ("a draft without computed tokens", "gdn", [StepRequest(2, drafts=1), DECODE], lost),
        ("a decode without computed tokens", "gdn", [StepRequest(1, drafts=0), DECODE], lost),
    ):
        yield BadInput(f"{name}, {kind}", built(SETUPS[kind], *rows, host_lengths=True, **about), "cpu")

def captures_and_updates() -> Iterator[BadInput]:
    for kind, setup in SETUPS.items():
        small = replace(setup, full_cudagraphs=True, max_num_seqs=1)
        rows = small.capture_rows
        large = small.construct(), captured_step(small, rows + 1, 0)
        yield BadInput(f"a graph of more rows than there may be, {kind}", large)
        roomy = replace(small, max_num_seqs=2)
        long = captured_step(replace(roomy, num_spec=roomy.num_spec + 1), 1, 0)
        yield BadInput(f"a graph of longer queries than decodes have, {kind}", (roomy.construct(), long))
    gdn = replace(SETUPS["gdn"], full_cudagraphs=True, max_cudagraph_capture_size=2)
    full = gdn.construct(), captured_step(gdn, 1, 0)
    yield BadInput("a graph of more tokens than there may be, gdn", full)
    for kind in ("mamba1", "mamba2"):
        setup = replace(SETUPS[kind], num_spec=0)
        columns = STEP_OF_TWO.block_table(setup).shape[1]
        updated = setup.construct(), STEP_OF_TWO.build(setup), STEP_OF_TWO.update(setup)
        yield from bad_inputs(updated, {"blk_table": (*FORMS, int32([[1] * columns]))})
    setup = SETUPS["mamba2"]
    updated = setup.construct(), STEP_OF_TWO.build(setup), STEP_OF_TWO.update(setup)
    yield BadInput("another table under speculation", updated)

# Align mode: contexts and launches.

CONV, TEMPORAL = Kept("conv", (5, 2)), Kept("temporal", (2, 2))
SETUP = Setup((Group((CONV, TEMPORAL)),), ("conv", "temporal"), block_size=4, num_spec=2)
TWO_GROUPS = replace(SETUP, groups=SETUP.groups * 2)
CHANNELS_FIRST = replace(SETUP, groups=(Group((Kept("conv", (2, 5)), TEMPORAL)),), layout="DS")
AFTER = BatchAfterForward(SETUP, (RequestAfterStep(3, 3, 2, 3), RequestAfterStep(10, 1)))
BEFORE = BatchBeforeForward(SETUP, (RequestBeforeStep(3, 4, 2), RequestBeforeStep(10, 1)))
ATTENTION = record("FullAttentionSpec", block_size=16)
SPEC: Record = SETUP.config(4)["kv_cache_groups"][0]["kv_cache_spec"]

def create(setup: Setup = SETUP) -> Steps:
    return Let("config", setup.config(4)), setup.create(2)

def initialize(setup: Setup = SETUP, **changes: Value) -> Steps:
    return *replace(AFTER, setup=setup).prepared()[:-1], setup.initialize(**changes)

def layers(**views: Value) -> dict[str, Value]:
    """The layers of SETUP with another `conv` or `temporal` view."""
    plain = SETUP.forward_context(3)["layer0"]["kv_cache"]
    kept = dict(zip(("conv", "temporal"), plain, strict=True)) | views
    return {"layer0": record("Layer", kv_cache=list(kept.values()))}

def lists(setup: Setup = SETUP) -> Steps:
    return Let("config", setup.config(4)), copy_buffers(setup, 1)

def config_of(*specs: Record) -> Record:
    """A cache of groups with these specifications."""
    found = [record("KVCacheGroupSpec", layer_names=[f"layer{number}"], kv_cache_spec=spec) for number, spec in enumerate(specs)]
    return record("KVCacheConfig", num_blocks=4, kv_cache_tensors=[], kv_cache_groups=found)

TABLES = (int64([[1, 2, 3, 4]] * 2), int32([1, 2, 3, 4]), Tensor("int32", (2, 2), (1,) * 8, (4, 2)))
"""Block tables of 64 bits, of one dimension, and with gaps in their rows."""
TWO_WIDTHS = int32([[1, 2, 3]] * 2), int32([[1, 2, 3, 4]] * 2)

def contexts() -> Iterator[BadInput]:
    few_rows = Group((Kept("conv", (2, 5)), TEMPORAL))
    cramped = {
        "more drafts than a block has room for": replace(SETUP, block_size=2),
        "conv rows without room for the drafts": replace(SETUP, groups=(few_rows,)),
        "channel-first conv rows without room for the drafts": replace(CHANNELS_FIRST, groups=(Group((CONV, TEMPORAL)),)),
        "conv rows of a state between others without room for the drafts": replace(
            SETUP, groups=(Group((CONV, Kept("conv", (2, 5)), TEMPORAL)),), kinds=("conv", "conv", "temporal")
        ),
    }
    for name, setup in cramped.items():
        for made in (create(setup), lists(setup)):
            yield BadInput(f"{made[-1].function}: {name}", made)  # type: ignore[union-attr]
    yield from bad_inputs(create(), {"max_num_reqs": (True, 0), "num_state_types": (True, 0), "config": (config_of(ATTENTION),)})
    yield from bad_inputs(lists(), {"max_num_reqs": (True, 0), "copy_funcs": ((),)})
    setups = replace(SETUP, num_spec=1), replace(SETUP, block_size=8)
    others = [setup.config(4)["kv_cache_groups"][0]["kv_cache_spec"] for setup in setups]
    others.append(replace(SPEC, fields=tuple((dict(SPEC.fields) | {"mamba_cache_mode": "none"}).items())))
    yield from bad_inputs(call("get_mamba_groups", kv_cache_config=SETUP.config(4)), {"kv_cache_config": (config_of(ATTENTION), *(config_of(SPEC, other) for other in others))})

def initializations() -> Iterator[BadInput]:
    conv = Function(CONV_COPY)
    views = (
        {"conv": View("pool0", "uint8", (3, 10), (14, 1))},
        {"temporal": View("pool0", "uint8", (3,))},
        {"conv": View("pool0", "uint8", (2, 5, 2), (14, 3, 1))},
        {"temporal": View("pool0", "uint8", (2, 2, 2), (14, 3, 1))},
        {"conv": View("pool0", "uint8", (3, 2, 2), (14, 2, 1))},
    )
    yield from bad_inputs(initialize(), {
        "mamba_state_copy_funcs": ((conv, Function("cdiv")), (conv,)),
        "forward_context": ({}, *(layers(**view) for view in views)),
        "block_tables": ([], [Name("table0")] * 2, *([table] for table in TABLES)),
    })
    yield from bad_inputs(initialize(TWO_GROUPS), {"block_tables": (list(TWO_WIDTHS),)})

VECTORS = {
    RUN_FUSED_POSTPROCESS: ("num_accepted_tokens_gpu", "mamba_state_idx_gpu", "num_scheduled_tokens_gpu", "num_computed_tokens_gpu", "num_draft_tokens_gpu"),
    RUN_FUSED_POSTPROCESS_ALIGN: ("num_accepted_tokens_gpu", "state_idx_gpu", "new_num_computed_tokens_gpu", "idx_mapping"),
    RUN_FUSED_PRECOPY: ("state_idx_gpu", "src_col_gpu", "token_bias_gpu", "idx_mapping"),
}
GAPS = Tensor("int32", (2,), (1, 0, 1), (2,))
NO_VECTORS: tuple[Bad, ...] = (GAPS, int32([1]), int64([1, 1]), int32([[1, 1]]), [1, 1])

def launch(function: str, **changes: Value) -> Steps:
    batch = BEFORE if function == RUN_FUSED_PRECOPY else AFTER
    launched = {
        RUN_FUSED_POSTPROCESS: AFTER.postprocess_by_row, RUN_FUSED_POSTPROCESS_ALIGN: AFTER.postprocess_by_slot, RUN_FUSED_PRECOPY: BEFORE.precopy_by_slot,
    }
    *before, last = launched[function]()
    assert isinstance(last, Call)
    return *batch.prepared(), *before, with_arguments(last, **changes)

def launches() -> Iterator[BadInput]:
    for function, (first, *others) in VECTORS.items():
        values = {"num_reqs": (True, -1, 3), first: NO_VECTORS, **dict.fromkeys(others, (GAPS,))}
        yield from bad_inputs(launch(function), values)

# Align mode: the runner.

STEP = RunnerStep(SETUP, (RequestBeforeStep(3, 4, 2), RequestBeforeStep(10, 1)), spare=1)
LISTED = replace(STEP, pointers=True)
ROWS = requests_of(STEP.cache, STEP.rows)

def preprocess(step: RunnerStep = STEP) -> Steps:
    return *step.prepared(), step.preprocess()

def preprocesses() -> Iterator[BadInput]:
    # Columns of requests that are gone are remembered until the step is accepted.
    yield from bad_inputs(preprocess(replace(STEP, gone=("finished", "preempted"))), {
        "cache_config.enable_prefix_caching": (False,),
        "requests": ({"r1": ROWS["r1"]},),
        "requests.r0.num_computed_tokens": (True, -1),
        "requests.r1.num_computed_tokens": (-1,),
        "requests.r0.block_ids": ([],),
        "scheduler_output": (scheduler_output(STEP.rows[1:]),),
        "scheduler_output.num_scheduled_tokens": ({"r0": True, "r1": 1}, {"r0": 0, "r1": 0}),
        "input_batch.req_ids": (["r0", "r0"],),
        "input_batch.block_table": tuple(_tables(table) for table in TABLES),
        "state_idx": ({"r0": -2, "r1": 1},),
        "accepted": tuple(int32(counts).on_host() for counts in ([0, 1, 1], [2, -1, 1], [2, 4, 1], [2, 1, 1][:1])),
    })
    two_groups = preprocess(replace(STEP, setup=TWO_GROUPS))
    yield from bad_inputs(two_groups, {"input_batch.block_table": (_tables(*TWO_WIDTHS),)})
    *before, _, last = preprocess()
    yield BadInput("preprocess_mamba: more rows than there is room for", (*before, copy_buffers(SETUP, 1), last))
    blocks = "requests.r0.block_ids.0"
    for name, step in (("tables", STEP), ("pointers", LISTED)):
        yield from bad_inputs(preprocess(step), {blocks: ([1], [], [0, 2, 3, 4], [1, 0, 3, 4])}, about=name)
    across = replace(LISTED, requests=(RequestBeforeStep(3, 12, 2), RequestBeforeStep(10, 1)))
    nulls = [0, 2, 3, 4, 5], [1, 0, 3, 4, 5], [1, 2, 3, 0, 5]
    yield from bad_inputs(preprocess(across), {blocks: nulls}, about="four columns")
    unshifted = replace(STEP, requests=(RequestBeforeStep(4, 4), RequestBeforeStep(10, 1)))
    yield from bad_inputs(preprocess(unshifted), {blocks: ([1],)}, about="no draft accepted")
    further = replace(STEP, requests=(RequestBeforeStep(2, 4, 3), RequestBeforeStep(10, 1)))
    yield from bad_inputs(preprocess(further), {blocks: ([1, 2],)}, about="accepted beyond its target")
    shifted = replace(LISTED, setup=CHANNELS_FIRST)
    yield BadInput("preprocess_mamba: a shift of channel-first rows by pointers", preprocess(shifted))

def _tables(*tables: Tensor) -> list[Record]:
    return [record("BlockTable", get_device_tensor=Rows(table)) for table in tables]

def collected(src_col: int, dst_col: int, bias: int = 0, blocks: Sequence[int] = (1, 2, 3, 4), **changes: Value) -> Steps:
    named = [*AFTER.cache.steps(), copy_buffers(SETUP, 1)]
    return *named, with_arguments(collect(SETUP, [blocks], src_col, dst_col, bias), **changes)

def memcpy(**changes: Value) -> Steps:
    entries: dict[str, Value] = {"src_ptrs": int64([0, 0]), "dst_ptrs": int64([0, 0]), "sizes": int32([0, 0])}
    return (call(MEMCPY, **entries | changes),)

def lists_of_copies() -> Iterator[BadInput]:
    yield from bad_inputs(collected(0, 3), {
        "src_col": (True, -1, 4),
        "dst_col": (True, -1, 4),
        "bias": (-1, 4),
        "req_state.block_ids.0": tuple([src, 2, 3, dst] for src, dst in ((0, 4), (1, 0), (-1, 4), (1, 99))),
        "copy_funcs": ((Function(CONV_COPY),),),
        "forward_context": ({},),
    })
    behind = collected(0, 2, 1)
    yield from bad_inputs(behind, {"req_state.block_ids.0": ([1, 0, 3],)}, about="behind the bias")
    # Plain functions have no lists that could be full.
    full = (*collected(0, 1), collected(0, 1)[-1])
    yield BadInput("collect_mamba_copy_meta: a copy too many", full, form=True)
    yield from bad_inputs(memcpy(), {
        "src_ptrs": (with_a_dimension_too_many, of_floats),
        "dst_ptrs": (with_a_dimension_too_many, of_floats, int64([0]), int32([0, 0])),
        "sizes": (with_a_dimension_too_many, of_floats, int32([0])),
    })

def staged(function: str = STAGE, capacity: int = STEP.capacity) -> Steps:
    """Staging of STEP."""
    last = stage(STEP.cache, STEP.rows, STEP.output)
    if function != STAGE:
        buffers = STAGING[1:] if function == STAGE_METADATA else STAGING[:1]
        wanted = ["mamba_state_idx"] if function == STAGE_COLUMNS else ["scheduler_output"]
        wanted += ["req_ids", "num_reqs"] + ["requests"] * (function == STAGE_METADATA)
        names = buffers if function == STAGE_METADATA else ("gpu_buf",)
        given = {name: last.named[name] for name in wanted}
        given |= {name: Attribute(Name("ctx"), buffer) for name, buffer in zip(names, buffers, strict=True)}
        last = Call(function, tuple(given.items()), observes=last.observes)
    columns = Let("state_idx", {row.id: 1 for row in STEP.rows})
    return Let("config", SETUP.config(4)), SETUP.create(capacity), columns, last

def stagings() -> Iterator[BadInput]:
    columns: dict[str, Sequence[Bad]] = {"num_reqs": (True, -1, 3), "state_idx": ({"r1": 1}, {"r0": -1, "r1": 0}, {"r0": 0, "r1": 2**31})}
    of_rows: dict[str, Sequence[Bad]] = {
        "scheduler_output": (scheduler_output(STEP.rows[1:]),),
        "scheduler_output.num_scheduled_tokens.r0": (2**31,),
        "requests": (requests_of(STEP.cache, STEP.rows[1:]),),
        "requests.r0.num_computed_tokens": (-1,),
    }
    for function, values in ((STAGE, columns | of_rows), (STAGE_COLUMNS, columns), (STAGE_METADATA, {"num_reqs": columns["num_reqs"], **of_rows})):
        yield from bad_inputs(staged(function), values)
        yield BadInput(f"{function}: more rows than the buffers", staged(function, capacity=1))

def postprocessed(*, with_postprocess: bool = True, **changes: Value) -> Steps:
    rows = [Scheduled("r0", 0, 3, 3, 2), Scheduled("r1", 1, 10, 1)]
    return (
        *AFTER.cache.steps(),
        buffers(SETUP, 2, with_postprocess=with_postprocess),
        Let("counts", int32([3, 1])),
        Let("accepted", int32([1, 1]).on_host()),
        with_arguments(postprocess(AFTER.cache, rows), **changes),
    )

def postprocesses() -> Iterator[BadInput]:
    yield BadInput("postprocess_mamba_align_gpu: no context", postprocessed(with_postprocess=False))
    counts = "num_accepted_tokens_cpu_tensor"
    yield from bad_inputs(postprocessed(), {
        counts: tuple(tensor.on_host() for tensor in (int32([1]), int64([1, 1]), int32([[1, 1], [1, 1]]))),
        "num_accepted_tokens_gpu": (int64([3, 1]),),
    })
    unknown: dict[str, Value] = {
        "scheduler_output": scheduler_output([Scheduled("r0", 0, 3, 3, 2)]),
        "kv_cache_config": Name("config"),
        "input_batch": record("InputBatch", req_ids=["r0"]),
        "requests": {},
        "mamba_state_idx": Name("state_idx"),
        "num_spec_tokens": 2,
        "num_reqs": 1,
    }
    named = Let("config", SETUP.config(4)), Let("state_idx", {})
    full_decode = call("postprocess_mamba_all", **unknown, observes=("state_idx",))
    yield BadInput("postprocess_mamba_all: an unknown request", (*named, full_decode))

def host_buffers() -> Iterator[BadInput]:
    given: dict[str, Value] = {"dtype": DType("int32"), "device": Device(), "pin_memory": False}
    buffer = Call("CpuGpuBuffer", (("size0", 3),), tuple(given.items()), bind="buffer")
    yield from bad_inputs(buffer, {"size0": (True, -1), "dtype": (DType("bfloat16"),)})
    yield BadInput("CpuGpuBuffer: no dimension", (replace(buffer, arguments=()),))
    uploaded = buffer, Call("CpuGpuBuffer.copy_to_gpu", (("self", Name("buffer")), ("n", 2)))
    yield from bad_inputs(uploaded, {"n": (True, -1, 4)})

BAD_INPUTS = (
    *numbers(), *pages(), *shapes(), *chunks(), *batches(), *block_tables(), *copies(),
    *constructions(), *builds(), *drafted_builds(), *narrow_tables(), *counts_on_the_host(), *captures_and_updates(),
    *contexts(), *initializations(), *launches(), *preprocesses(), *lists_of_copies(), *stagings(), *postprocesses(), *host_buffers(),
)
# fmt: on


def bad_inputs_of_one_example() -> st.SearchStrategy[tuple[BadInput, ...]]:
    """Some 30 rows of the table: with one row an example, a campaign of 30 seconds would try a quarter of them.

    Lists of lists, since Hypothesis draws about six elements of a list without a minimum, and a minimum would stay in the smallest input.
    """
    rows = st.sampled_from(BAD_INPUTS)
    return st.lists(st.lists(rows, min_size=1, max_size=12), min_size=1, max_size=12).map(
        lambda lists: tuple(itertools.chain.from_iterable(lists))
    )
