"""What the release's tree of prefixes can be hit for."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from subjects.sglang.release import find

_KINDS = "unified_cache.component_type", "unified_cache.components", "unified_cache_components"


@dataclass(frozen=True)
class Prefix:
    """A node: the tokens from the root to its end, its slots of keys for the last of them, and its slot of states, if any."""

    tokens: tuple[int, ...]
    keys: tuple[int, ...]
    state: int | None


def prefixes(tree: Any) -> Iterator[Prefix]:
    """Of the tree as Python has it; none without prefix caching."""
    root = getattr(getattr(tree, "tree_core", tree), "root_node", None)
    if root is not None:
        yield from _below(root, ())


def _below(node: Any, before: tuple[int, ...]) -> Iterator[Prefix]:
    for child in node.children.values():
        key = child.key
        tokens = (*before, *(key.raw_token_ids() if hasattr(key, "raw_token_ids") else key.token_ids))
        keys, state = _cached_in(child)
        yield Prefix(
            tokens,
            () if keys is None else tuple(keys.tolist()),
            None if state is None else int(state.reshape(-1)[0]),
        )
        yield from _below(child, tokens)


def _cached_in(node: Any) -> tuple[Any, Any]:
    """The slots of keys and of states; a tree for hybrid models alone has them by name."""
    if hasattr(node, "mamba_value"):
        return node.value, node.mamba_value
    kinds = find(*(f"sglang.srt.mem_cache.{place}:ComponentType" for place in _KINDS))
    return node.component_data[kinds.FULL].value, node.component_data[kinds.MAMBA].value
