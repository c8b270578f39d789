"""Which groups of the cache hold recurrent states."""

from typing import Any

from ..checks import refuse

_SPEC_FIELDS = ("shapes", "dtypes", "block_size", "num_speculative_blocks", "mamba_cache_mode")
_COMMON_FIELDS = ("block_size", "num_speculative_blocks", "mamba_cache_mode")


def get_mamba_groups(kv_cache_config: Any) -> tuple[list[int], Any]:
    """Indices of the groups whose spec is a MambaSpec, and the first such spec.

    A spec is recognised by its fields, so that an engine's own class will do. Shapes and dtypes may differ
    from group to group.

    Raises ValueError naming `kv_cache_config` if there is no such group, or if block_size,
    num_speculative_blocks or mamba_cache_mode differ between groups. Source: contract 1.7.
    """
    specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
    group_ids = [i for i, spec in enumerate(specs) if all(hasattr(spec, field) for field in _SPEC_FIELDS)]
    if not group_ids:
        rule = "a configuration with mamba groups"
        refuse("kv_cache_config", f"{len(specs)} groups without a MambaSpec", rule, "get_mamba_groups")
    first = specs[group_ids[0]]
    for group_id in group_ids:
        _check_same(specs[group_id], first, group_id, group_ids[0])
    return group_ids, first


def _check_same(spec: Any, first: Any, group_id: int, first_id: int) -> None:
    for field in _COMMON_FIELDS:
        value, expected = getattr(spec, field), getattr(first, field)
        if value != expected:
            place = f"kv_cache_config.kv_cache_groups[{group_id}].kv_cache_spec.{field}"
            refuse(place, repr(value), f"{expected!r} as in group {first_id}", "get_mamba_groups")
