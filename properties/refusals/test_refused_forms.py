"""Arguments of another type, one at a time: a `ValueError` names the argument, and nothing is written."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from properties.refusals.test_refusals import (
    BATCH,
    CONV_COPY,
    GDN,
    MAMBA2,
    TABLE,
    TEMPORAL_COPY,
    conv,
    copied,
    sharded,
    spec,
    split,
    varlen,
)
from properties.strategies.batch import metadata
from properties.strategies.forms import WrongForm, with_value, wrong_ints, wrong_tensors
from statecheck.case.values import Call, call, int32, record
from statecheck.execution.example import Bench, Trial
from statecheck.execution.registry import PROPERTIES, prop, written_examples

STARTS = int32([0, 2, 5])
MARKED = replace(split(), keywords=(("treat_short_extends_as_decodes", False),))
COMMON = "common_attn_metadata"
COMPUTED = Call("CommonAttentionMetadata.compute_num_computed_tokens", (("self", metadata(BATCH)),))
QUERY_LENS = Call("CommonAttentionMetadata.naive_query_lens", (("self", metadata(BATCH)),))
MEMORY = call(
    "MambaSpec.max_memory_usage_bytes",
    self=record(
        "MambaSpec",
        block_size=4,
        shapes=((2, 3),),
        dtypes=spec().named["self"]["dtypes"],
        mamba_cache_mode="all",
        num_speculative_blocks=1,
    ),
    vllm_config=record("VllmConfig", model_config=record("ModelConfig", max_model_len=9)),
)
PLAIN = sharded("linear_attention_state_shape", 2, num_heads=2, head_dim=4)
SHARDS = (
    sharded("mamba1_state_shape", 2, intermediate_size=4, state_size=2, conv_kernel=4),
    sharded("mamba2_state_shape", 2, n_groups=2, num_heads=8, **MAMBA2),
    sharded("short_conv_state_shape", 2, intermediate_size=4, conv_kernel=4),
    sharded("gated_delta_net_state_shape", 2, num_k_heads=2, num_v_heads=2, **GDN),
    sharded("kda_state_shape", 2, num_heads=2, head_dim=4, conv_kernel_size=4),
)
EXTRA = call("MambaStateShapeCalculator.extra_groups_for_head_shards", ngroups=2, tp_size=2)
FORMS = (
    *wrong_tensors(varlen(STARTS), "query_start_loc"),
    *wrong_ints(varlen(STARTS), "chunk_size"),
    *wrong_tensors(conv(STARTS.on_host()), "query_start_loc_p_cpu"),
    *(
        form
        for function in ("prepare_chunk_indices", "prepare_chunk_offsets")
        for of in (call(function, cu_seqlens=STARTS, chunk_size=64),)
        for form in (*wrong_tensors(of, "cu_seqlens"), *wrong_ints(of, "chunk_size"))
    ),
    *wrong_tensors(split(), f"{COMMON}.query_start_loc_cpu"),
    *wrong_tensors(MARKED, f"{COMMON}.is_prefilling"),
    *wrong_ints(replace(split(), keywords=(("decode_threshold", 1),)), "decode_threshold"),
    *(form for form in wrong_tensors(call("cdiv", x=STARTS, y=2), "x") if "floats" in form.name),
    *wrong_tensors(COMPUTED, "self.query_start_loc", "self.seq_lens"),
    *wrong_tensors(QUERY_LENS, "self.query_start_loc"),
    *wrong_tensors(TABLE.call(), "block_table", "seq_lens"),
    *wrong_ints(TABLE.call(), "kv_cache_spec.block_size", "kv_cache_spec.num_speculative_blocks"),
    *(
        form
        for name in (CONV_COPY, TEMPORAL_COPY)
        for form in wrong_ints(copied(name), "cur_block_idx", "num_accepted_tokens")
    ),
    *(form for one in (PLAIN, EXTRA, *SHARDS) for form in wrong_ints(one, *one.named)),
    *wrong_ints(call("cdiv", x=4, y=2), "x", "y"),
    WrongForm("y as a tensor", call("cdiv", x=STARTS, y=STARTS)),
    *wrong_ints(call("divide", x=4, y=2), "x", "y"),
    *wrong_ints(MEMORY, "self.block_size", "self.num_speculative_blocks"),
    *wrong_ints(spec(page_size_padded=99), "self.page_size_padded", "self.shapes.0.1"),
)
VALUES = (
    *(
        WrongForm(f"y = {y} of an int32 tensor", call("cdiv", x=STARTS, y=y))
        for y in (2**31, -(2**31) - 1, 2**64)
    ),
    WrongForm("no start", conv(int32([]).on_host())),
    *(
        WrongForm("no start", call(name, cu_seqlens=int32([]), chunk_size=64))
        for name in ("prepare_chunk_indices", "prepare_chunk_offsets")
    ),
    WrongForm("no start", with_value(QUERY_LENS, "self.query_start_loc", int32([]))),
    WrongForm("a length too few", with_value(COMPUTED, "self.seq_lens", int32([4]))),
    WrongForm("blocks of no token", with_value(TABLE.call(), "kv_cache_spec.block_size", 0)),
    WrongForm("drafts below 0", with_value(TABLE.call(), "kv_cache_spec.num_speculative_blocks", -1)),
    WrongForm("blocks of no token", with_value(MEMORY, "self.block_size", 0)),
    WrongForm("drafts below 0", with_value(MEMORY, "self.num_speculative_blocks", -1)),
    WrongForm("an unknown mode", with_value(MEMORY, "self.mamba_cache_mode", "aligned")),
    *(
        WrongForm(f"{name} = {value}", with_value(one, name, value))
        for one in SHARDS
        for name, value in (("num_spec", -1), ("conv_kernel", 1), ("conv_kernel_size", 1))
        if name in one.named
    ),
)
BAD_INPUTS = (*FORMS, *VALUES)


@prop(
    "bad-input/forms",
    "refusal",
    *sorted({form.call.function for form in BAD_INPUTS}),
    form=st.sampled_from(BAD_INPUTS),
)
def test_arguments_of_another_type_are_refused_by_name(trial: Trial, form: WrongForm) -> None:
    trial.refuses(form.call)


@written_examples(
    "arguments_of_another_type_are_refused_by_name",
    "form",
    BAD_INPUTS,
    lambda form: f"{form.call.function}, {form.name}",
)
def test_each_argument_of_another_type_is_refused(trial: Bench, form: WrongForm) -> None:
    PROPERTIES["arguments_of_another_type_are_refused_by_name"].example(trial, form=form)
