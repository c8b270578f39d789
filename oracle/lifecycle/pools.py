"""The laws of whose slots are, in an engine that counts no references, on plain values.

Every slot has an owner: it is free, or the tree of prefixes has it, or a request. None has two, but that requests share the keys of a
prefix that is cached. A state is never shared: it is copied before a request continues it. A slot that is copied to host memory is not
free before the copy is done: what is free may be written. Source: the semantic invariant.
"""

from collections import Counter
from collections.abc import Iterator

from oracle.lifecycle.broken_laws import Broken
from oracle.lifecycle.observed import ObservedStep, SlotPool


def broken_by_pools(seen: ObservedStep) -> Iterator[Broken]:
    """What is owned twice, free while it is in use or copied, or lost."""
    for pool in seen.pools:
        yield from _owned_twice(pool)
        yield from _lost(pool)
        yield from _free_too_early(pool)


def _owned_twice(pool: SlotPool) -> Iterator[Broken]:
    free, cached = Counter(pool.free), Counter(pool.cached)
    owners: dict[int, list[str]] = {}
    for name, slots in pool.held.items():
        for slot in slots:
            owners.setdefault(slot, []).append(name)
    for slot in pool.slots:
        names = owners.get(slot, [])
        found = [*["the free list"] * free[slot], *["the cache"] * cached[slot], *names]
        as_prefix = pool.shared and cached[slot] == 1 and not free[slot] and len(set(names)) == len(names)
        if len(found) > 1 and not as_prefix:
            about = {"group": pool.group, "block": slot}
            yield (
                "owned",
                f"slot {slot} of group {pool.group} belongs to {' and '.join(found)}",
                "should have one owner",
                about | ({"request": names[0]} if names else {}),
            )
            return


def _lost(pool: SlotPool) -> Iterator[Broken]:
    known = {*pool.free, *pool.cached}.union(*pool.held.values())
    lost = [slot for slot in pool.slots if slot not in known]
    if lost:
        yield (
            "free",
            f"slots {lost} of group {pool.group} belong to no request and no prefix",
            "should be free",
            {"group": pool.group, "block": lost[0]},
        )


def _free_too_early(pool: SlotPool) -> Iterator[Broken]:
    early = sorted(set(pool.free).intersection(pool.copied))
    if early:
        yield (
            "saved",
            f"slot {early[0]} of group {pool.group} is free, and a copy to host memory still reads it",
            "should be in use until the copy is done",
            {"group": pool.group, "block": early[0]},
        )
