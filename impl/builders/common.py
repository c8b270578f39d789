"""What every builder of state metadata is: its place in the engine and its configuration."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

import torch

from ..checks import int_at_least, one_of
from ..types import MAMBA_CACHE_MODES, PAD_SLOT_ID, AttentionCGSupport
from .blocks import StateBlocks

M = TypeVar("M")


class AttentionMetadataBuilder(ABC, Generic[M]):
    """Turns a step's batch into the metadata that the layers of one cache group read.

    `kv_cache_spec`, `layer_names`: of that group. `vllm_config`: any object with the attributes that the
    builder reads. `device`: where the layers run. `reorder_batch_threshold`: rows of at most that many tokens
    may be sorted to the front as decodes, None for no wish. Source: contract 1.5.
    """

    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.NEVER
    reorder_batch_threshold: int | None = None
    supports_update_block_table: bool = False

    def __init__(
        self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device
    ) -> None:
        self.kv_cache_spec = kv_cache_spec
        self.layer_names = layer_names
        self.vllm_config = vllm_config
        self.device = device

    def _init_reorder_batch_threshold(
        self,
        reorder_batch_threshold: int | None = 1,
        supports_spec_as_decode: bool = False,
        supports_dcp_with_varlen: bool = False,
    ) -> None:
        """Set `reorder_batch_threshold`, by the drafts and the context parallelism that the builder supports.

        Source: contract 1.5.
        """
        config, threshold = self.vllm_config, reorder_batch_threshold
        speculative = getattr(config, "speculative_config", None)
        drafts = getattr(speculative, "num_speculative_tokens", None)
        if threshold is not None and supports_spec_as_decode and drafts is not None:
            factor = 2 if getattr(speculative, "parallel_drafting", False) else 1
            threshold = max(threshold, 1 + factor * drafts)
        parallel = getattr(config, "parallel_config", None)
        if getattr(parallel, "decode_context_parallel_size", 1) > 1 and not supports_dcp_with_varlen:
            threshold = 1
        self.reorder_batch_threshold = threshold

    @abstractmethod
    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: Any,
        *args: Any,
        **kwargs: Any,
    ) -> M:
        """The metadata of one step."""

    @abstractmethod
    def build_for_cudagraph_capture(self, common_attn_metadata: Any) -> M:
        """The metadata to capture a full graph with."""


class StateMetadataBuilder(AttentionMetadataBuilder[M]):
    """A builder for layers with recurrent states, `num_spec` speculative tokens at most per row.

    Rows with up to that many drafts are decodes, whatever parallel drafting would add, since a row has no
    more states; context parallelism changes nothing, since states are not sharded by it.

    Raises ValueError naming `mamba_cache_mode`, `block_size`, `num_speculative_blocks` (fewer than drafts, in
    the modes none and align) or `max_num_seqs`.
    """

    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_BATCH
    reorder_batch_threshold: int = 1

    def __init__(
        self,
        kv_cache_spec: Any,
        layer_names: list[str],
        vllm_config: Any,
        device: torch.device,
        num_spec: int,
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        function = type(self).__name__
        self.compilation_config = vllm_config.compilation_config
        self.speculative_config = vllm_config.speculative_config
        self.use_spec_decode = num_spec > 0
        self._mode = vllm_config.cache_config.mamba_cache_mode
        one_of("mamba_cache_mode", self._mode, MAMBA_CACHE_MODES, function)
        int_at_least("block_size", kv_cache_spec.block_size, 1, function)
        if self._mode != "all":
            int_at_least("num_speculative_blocks", kv_cache_spec.num_speculative_blocks, num_spec, function)
        rows = vllm_config.scheduler_config.max_num_seqs
        self._max_num_seqs = int_at_least("max_num_seqs", rows, 1, function)
        extra = kv_cache_spec.num_speculative_blocks if self._mode == "align" else 0
        self._blocks = StateBlocks(self._mode, kv_cache_spec.block_size, extra)
        self._init_reorder_batch_threshold(1 + num_spec, supports_dcp_with_varlen=True)

    def _limit_graphs(self, rows: int) -> None:
        captured = self.compilation_config.max_cudagraph_capture_size
        self.decode_cudagraph_max_bs = rows if captured is None else min(rows, captured)

    def _runs_as_graph(self, size: int) -> bool:
        # Read anew each time: an engine settles its mode after it has asked its builders what they support.
        if size > self.decode_cudagraph_max_bs:
            return False
        full: bool = self.compilation_config.cudagraph_mode.has_full_cudagraphs()
        return full


def moved(buffer: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The front of `buffer`, after `values` were copied there."""
    return buffer[: values.size(0)].copy_(values, non_blocking=True)


def moved_ids(buffer: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """All of `buffer` [R, columns], after `ids` [R, width] were copied there."""
    width, columns = ids.size(1), buffer.size(1)
    if width == columns:
        return buffer.copy_(ids, non_blocking=True)
    # In mode all, a table may be wider or narrower than what max_model_len tokens take.
    buffer[:, :width] = ids[:, :columns]
    buffer[:, width:] = PAD_SLOT_ID
    return buffer


def tokens_before(common: Any) -> torch.Tensor:
    """Tokens computed before the step, [R] on the device. Not the batch's method: an engine's may be stale."""
    computed: torch.Tensor = common.seq_lens - torch.diff(common.query_start_loc)
    return computed
