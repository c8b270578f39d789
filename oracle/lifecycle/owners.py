"""The laws of whose the blocks are, on plain values.

Every block is counted once for each owner, and is free without one. No block has two owners but as a prefix that is shared. Then all
owners are of one group, and each has the block once. A page of keys is in the same column for all of them, since its tokens are at
the same positions. The column of a recurrent state is the request's own affair: what its rows read is another law.
Source: the semantic invariant.
"""

from collections import Counter
from collections.abc import Collection, Iterator

from oracle.lifecycle.broken_laws import Broken
from oracle.lifecycle.observed import ObservedStep


def broken_by_owners(seen: ObservedStep, num_blocks: int, paged: Collection[int]) -> Iterator[Broken]:
    """What is owned twice, miscounted or lost; `paged` are the groups of attention."""
    yield from _owned_twice(seen, paged)
    references = dict(seen.references)
    counts = Counter(block for *_, block in seen.owners_after)
    if seen.transfers is not None:
        counts.update(seen.transfers.kept)
    for block in sorted(references.keys() | counts.keys()):
        if references.get(block, 0) != counts[block]:
            yield (
                "owned",
                f"block {block} is counted {references.get(block, 0)} times",
                f"should be {counts[block]} times, once for each owner",
                {},
            )
            return
    free = num_blocks - 1 - len(references)
    if seen.free != free:
        yield "free", f"free blocks = {seen.free}", f"should be {free}", {}


def _owned_twice(seen: ObservedStep, paged: Collection[int]) -> Iterator[Broken]:
    owners: dict[int, list[tuple[str, int, int]]] = {}
    for name, group, column, block in seen.owners_after:
        owners.setdefault(block, []).append((name, group, column))
    shared = {block for _, block, *_ in seen.published}
    for block, columns_held in owners.items():
        names, groups, columns = (set(values) for values in zip(*columns_held, strict=True))
        about = {"group": min(groups), "block": block}
        if len(names) < len(columns_held) or len(groups) > 1 or (min(groups) in paged and len(columns) > 1):
            places = ", ".join(
                f"column {column} of {name} in group {group}" for name, group, column in columns_held
            )
            yield "owned", f"block {block} is {places}", "should be one column of one group", about
        if len(columns_held) > 1 and block not in shared:
            wanted = "should have one, as no published prefix"
            yield "owned", f"block {block} has {len(columns_held)} owners", wanted, about
