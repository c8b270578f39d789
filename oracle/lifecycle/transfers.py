"""The laws of blocks that a connector loads and saves, on plain values.

A block that is being loaded belongs to the request that it is loaded for: until the scheduler knows that the load is done, no row
of that request runs, no other request reads or writes the block, it may not be hit, and it is neither freed nor given away. A load that
runs beside steps is not ordered with them, so that it begins in no block that a step in flight writes. A block that
is being saved is not written before that is done, and is counted as in use until then. What is saved as k tokens of a request is
the state after exactly these, and so is what a request begins behind that was loaded as c tokens, in every layer and group. Source: the interface `KVConnectorBase_V1`, and the semantic invariant.
"""

from collections.abc import Collection, Iterator, Mapping

from oracle.lifecycle.broken_laws import Broken
from oracle.lifecycle.observed import ForwardRow, ObservedStep, Place


def broken_by_loads(
    seen: ObservedStep, page: int, before: Mapping[Place, str], in_flight: Collection[int]
) -> Iterator[Broken]:
    """What breaks the law of blocks that are being loaded.

    Args:
        page: tokens of an attention block.
        before: places that were being loaded behind the step before, and for which request.
        in_flight: blocks that batches in flight write, in whichever group.
    """
    moved = seen.transfers
    assert moved is not None
    for row in seen.rows:
        if row.request in moved.loading.values():
            yield (
                "loading",
                f"{row.request} runs while its blocks are being loaded",
                "should wait",
                {"request": row.request},
            )
        for place in sorted(_places_read(row) | places_written(row, page)):
            if moved.loading.get(place, row.request) != row.request:
                yield _of_loading_block(f"the forward of {row.request} uses", place, moved.loading[place])
    for place, name in {**moved.loading, **moved.loading_after}.items():
        if place[1] in in_flight and before.get(place) != name:
            yield _of_loading_block("a step in flight writes", place, name)
    owned = {(name, (group, block)) for name, group, _, block in seen.owners_after}
    for place, name in moved.loading_after.items():
        if (name, place) not in owned:
            yield _of_loading_block(f"{name} does not have", place, name)
    for group, block, *_ in seen.published:
        if (group, block) in moved.loading_after:
            yield _of_loading_block("a hit may name", (group, block), moved.loading_after[group, block])


def broken_by_saves(seen: ObservedStep, page: int) -> Iterator[Broken]:
    """What breaks the law of blocks that are being saved."""
    moved = seen.transfers
    assert moved is not None
    for row in seen.rows:
        for group, block in sorted(places_written(row, page) & moved.saving):
            yield (
                "saved",
                f"the forward of {row.request} writes to block {block} of group {group}, which is being saved",
                "should not before that is done",
                {"request": row.request, "group": group, "block": block},
            )
    used = {block for block, _ in seen.references}
    for group, block in sorted(moved.saving_after):
        if block not in used:
            yield (
                "saved",
                f"block {block} of group {group}, which is being saved, is free",
                "should be in use until that is done",
                {"group": group, "block": block},
            )
    for block in sorted(moved.freed):
        yield (
            "saved",
            f"block {block} was free before it was copied",
            "should be in use until its copy is done",
            {"block": block},
        )


def _of_loading_block(seen: str, place: Place, name: str) -> Broken:
    group, block = place
    return (
        "loading",
        f"{seen} block {block} of group {group}, which is being loaded for {name}",
        "should be its own alone until the load is done",
        {"request": name, "group": group, "block": block},
    )


def _places_read(row: ForwardRow) -> set[Place]:
    pages = {(0, block) for block in row.table}
    return pages | {
        (access.group, block) for access in row.groups if access.initial for block in access.blocks
    }


def places_written(row: ForwardRow, page: int) -> set[Place]:
    """Where a row writes; `page` is how many tokens an attention block has."""
    pages = {(0, slot // page) for slot in row.slots}
    return pages | {(access.group, block) for access in row.groups for block in access.written}
