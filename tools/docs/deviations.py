"""Where we deviate from the documents, and why: the rows of docs/deviations.md, each with an input that shows it.

A row's call is run by the tests, so that the table cannot claim what `impl` does not do.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import starmap

from statecheck.case.values import (
    Call,
    Device,
    DType,
    Let,
    Name,
    Overwrite,
    Step,
    Tensor,
    boolean,
    call,
    int32,
    record,
)
from statecheck.text import markdown
from tools.docs import align as align_deviations
from tools.docs import builders as builder_deviations

_CALCULATOR = "MambaStateShapeCalculator"


@dataclass(frozen=True)
class Deviation:
    """One row: where, the smallest input as text and as steps, what the documents do with it, what we do and why."""

    place: str
    shown_by: str
    documents: str
    ours: str
    steps: tuple[Step, ...]


def _shape(family: str, **arguments: int) -> tuple[Step, ...]:
    return (Call(f"{_CALCULATOR}.{family}", (), tuple(arguments.items())),)


def _split(lens: tuple[int, ...], prefilling: tuple[bool, ...], threshold: int, **options: object) -> Call:
    starts = int32([sum(lens[:row]) for row in range(len(lens) + 1)])
    batch = record(
        "CommonAttentionMetadata",
        query_start_loc=starts,
        query_start_loc_cpu=starts.on_host(),
        seq_lens=int32(lens),
        num_reqs=len(lens),
        num_actual_tokens=sum(lens),
        max_query_len=max(lens, default=0),
        max_seq_len=max(lens, default=0),
        block_table_tensor=Tensor("int32", (len(lens), 1), (1,) * len(lens)),
        slot_mapping=Tensor("int64", (0,), ()),
        is_prefilling=boolean(prefilling).on_host(),
    )
    keywords = {"decode_threshold": threshold, **options}
    return Call("split_decodes_and_prefills", (("common_attn_metadata", batch),), tuple(keywords.items()))


def _gather(seq_len: int, mode: str) -> Call:
    return call(
        "mamba_get_block_table_tensor",
        block_table=int32([[7]]).on_host(),
        seq_lens=int32([seq_len]).on_host(),
        kv_cache_spec=record("Spec", block_size=4, num_speculative_blocks=0),
        mamba_cache_mode=mode,
    )


def _copy(function: str, block_ids: list[int], accepted: int) -> Call:
    state = Tensor("float32", (3, 2, 1), None)
    return call(function, state=state, block_ids=block_ids, cur_block_idx=0, num_accepted_tokens=accepted)


def _fla(starts: list[int]) -> Call:
    return call("prepare_chunk_indices", cu_seqlens=int32(starts), chunk_size=1)


def _conv(starts: list[int]) -> Call:
    arguments = (("query_start_loc_p_cpu", int32(starts).on_host()),)
    return Call("compute_causal_conv1d_metadata", arguments, (("device", Device()),))


def _varlen(starts: list[int], chunk_size: int) -> Call:
    return call("compute_varlen_chunk_metadata", query_start_loc=int32(starts), chunk_size=chunk_size)


_LIVE = record(
    "CommonAttentionMetadata",
    query_start_loc=int32([0, 1]),
    query_start_loc_cpu=int32([0, 1]).on_host(),
    seq_lens=Name("seq_lens"),
    num_reqs=1,
    num_actual_tokens=1,
    max_query_len=1,
    max_seq_len=2,
    block_table_tensor=int32([[1]]),
    slot_mapping=Tensor("int64", (1,), (0,)),
)
_COMPUTED = call("CommonAttentionMetadata.compute_num_computed_tokens", self=Name("batch"))

DEVIATIONS: tuple[Deviation, ...] = (
    Deviation(
        "document 0, `compute_varlen_chunk_metadata`",
        "starts `[0, 1]`, chunk size `-1`",
        "never returns",
        "`ValueError`, as for every chunk size below 1",
        (_varlen([0, 1], -1),),
    ),
    Deviation(
        "document 0, `compute_varlen_chunk_metadata`, its claim to mirror the builder",
        "starts `[0, 3, 10]`, chunk size 4, nothing computed before",
        "boundaries 0, 3, 4, 8, 10; the builder, which counts each request's own positions, has 0, 3, 7, 10",
        "the formula as documented (positions of the packed axis); the claim is not repeated",
        (_varlen([0, 3, 10], 4),),
    ),
    Deviation(
        "documents 0 and 2, every `assert` on an argument",
        "starts `[1, 2]`",
        "`AssertionError`, and nothing at all under `python -O`",
        "`ValueError` that names the argument, the value and the rule",
        (_varlen([1, 2], 4),),
    ),
    Deviation(
        "document 2, `linear_attention_state_shape`",
        "3 heads on 2 ranks",
        "1 head on each rank: the third head has no state anywhere",
        "`ValueError` naming `num_heads`",
        _shape("linear_attention_state_shape", num_heads=3, tp_size=2, head_dim=1),
    ),
    Deviation(
        "document 2, `extra_groups_for_head_shards`",
        "3 groups on 2 ranks",
        "-1 extra group: the conv state is too small",
        "`ValueError` naming `ngroups`",
        (call(f"{_CALCULATOR}.extra_groups_for_head_shards", ngroups=3, tp_size=2),),
    ),
    Deviation(
        "document 2, `extra_groups_for_head_shards`",
        "2 groups on 3 ranks",
        "1 extra group, though the middle rank's heads need both groups",
        "`ValueError` unless each rank's heads lie in one group",
        (call(f"{_CALCULATOR}.extra_groups_for_head_shards", ngroups=2, tp_size=3),),
    ),
    Deviation(
        "document 2, `gated_delta_net_state_shape`",
        "1 key head, 2 value heads, dimensions 1, 2 ranks",
        "2 channels per rank: only the sum of the channels is checked",
        "`ValueError` naming `num_k_heads`: half a head cannot be stored",
        _shape(
            "gated_delta_net_state_shape",
            tp_world_size=2,
            num_k_heads=1,
            num_v_heads=2,
            head_k_dim=1,
            head_v_dim=1,
            conv_kernel_size=2,
        ),
    ),
    Deviation(
        "document 2, `kda_state_shape`, `num_k_heads`",
        "2 heads, 1 key head of dimension 2, 2 ranks",
        "1 key channel per rank: half a head",
        "`ValueError` naming `num_k_heads`",
        _shape("kda_state_shape", tp_world_size=2, num_heads=2, head_dim=1, num_k_heads=1, head_k_dim=2),
    ),
    Deviation(
        "document 2, `kda_state_shape`, `num_spec`",
        "1 head of dimension 1, conv kernel 2, 1 speculative token",
        "conv states of 1 row: the argument is ignored, and a draft overwrites the window it is conditioned on",
        "conv states of 2 rows",
        _shape("kda_state_shape", tp_world_size=1, num_heads=1, head_dim=1, conv_kernel_size=2, num_spec=1),
    ),
    Deviation(
        "document 2, `short_conv_state_shape`",
        "1 channel, conv kernel 2, 1 speculative token",
        "cannot be asked for: always 1 row",
        "takes `num_spec` and gives 2 rows",
        _shape("short_conv_state_shape", tp_world_size=1, intermediate_size=1, conv_kernel=2, num_spec=1),
    ),
    Deviation(
        "document 2, `get_conv_copy_spec`",
        "a state of 2 rows, accepted count 0",
        "copies the last row only (a Python slice from -1)",
        "`ValueError` naming `num_accepted_tokens`",
        (_copy("get_conv_copy_spec", [1, 2], 0),),
    ),
    Deviation(
        "document 2, `get_temporal_copy_spec`",
        "blocks `[1, 2]`, column 0, accepted count 0",
        "copies block 2, the last of the list (index -1)",
        "`ValueError` naming `num_accepted_tokens`",
        (_copy("get_temporal_copy_spec", [1, 2], 0),),
    ),
    Deviation(
        "document 2, both copy specifications",
        "blocks `[0]`",
        "copies the null block, which holds no request's state",
        "`ValueError` naming `block_ids[0]`",
        (_copy("get_temporal_copy_spec", [0], 1),),
    ),
    Deviation(
        "document 2, `get_conv_state_layout`",
        "`VLLM_SSM_CONV_STATE_LAYOUT=NHD`",
        "answers `NHD`, which everything after it takes for SD",
        "`ValueError` naming the variable",
        (call("get_conv_state_layout", environment={"VLLM_SSM_CONV_STATE_LAYOUT": "NHD"}),),
    ),
    Deviation(
        "contract 1.2, `split_decodes_and_prefills`",
        "lengths 1, 1, threshold 1, uniform, short extends are prefills, row 1 in its prompt",
        "both rows are decodes: the shortcut for uniform batches overlooks the prompt",
        "1 decode, 1 prefill: a row without prior state must not reach a path that reads state",
        (_split((1, 1), (False, True), 1, require_uniform=True, treat_short_extends_as_decodes=False),),
    ),
    Deviation(
        "contract 1.2, `split_decodes_and_prefills`, releases that dropped that shortcut",
        "lengths 1, 0, threshold 1, uniform, short extends are prefills, no row in a prompt",
        "the padding row becomes a prefill, and a full graph no longer fits",
        "2 decodes: padding of a uniform batch stays what it pads",
        (_split((1, 0), (False, False), 1, require_uniform=True, treat_short_extends_as_decodes=False),),
    ),
    Deviation(
        "contract 1.2, `split_decodes_and_prefills`",
        "no row, short extends are prefills",
        "`IndexError`",
        "0, 0, 0, 0",
        (_split((), (), 1, treat_short_extends_as_decodes=False),),
    ),
    Deviation(
        "contract 1.3, `compute_causal_conv1d_metadata`",
        "starts `[1, 0]`",
        "a decrease of 1 to 7 counts as an empty row",
        "`ValueError` for every decrease",
        (_conv([1, 0]),),
    ),
    Deviation(
        "contract 1.4, `mamba_get_block_table_tensor`",
        'mode `"aligned"`',
        "every unknown mode behaves as align",
        "`ValueError` naming `mamba_cache_mode`",
        (_gather(1, "aligned"),),
    ),
    Deviation(
        "contract 1.4, `mamba_get_block_table_tensor`",
        "1 column, block size 4, length 5",
        "an index error on the CPU, a device assert on the GPU",
        "`ValueError` for host tensors, and for device tensors where `max_seq_len` gives a host bound; "
        "otherwise a precondition, since reading device lengths would wait for the device",
        (_gather(5, "align"),),
    ),
    Deviation(
        "contract 1.6, `compute_num_computed_tokens`",
        "called, `seq_lens` updated in place, called again",
        "the first result again: it is cached in the instance, and `replace()` takes the cache along",
        "computed anew on every call",
        (
            Let("seq_lens", int32([1])),
            Let("batch", _LIVE),
            _COMPUTED,
            Overwrite("seq_lens", (2,)),
            _COMPUTED,
        ),
    ),
    Deviation(
        "contract 1.9, `prepare_chunk_indices`",
        "starts `[0, 0, 1]`",
        "the pair (0, 0): the ordinal counts non-empty sequences, so a kernel looks up an empty one",
        "the pair (1, 0): the ordinal is the index into the starts",
        (_fla([0, 0, 1]),),
    ),
    Deviation(
        "contract 1.9, `prepare_chunk_indices`",
        "starts `[0]`",
        "`ValueError`",
        "no pairs, shape (0, 2): an empty batch is a batch",
        (_fla([0]),),
    ),
    Deviation(
        "contract 1.9, both chunk helpers",
        "starts `[0, 1]`, overwritten with `[0, 2]`, called again",
        "the first result again: results are memoised by the tensor's identity",
        "computed anew on every call",
        (
            Let("starts", int32([0, 1])),
            call("prepare_chunk_indices", cu_seqlens=Name("starts"), chunk_size=1),
            Overwrite("starts", (0, 2)),
            call("prepare_chunk_indices", cu_seqlens=Name("starts"), chunk_size=1),
        ),
    ),
    Deviation(
        "contract 1.7, `MambaSpec`",
        "a state of 4 bytes in a page padded to 3",
        "`AssertionError`, when the size is first asked for",
        "`ValueError` naming `page_size_padded`, at construction",
        (
            call(
                "MambaSpec.page_size_bytes.fget",
                self=record(
                    "MambaSpec", block_size=1, shapes=((1,),), dtypes=(DType("float32"),), page_size_padded=3
                ),
            ),
        ),
    ),
)

DEVIATIONS += tuple(starmap(Deviation, (*builder_deviations.ROWS, *align_deviations.ROWS)))


def table() -> str:
    """The table, a row for each deviation."""
    head = ("place", "smallest input", "the documents", "what we do, and why")
    rows = ((row.place, row.shown_by, row.documents, row.ours) for row in DEVIATIONS)
    return "\n".join(markdown.table(head, rows))
