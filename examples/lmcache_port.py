"""LMCache (`pip install --no-deps lmcache numba llvmlite`, beside vLLM) as a port: its allocator of pages, and its edits of vLLM's groups of caches.

statecheck fuzz --subject examples.lmcache_port --device cpu --budget 1m
"""
# ruff: noqa: D103 - PROTOCOL.md has a sentence about each function.

import ctypes
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from lmcache.integration.vllm.kv_cache_group_edits import apply_kv_cache_group_edits
from lmcache.v1.memory_allocators.paged_tensor_memory_allocator import PagedTensorMemoryAllocator
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, MambaSpec

STATECHECK_PROTOCOL = 2
RELEASE = version("lmcache")
PAGE = torch.Size([4])
Layer = tuple[str, list[torch.Tensor], int, int]


class Pages:
    """The allocator, and the objects that it has handed out, by slot."""

    def __init__(self, size: int) -> None:
        self.allocator = PagedTensorMemoryAllocator(torch.zeros(4 * size), [PAGE], [torch.float32])
        self.objects: dict[int, Any] = {}


def new_slots(size: int) -> Pages:
    return Pages(size)


def alloc_slots(allocator: Pages, count: int) -> list[int] | None:
    objects = allocator.allocator.batched_allocate([PAGE], [torch.float32], count)
    if objects is None:
        return None
    found = {one.meta.address + 1: one for one in objects}
    allocator.objects |= found
    return list(found)


def free_slots(allocator: Pages, slots: list[int]) -> None:
    for slot in slots:
        allocator.objects[slot].ref_count_down()


def share_slots(allocator: Pages, slots: list[int]) -> None:
    for slot in slots:
        allocator.objects[slot].ref_count_up()


def count_free_slots(allocator: Pages) -> int:
    return allocator.allocator.address_manager.get_free_size() // allocator.allocator.align_bytes


def at_the_start_of_its_memory(first: torch.Tensor, tensor: torch.Tensor, size: int) -> torch.Tensor:
    """The tensor as vLLM has it, in memory that begins where `first` does: here it lies behind a red zone."""
    memory = (ctypes.c_uint8 * size).from_address(first.data_ptr())
    offset = (tensor.data_ptr() - first.data_ptr()) // tensor.element_size()
    whole = torch.from_numpy(np.frombuffer(memory, dtype=np.uint8)).view(tensor.dtype)
    return whole.as_strided(tensor.shape, tensor.stride(), offset)


def page_views(layers: list[Layer]) -> list[torch.Tensor]:
    if not any(kind == "states" for kind, *_ in layers):
        raise NotImplementedError("models without recurrent states are not edited")
    groups, caches = [], {}
    for number, (kind, tensors, block_size, page_size) in enumerate(layers):
        first = tensors[0]
        size = first.shape[0] * first.stride(0) * first.element_size()
        views = [at_the_start_of_its_memory(first, tensor, size) for tensor in tensors]
        if kind == "states":
            shapes = tuple(tuple(tensor.shape[1:]) for tensor in tensors)
            dtypes = tuple(tensor.dtype for tensor in tensors)
            spec = MambaSpec(
                block_size=block_size,
                shapes=shapes,
                dtypes=dtypes,
                page_size_padded=page_size,
                mamba_cache_mode="align",
            )
        else:
            heads, head_size = first.shape[3:]
            spec = FullAttentionSpec(
                block_size=block_size, num_kv_heads=heads, head_size=head_size, dtype=first.dtype
            )
        groups.append(KVCacheGroupSpec([f"layer{number}"], spec))
        caches[f"layer{number}"] = views if kind == "states" else views[0]
    edited = apply_kv_cache_group_edits(KVCacheConfig(1, [], groups), caches, {})
    return [edited[f"layer{number}"] for number in range(len(layers))]
