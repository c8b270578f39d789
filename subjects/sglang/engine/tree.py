"""Prefixes that the release's tree can be hit for."""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from subjects.sglang.release import find


@dataclass(frozen=True)
class Prefix:
    """A node: the tokens from the root to its end, its slots of keys for the last of them, and its slot of states, if any; those of host memory; and
    whether it is locked, of a core that lists its nodes.
    """

    tokens: tuple[int, ...]
    keys: tuple[int, ...]
    state: int | None
    host_keys: tuple[int, ...] = ()
    host_state: int | None = None
    locked: bool = False


def prefixes(tree: Any, histories: Iterable[tuple[int, ...]]) -> Iterator[Prefix]:
    """All nodes of the tree; none without prefix caching.

    Args:
        tree: the release's cache.
        histories: all tokens that may be in it, for a core that does not list its nodes.
    """
    core = getattr(tree, "tree_core", tree)
    if not tree_lists_nodes(tree):
        yield from _matched(core, histories)
        return
    root = getattr(core, "root_node", None)
    if root is not None:
        yield from _below(root, ())


def tree_lists_nodes(tree: Any) -> bool:
    """Whether the tree's core has its nodes as objects, as that in Python does."""
    return not type(getattr(tree, "tree_core", tree)).__name__.startswith("Rust")


def _matched(core: Any, histories: Iterable[tuple[int, ...]]) -> Iterator[Prefix]:
    """The nodes that tokens lead to: every node begins like some of them."""
    kinds, key = _kinds(), find("sglang.srt.mem_cache.radix_cache:RadixKey")
    seen = set()
    for tokens in histories:
        count, last, _ = core.match_full_device_prefix(key(array("q", tokens)))
        for node in core.collect_path_info([last])[0] if count else ():
            # A part of a node is seen with the request that has all of it.
            if node.node_id in seen or node.path_end > count:
                continue
            seen.add(node.node_id)
            keys, state = (
                core.get_component_device_value(node.node_id, kind) for kind in (kinds.FULL, kinds.MAMBA)
            )
            yield _prefix(tokens[: node.path_end], keys, state)


def _below(node: Any, before: tuple[int, ...]) -> Iterator[Prefix]:
    for child in node.children.values():
        tokens = (*before, *child.key.raw_token_ids())
        yield replace(_prefix(tokens, *_cached_in(child), *_kept_by_host(child)), locked=_is_locked(child))
        yield from _below(child, tokens)


def _prefix(
    tokens: tuple[int, ...], keys: Any, state: Any, host_keys: Any = None, host_state: Any = None
) -> Prefix:
    slots = [() if listed is None else tuple(listed.tolist()) for listed in (keys, host_keys)]
    states = [None if slot is None else int(slot.reshape(-1)[0]) for slot in (state, host_state)]
    return Prefix(tokens, slots[0], states[0], slots[1], states[1])


def _cached_in(node: Any) -> tuple[Any, Any]:
    """The slots of keys and of states."""
    kinds = _kinds()
    return node.component_data[kinds.FULL].value, node.component_data[kinds.MAMBA].value


def _is_locked(node: Any) -> bool:
    kinds = _kinds()
    return any(getattr(node.component_data[kind], "lock_ref", 0) for kind in (kinds.FULL, kinds.MAMBA))


def _kept_by_host(node: Any) -> tuple[Any, Any]:
    """The slots of host memory."""
    kinds = _kinds()
    return node.component_data[kinds.FULL].host_value, node.component_data[kinds.MAMBA].host_value


def _kinds() -> Any:
    return find("sglang.srt.mem_cache.unified_cache.component_type:ComponentType")
