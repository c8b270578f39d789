"""Batches and block tables, asked with tensors where these are on the device."""

from types import SimpleNamespace
from typing import Any

import torch

from statecheck.subject.subject import NotOffered
from subjects.plain.port import ask, ints, read_as

__all__ = [
    "CommonAttentionMetadata",
    "mamba_get_block_table_tensor",
    "split_decodes_and_prefills",
]


class CommonAttentionMetadata(SimpleNamespace):
    """A step's batch, with the documents' fields."""

    def compute_num_computed_tokens(self) -> Any:
        return ask("num_computed_tokens", query_start_loc=self.query_start_loc, seq_lens=self.seq_lens)

    def naive_query_lens(self) -> Any:
        return ask("query_lens", query_start_loc=self.query_start_loc)


def split_decodes_and_prefills(
    common_attn_metadata: Any,
    decode_threshold: int = 1,
    require_uniform: bool = False,
    treat_short_extends_as_decodes: bool = True,
) -> tuple[int, ...]:
    batch, marks = common_attn_metadata, common_attn_metadata.is_prefilling
    found = ask(
        "split_batch",
        {"query_start_loc": "query_start_loc_cpu", "num_tokens": "num_actual_tokens"},
        query_start_loc=batch.query_start_loc_cpu.tolist(),
        num_tokens=batch.num_actual_tokens,
        decode_threshold=decode_threshold,
        require_uniform=require_uniform,
        short_extends_are_decodes=treat_short_extends_as_decodes,
        is_prefilling=None if marks is None else marks.tolist(),
    )
    return read_as(lambda values: tuple(ints(values)), found)


def mamba_get_block_table_tensor(
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    kv_cache_spec: Any,
    mamba_cache_mode: str,
    max_seq_len: int | None = None,
) -> Any:
    if mamba_cache_mode != "align" or max_seq_len is not None:
        raise NotOffered("block tables are gathered in mode align, without a bound of the lengths")
    return ask(
        "gather_block_table",
        block_table=block_table,
        seq_lens=seq_lens,
        block_size=kv_cache_spec.block_size,
        num_spec=kv_cache_spec.num_speculative_blocks,
    )
