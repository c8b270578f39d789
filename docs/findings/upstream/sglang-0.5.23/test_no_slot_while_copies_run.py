"""A chunk of a prompt is cached while the other states in the tree are locked, as by copies to host memory; without locks, as a control, it is cached."""

from array import array
from types import SimpleNamespace as Of
from unittest.mock import MagicMock

import sglang.srt.runtime_context as context
import torch
from sglang.srt.mem_cache.allocator.mamba import MambaSlotAllocator
from sglang.srt.mem_cache.base_prefix_cache import InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache


def cached_tokens(copies_run):
    # Three slots of states: one of the request that runs, and two of prefixes.
    slots = MambaSlotAllocator(3, "cpu")
    pool = MagicMock(spec=HybridReqToTokenPool, mamba_allocator=slots, mamba_ckpt_pool=None)
    pool.mamba_pool = MagicMock(replayssm_write_pos=None)
    both = ComponentType.FULL, ComponentType.MAMBA
    cache = UnifiedRadixCache(CacheInitParams(False, pool, MagicMock(device="cpu"), 1, tree_components=both))
    request = MagicMock(kv=Of(mamba_pool_idx=slots.alloc(1)[0]))
    for token in (1, 2):
        key, state = RadixKey(array("q", [token])), slots.alloc(1)
        cache.insert(InsertParams(key=key, value=torch.tensor([token]), mamba_value=state))
        if copies_run:  # as `_execute_and_commit_kv_backup` does, until the copy is done
            cache.inc_lock_ref(cache.match_prefix(MatchPrefixParams(key=key)).last_device_node)
    return cache.components[ComponentType.MAMBA].prepare_for_caching_req(request, InsertParams(), 1, False)


def test_a_chunk_is_left_out_where_no_slot_is_free(monkeypatch):
    of_mamba = MagicMock(mamba_max_states_per_path=-1, enable_mamba_extra_buffer_lazy=False)
    monkeypatch.setattr(type(context._CONTEXT), "config_bag", lambda *_: MagicMock(mamba=of_mamba))
    monkeypatch.setattr(type(context._CONTEXT), "server_args", MagicMock(page_size=1))
    monkeypatch.setattr(context, "mamba_cache_chunk_size", lambda: 1)
    assert cached_tokens(copies_run=False) == 1
    assert cached_tokens(copies_run=True) == 0
