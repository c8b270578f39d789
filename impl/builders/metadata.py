"""What the layers read: the builders' results."""

from dataclasses import dataclass

import torch

from ..chunks import CausalConv1dNums


@dataclass(kw_only=True)
class BaseMambaAttentionMetadata:
    """What a Mamba layer reads about a batch of R rows: N decodes, then P prefills.

    Rows of no token at the back are padding. m: speculative tokens. Tensors are on the device and int32
    (block ids: the table's dtype) unless noted; those of prefills are None without prefills.

    - has_initial_states_p [P] bool: the row has tokens before this step; False for padding.
    - query_start_loc_p [P+1]: where the prefills' queries start, from 0.
    - state_indices_tensor_d [N, 1+m], state_indices_tensor_p [P]: block ids, in mode all whole rows of the
      table; padding is PAD_SLOT_ID among decodes and NULL_BLOCK_ID among prefills, which write by index.
    - query_start_loc_d [N+1], num_accepted_tokens [N] (padding 1): with m > 0 and decodes only.
    - block_idx_last_scheduled_token [R], block_idx_last_computed_token [R],
      block_idx_first_scheduled_token_p [P], num_computed_tokens_p [P]: columns of the table, and tokens before
      this step; in mode all only.
    - cu_chunk_seqlen_p [n+1], last_chunk_indices_p [P]: the chunks of the prefills, for layers that scan in
      chunks.
    - nums_dict, batch_ptr, token_chunk_offset_ptr: what compute_causal_conv1d_metadata tells of the prefills.

    Source: contract 1.11.
    """

    num_prefills: int
    num_prefill_tokens: int
    num_decodes: int
    num_decode_tokens: int
    num_reqs: int
    has_initial_states_p: torch.Tensor | None = None
    query_start_loc_p: torch.Tensor | None = None
    num_computed_tokens_p: torch.Tensor | None = None
    state_indices_tensor_p: torch.Tensor
    state_indices_tensor_d: torch.Tensor
    query_start_loc_d: torch.Tensor | None = None
    num_accepted_tokens: torch.Tensor | None = None
    block_idx_last_scheduled_token: torch.Tensor | None = None
    block_idx_first_scheduled_token_p: torch.Tensor | None = None
    block_idx_last_computed_token: torch.Tensor | None = None
    seq_lens: torch.Tensor
    cu_chunk_seqlen_p: torch.Tensor | None = None
    last_chunk_indices_p: torch.Tensor | None = None
    nums_dict: dict[int, CausalConv1dNums] | None = None
    batch_ptr: torch.Tensor | None = None
    token_chunk_offset_ptr: torch.Tensor | None = None


@dataclass(kw_only=True)
class Mamba1AttentionMetadata(BaseMambaAttentionMetadata):
    """What a Mamba-1 layer reads; chunks of block_size tokens in mode all only. Source: contract 1.10."""


@dataclass(kw_only=True)
class Mamba2AttentionMetadata(BaseMambaAttentionMetadata):
    """What a Mamba-2 layer reads.

    prep_initial_states: some prefill has tokens before this step. chunk_size: tokens per chunk, at multiples
    of which, counted from each request's first token, the prefills are cut. seq_idx_p [n] int32: the row of
    each chunk, counted from the first prefill. Source: contract 1.10.
    """

    prep_initial_states: bool = False
    chunk_size: int = 0
    seq_idx_p: torch.Tensor | None = None


@dataclass
class GDNAttentionMetadata:
    """What a Gated-DeltaNet layer reads about a batch of R rows, S of them speculative.

    m: speculative tokens. Tensors are on the device and int32 (block ids: the table's dtype) unless noted.
    Block ids of padding, the rows of no token at the back, are NULL_BLOCK_ID. Without speculative rows the
    spec_* tensors, token indices and num_accepted_tokens are None, and "the others" are all rows.

    - has_initial_state: bool, per other row: it has tokens before this step; False for padding.
    - spec_query_start_loc [S+1], non_spec_query_start_loc [others+1]: starts within each part.
    - spec_state_indices_tensor [S, 1+m], non_spec_state_indices_tensor [others].
    - spec_sequence_masks [R] bool: the speculative rows.
    - spec_token_indx, non_spec_token_indx: places of each part's tokens in the batch, ascending; int64 if
      there are both.
    - num_accepted_tokens [S]: tokens that the step before accepted.
    - chunk_indices [n, 2], chunk_offsets [others+1] int64: the others' chunks of FLA_CHUNK_SIZE tokens.
    - nums_dict, batch_ptr, token_chunk_offset_ptr: what compute_causal_conv1d_metadata tells of the others.

    has_initial_state and what follows chunk_indices are None without prefills; if all rows with tokens are
    speculative, the non_spec tensors are None as well. In a full graph the speculative rows are followed by
    padding up to R: NULL_BLOCK_ID, False, the last start, 1 accepted. Source: contract 1.12.
    """

    num_prefills: int
    num_prefill_tokens: int
    num_decodes: int
    num_decode_tokens: int
    num_spec_decodes: int
    num_spec_decode_tokens: int
    num_actual_tokens: int
    has_initial_state: torch.Tensor | None = None
    spec_query_start_loc: torch.Tensor | None = None
    non_spec_query_start_loc: torch.Tensor | None = None
    spec_state_indices_tensor: torch.Tensor | None = None
    non_spec_state_indices_tensor: torch.Tensor | None = None
    spec_sequence_masks: torch.Tensor | None = None
    spec_token_indx: torch.Tensor | None = None
    non_spec_token_indx: torch.Tensor | None = None
    num_accepted_tokens: torch.Tensor | None = None
    chunk_indices: torch.Tensor | None = None
    chunk_offsets: torch.Tensor | None = None
    nums_dict: dict[int, CausalConv1dNums] | None = None
    batch_ptr: torch.Tensor | None = None
    token_chunk_offset_ptr: torch.Tensor | None = None
