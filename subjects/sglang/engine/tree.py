"""What the release's tree of prefixes can be hit for."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from subjects.sglang.release import find


@dataclass(frozen=True)
class Prefix:
    """A node: the tokens from the root to its end, its slots of keys for the last of them, and its slot of states, if any."""

    tokens: tuple[int, ...]
    keys: tuple[int, ...]
    state: int | None


def prefixes(tree: Any) -> Iterator[Prefix]:
    """Of the tree as Python has it; none without prefix caching."""
    core = getattr(tree, "tree_core", None)
    if core is not None:
        kinds = find("sglang.srt.mem_cache.unified_cache.component_type:ComponentType")
        yield from _below(core.root_node, (), kinds)


def _below(node: Any, before: tuple[int, ...], kinds: Any) -> Iterator[Prefix]:
    for child in node.children.values():
        tokens = (*before, *child.key.raw_token_ids())
        keys, state = (child.component_data[kind].value for kind in (kinds.FULL, kinds.MAMBA))
        yield Prefix(
            tokens,
            () if keys is None else tuple(keys.tolist()),
            None if state is None else int(state.reshape(-1)[0]),
        )
        yield from _below(child, tokens, kinds)
