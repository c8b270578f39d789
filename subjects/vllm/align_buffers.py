"""Buffers and lists of pointers of align mode, as the release has them."""

import dataclasses
from typing import Any

from statecheck.subject.not_offered import NotOffered
from subjects.vllm.release import RELEASE, optional

__all__ = [
    "CpuGpuBuffer",
    "MambaCopyBuffers",
    "batch_memcpy",
    "collect_mamba_copy_meta",
    "do_mamba_copy_block",
    "get_mamba_groups",
]

CpuGpuBuffer = optional("vllm.v1.utils:CpuGpuBuffer")
batch_memcpy = optional("vllm.v1.worker.mamba_utils:batch_memcpy")
do_mamba_copy_block = optional("vllm.v1.worker.mamba_utils:do_mamba_copy_block")

_GroupSpec = optional("vllm.v1.kv_cache_interface:MambaSpec")
_ReleasedCopyBuffers: Any = optional("vllm.v1.worker.mamba_utils:MambaCopyBuffers")
_released_collect = optional("vllm.v1.worker.mamba_utils:collect_mamba_copy_meta")
_released_groups = optional("vllm.v1.worker.mamba_utils:get_mamba_groups")

SEVERAL_SPECS = RELEASE >= (0, 29)
"""Whether groups may keep different states, each with copy functions of its own, which are found by the type of its layers."""


def state_specs(config: Any) -> list[Any]:
    """The specifications of the groups with recurrent state."""
    specs = [group.kv_cache_spec for group in config.kv_cache_groups]
    return [spec for spec in specs if isinstance(spec, _GroupSpec)]


def as_released(config: Any) -> Any:
    """The cache, with a type of its own for layers that keep only the first of the states, as releases since 0.29 want it.

    Raises:
        NotOffered: groups differ, before 0.29.
    """
    specs = state_specs(config)
    if SEVERAL_SPECS:
        groups = [_typed_group(group) for group in config.kv_cache_groups]
        return dataclasses.replace(config, kv_cache_groups=groups)
    if any(spec != specs[0] for spec in specs):
        raise NotOffered("before 0.29 all groups with recurrent state have to be alike")
    return config


def _typed_group(group: Any) -> Any:
    spec = group.kv_cache_spec
    if not isinstance(spec, _GroupSpec):
        return group
    kind = f"layers of {len(spec.shapes)} states"
    return dataclasses.replace(group, kv_cache_spec=dataclasses.replace(spec, mamba_type=kind))


def released_functions(config: Any, functions: Any) -> Any:
    """The copy functions as the release takes them: by the type of the layers since 0.29, and one list of them before."""
    if not SEVERAL_SPECS:
        return functions
    return {spec.mamba_type: functions[: len(spec.shapes)] for spec in state_specs(as_released(config))}


def get_mamba_groups(kv_cache_config: Any) -> tuple[list[int], Any]:
    """Since 0.29 a release returns the groups of each specification."""
    found = _released_groups(as_released(kv_cache_config))
    if not SEVERAL_SPECS:
        ids, spec = found
        return ids, spec
    return sorted({group for groups in found.values() for group in groups}), next(iter(found))


class MambaCopyBuffers(_ReleasedCopyBuffers):
    """Lists of pointers; since 0.29 their copy functions are given by the type of the layers."""

    @classmethod
    def create(cls, max_num_reqs: int, kv_cache_config: Any, copy_funcs: Any, make_buffer: Any) -> Any:
        functions = released_functions(kv_cache_config, copy_funcs)
        made = super().create(max_num_reqs, as_released(kv_cache_config), functions, make_buffer)
        # What a context for the same copies is made of.
        made.for_context = (max_num_reqs, kv_cache_config, len(copy_funcs), make_buffer)
        made.align_ctx = None
        return made


def collect_mamba_copy_meta(
    bufs: Any,
    kv_cache_config: Any,
    copy_funcs: Any,
    group_ids: Any,
    src_col: int,
    dst_col: int,
    bias: int,
    req_state: Any,
    forward_context: Any,
) -> None:
    """Since 0.29 copy functions are given by the type of the layers."""
    config, functions = as_released(kv_cache_config), released_functions(kv_cache_config, copy_funcs)
    _released_collect(bufs, config, functions, group_ids, src_col, dst_col, bias, req_state, forward_context)
