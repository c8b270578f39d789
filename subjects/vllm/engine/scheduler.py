"""The release's own scheduler, and its hash of a block."""

import hashlib
import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from subjects.vllm.engine.settings import LiveSettings
from subjects.vllm.release import find, optional


def made_scheduler(
    settings: LiveSettings, config: Any, caches: Any, block_size: int, hash_block_size: int
) -> Any:
    """The scheduler, which resolves sizes in the two configurations as the release's engine does."""
    name = "async_scheduler:AsyncScheduler" if settings.async_scheduling else "scheduler:Scheduler"
    cls = find(f"vllm.v1.core.sched.{name}")
    _resolve("hash_block_size", hash_block_size, config.cache_config, caches)
    resolve = optional("vllm.v1.core.kv_cache_utils:resolve_cache_hit_alignment_tokens")
    if resolve is not None:
        # Before a connector is made, which reads it.
        unit = resolve(caches, config, block_size, hash_block_size)
        _resolve("cache_hit_alignment_tokens", unit, config.cache_config, caches)
    grammars = SimpleNamespace(
        should_advance=lambda *_, **__: False,
        accept_tokens=lambda *_: True,
        grammar_bitmask=lambda *_: None,
        validate_tokens=lambda _, tokens: tokens,
        reasoner_cls=None,
    )
    keywords = {} if hash_block_size == block_size else {"hash_block_size": hash_block_size}
    made = cls(
        vllm_config=config,
        kv_cache_config=caches,
        structured_output_manager=grammars,
        block_size=block_size,
        **keywords,
    )
    if settings.items:
        # What the release makes of its budget for a model with such items.
        most = max(settings.max_num_batched_tokens, *(length for _, length in settings.items))
        made.max_num_encoder_input_tokens = most
        made.encoder_cache_manager = find("vllm.v1.core.encoder_cache_manager:EncoderCacheManager")(most)
    unit = getattr(made.kv_cache_manager.coordinator, "_cache_hit_alignment_tokens", block_size)
    _resolve("cache_hit_alignment_tokens", unit, config.cache_config, caches)
    return made


def _resolve(name: str, value: int, *owners: Any) -> None:
    for owner in owners:
        if hasattr(owner, name):
            setattr(owner, name, value)


def hash_lookahead(config: Any) -> int:
    """Tokens behind a block that its hash covers, 0 before 0.33."""
    tokens: int = getattr(config, "num_hash_lookahead_tokens", 0)
    return tokens


def block_hasher(settings: LiveSettings, config: Any, size: int) -> Any:
    """The function that hashes the blocks of a request; None without prefix caching."""
    if not settings.prefix_caching:
        return None
    find("vllm.v1.core.kv_cache_utils:init_none_hash")(_digest)
    lookahead = hash_lookahead(config)
    hasher = find("vllm.v1.core.kv_cache_utils:get_request_block_hasher")
    return hasher(size, _digest, lookahead) if lookahead else hasher(size, _digest)


def _digest(value: Any) -> bytes:
    """The same in every process, where Python's own hashes differ."""
    return hashlib.sha256(pickle.dumps(value, protocol=5)).digest()


def keys_of(pool: Any) -> Iterator[tuple[int, Any, bytes]]:
    """Of each block of a pool that may be hit: its group, the block, and its hash."""
    group_of = find("vllm.v1.core.kv_cache_utils:get_group_id")
    hash_of = find("vllm.v1.core.kv_cache_utils:get_block_hash")
    for key, blocks in pool.cached_block_hash_to_block._cache.items():
        for block in blocks.values() if isinstance(blocks, dict) else [blocks]:
            yield group_of(key), block, bytes(hash_of(key))
