"""Bad input, one kind at a time: a `ValueError` names the argument, and nothing is written."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from properties.strategies.batch import Batch, RequestRow, metadata
from properties.strategies.block_tables import BlockTable
from properties.strategies.layout import LAYOUT_VARIABLE, Copy, PaddedState
from properties.strategies.shapes import ShapeArguments
from statecheck.case.values import Call, Device, DType, Tensor, Value, boolean, call, int32, record
from statecheck.execution.example import Bench, Trial
from statecheck.execution.registry import PROPERTIES, prop, written_examples

VARLEN, CONV = "compute_varlen_chunk_metadata", "compute_causal_conv1d_metadata"
SPLIT, GATHER = "split_decodes_and_prefills", "mamba_get_block_table_tensor"
CONV_COPY, TEMPORAL_COPY = "get_conv_copy_spec", "get_temporal_copy_spec"
FLOATS = Tensor("float32", (3,), (0, 2, 5))
TABLE = BlockTable(((1, 2),), (5,), block_size=4, width=2)
COPY = Copy(PaddedState(4, (3, 2)), (1, 2))
BATCH = Batch((RequestRow(1, 3), RequestRow(5, 0, prefilling=True)))


@dataclass(frozen=True)
class Bad:
    """A call with one bad argument; `name` says what is wrong with it."""

    name: str
    call: Call


def varlen(starts: Value, chunk_size: Value = 4) -> Call:
    return call(VARLEN, query_start_loc=starts, chunk_size=chunk_size)


def conv(starts: Value) -> Call:
    return Call(CONV, (("query_start_loc_p_cpu", starts),), (("device", Device()),))


def split(**changes: Value) -> Call:
    return call(SPLIT, common_attn_metadata=metadata(BATCH, **changes))


def gather(**changes: Value) -> Call:
    return replace(TABLE.call(), arguments=tuple((dict(TABLE.call().arguments) | changes).items()))


def copied(function: str, **changes: object) -> Call:
    return COPY.call(function, **changes)


def sharded(family: str, tp_size: int, **arguments: int) -> Call:
    return ShapeArguments(family, tuple(arguments.items()), tp_size).call()


def spec(**changes: Value) -> Call:
    fields = {"block_size": 4, "shapes": ((2, 3),), "dtypes": (DType("float32"),)}
    return call("MambaSpec.page_size_bytes.fget", self=record("MambaSpec", **fields | changes))


GDN = {"head_k_dim": 4, "head_v_dim": 4, "conv_kernel_size": 4}
MAMBA2 = {"intermediate_size": 8, "head_dim": 2, "state_size": 4, "conv_kernel": 4}
HOST_BAD = BlockTable(((1, 2),), (9,), block_size=4, width=2)

BAD_INPUTS = (
    Bad("starts of floats", varlen(FLOATS)),
    Bad("starts of bools", varlen(Tensor("bool", (2,), (0, 1)))),
    Bad("starts as a matrix", varlen(int32([[0, 2], [2, 5]]))),
    Bad("no start at all", varlen(int32([]))),
    Bad("a first start that is not 0", varlen(int32([1, 5]))),
    Bad("starts that step back", varlen(int32([0, 5, 3]))),
    Bad("a negative length at the end", varlen(int32([0, 5, 3, 9]))),
    Bad("more tokens than int32 counts", varlen(Tensor("int64", (2,), (0, 2**31)))),
    Bad("chunk size 0", varlen(int32([0, 5]), 0)),
    Bad("a negative chunk size", varlen(int32([0, 5]), -4)),
    Bad("a chunk size that is a bool", varlen(int32([0, 5]), True)),
    Bad("conv starts of floats", conv(FLOATS.on_host())),
    Bad("conv starts as a matrix", conv(int32([[0, 2], [2, 5]]).on_host())),
    Bad("conv starts that step back", conv(int32([0, 9, 8]).on_host())),
    Bad(
        "FLA starts that step back", call("prepare_chunk_indices", cu_seqlens=int32([0, 4, 2]), chunk_size=64)
    ),
    Bad("FLA chunk size 0", call("prepare_chunk_offsets", cu_seqlens=int32([0, 4]), chunk_size=0)),
    Bad("a batch whose starts step back", split(query_start_loc_cpu=int32([0, 5, 1]).on_host())),
    Bad("a batch whose first start is not 0", split(query_start_loc_cpu=int32([1, 2, 6]).on_host())),
    Bad("a batch with a start too few", split(query_start_loc_cpu=int32([0, 1]).on_host())),
    Bad(
        "starts of a batch as floats",
        split(query_start_loc_cpu=Tensor("float32", (3,), (0, 1, 6), on="host")),
    ),
    Bad("a maximum below the longest query", split(max_query_len=4)),
    Bad("fewer tokens than the starts count", split(num_actual_tokens=5)),
    Bad("decode threshold 0", replace(split(), keywords=(("decode_threshold", 0),))),
    Bad(
        "no prompt marks where they are needed",
        replace(split(is_prefilling=None), keywords=(("treat_short_extends_as_decodes", False),)),
    ),
    Bad(
        "prompt marks for too few rows",
        replace(
            split(is_prefilling=boolean([True]).on_host()),
            keywords=(("treat_short_extends_as_decodes", False),),
        ),
    ),
    Bad(
        "a length past the row",
        gather(block_table=HOST_BAD.tensor().on_host(), seq_lens=int32([9]).on_host()),
    ),
    Bad("a bound past the row", replace(TABLE.call(), keywords=(("max_seq_len", 9),))),
    Bad("an unknown cache mode", gather(mamba_cache_mode="aligned")),
    Bad("a block table of floats", gather(block_table=Tensor("float32", (1, 2), (1, 2)))),
    Bad("a block table of one dimension", gather(block_table=int32([1, 2]))),
    Bad("lengths as a matrix", gather(seq_lens=int32([[5]]))),
    Bad("more lengths than rows", gather(seq_lens=int32([5, 5]))),
    Bad("a table narrower than its speculative blocks", replace(TABLE, num_speculative_blocks=2).call()),
    Bad(
        "a table without a column beside its speculative blocks",
        BlockTable(((1, 2),), (0,), block_size=4, width=2, num_speculative_blocks=2).call(),
    ),
    Bad(
        "a bound of a table without a column beside its speculative blocks",
        BlockTable(((1,),), (0,), block_size=4, width=1, num_speculative_blocks=1).call(max_seq_len=0),
    ),
    Bad(
        "a length past the row behind one that fills it",
        replace(
            BlockTable(((1, 2), (3, 4)), (8, 9), block_size=4, width=2).call(),
            arguments=tuple(
                (name, value.on_host() if isinstance(value, Tensor) else value)
                for name, value in BlockTable(((1, 2), (3, 4)), (8, 9), block_size=4, width=2)
                .call()
                .arguments
            ),
        ),
    ),
    Bad("a state that is no tensor, conv", copied(CONV_COPY, state=[[[1.0]]] * 3)),
    Bad("a state that is no tensor, temporal", copied(TEMPORAL_COPY, state=[[1.0]] * 3)),
    Bad("a temporal state of one dimension", copied(TEMPORAL_COPY, state=Tensor("float32", (4,), None))),
    Bad(
        "a temporal state whose rows lie apart",
        copied(TEMPORAL_COPY, state=Tensor("float32", (4, 3, 2), None, (12, 4, 1))),
    ),
    *(
        Bad(
            f"a pool of one block whose rows lie apart, {name}",
            copied(name, state=Tensor("float32", (1, 3, 2), None, (12, 4, 1))),
        )
        for name in (CONV_COPY, TEMPORAL_COPY)
    ),
    *(
        Bad(f"a pool of {blocks} blocks, {name}", copied(name, state=Tensor("float32", (blocks, 3, 2), None)))
        for name in (CONV_COPY, TEMPORAL_COPY)
        for blocks in (0, 1)
    ),
    Bad("accepted count 0, conv", copied(CONV_COPY, num_accepted_tokens=0)),
    Bad("accepted count 0, temporal", copied(TEMPORAL_COPY, num_accepted_tokens=0)),
    Bad("accepted count above 1 + drafts, conv", copied(CONV_COPY, num_accepted_tokens=3)),
    Bad("accepted count above 1 + drafts, temporal", copied(TEMPORAL_COPY, num_accepted_tokens=3)),
    Bad(
        "accepted count above the stored rows",
        copied(CONV_COPY, num_accepted_tokens=4, block_ids=[1, 2, 3, 1]),
    ),
    Bad("a column past the row", copied(CONV_COPY, cur_block_idx=2)),
    Bad("a negative column", copied(TEMPORAL_COPY, cur_block_idx=-1)),
    Bad("a block past the pool", copied(TEMPORAL_COPY, block_ids=[4, 2])),
    Bad("the null block", copied(CONV_COPY, block_ids=[0, 2])),
    Bad("a conv state of two dimensions", copied(CONV_COPY, state=Tensor("float32", (4, 6), None))),
    Bad(
        "a conv state whose rows lie apart",
        copied(CONV_COPY, state=Tensor("float32", (4, 3, 2), None, (12, 4, 1))),
    ),
    Bad(
        "heads that 2 ranks cannot share", sharded("linear_attention_state_shape", 2, num_heads=3, head_dim=4)
    ),
    Bad(
        "channels that 2 ranks cannot share",
        sharded("short_conv_state_shape", 2, intermediate_size=3, conv_kernel=4),
    ),
    Bad(
        "key heads that 2 ranks cannot share",
        sharded("gated_delta_net_state_shape", 2, num_k_heads=1, num_v_heads=2, **GDN),
    ),
    Bad(
        "groups that 8 ranks cannot share",
        sharded("mamba2_state_shape", 8, n_groups=12, num_heads=8, **MAMBA2),
    ),
    *(
        Bad(f"what 2 ranks cannot share, {family}", sharded(family, 2, **sizes))
        for family, sizes in (
            ("mamba1_state_shape", {"intermediate_size": 3, "state_size": 2, "conv_kernel": 4}),
            ("mamba2_state_shape", {"n_groups": 2, "num_heads": 3, **MAMBA2}),
            ("kda_state_shape", {"num_heads": 3, "head_dim": 4}),
        )
    ),
    Bad(
        "a conv kernel of width 1",
        sharded("mamba1_state_shape", 1, intermediate_size=4, state_size=2, conv_kernel=1),
    ),
    Bad(
        "a negative number of drafts",
        ShapeArguments("kda_state_shape", (("num_heads", 2), ("head_dim", 4)), num_spec=-1).call(),
    ),
    Bad("an unknown layout", call("get_conv_state_layout", environment={LAYOUT_VARIABLE: "NHD"})),
    Bad("a division by 0", call("cdiv", x=4, y=0)),
    Bad("a division of no numbers by 0", call("cdiv", x=int32([]), y=0)),
    Bad("a remainder", call("divide", x=5, y=2)),
    Bad("a page smaller than its states", spec(page_size_padded=23)),
    Bad("a state without a dtype", spec(dtypes=())),
    Bad("an empty state", spec(shapes=((2, 0),))),
)


@prop(
    "bad-input/stateless",
    "refusal",
    *sorted({bad.call.function for bad in BAD_INPUTS}),
    bad=st.sampled_from(BAD_INPUTS),
)
def test_bad_input_is_refused_by_name_before_anything_is_written(trial: Trial, bad: Bad) -> None:
    """A `ValueError` names the argument, the value and the rule, and no argument's memory has changed."""
    trial.refuses(bad.call)


@written_examples(
    "bad_input_is_refused_by_name_before_anything_is_written", "bad", BAD_INPUTS, lambda bad: bad.name
)
def test_each_bad_input_is_refused(trial: Bench, bad: Bad) -> None:
    refusal = PROPERTIES["bad_input_is_refused_by_name_before_anything_is_written"]
    refusal.example(trial, bad=bad)
