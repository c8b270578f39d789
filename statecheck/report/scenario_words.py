"""What happened in the scenario of a release's own engine, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from statecheck.case.values import Call, Record

Found = tuple[str, int, tuple[int, ...]]
"""A state as the laws name it: its request, how many of its tokens it is after, and then which others."""
Founds = tuple[Found, ...]
Tables = Mapping[tuple[str, int], Mapping[int, int]]


def tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count} tokens"


def holds(found: Found) -> str:
    """A state in a few words, without its owner."""
    owner, count, more = found
    if owner == "?":
        return "no state"
    if owner == "@":
        return "a state of another layer or kind"
    known = tokens(count) if owner else "zeros"
    return f"{known} + {len(more)} other" if more else known


def wrong_row(founds: Founds, request: str, count: int) -> tuple[int, int]:
    """The first conv row that is not its token's, and after how many tokens its state should be; see `KnownStates.window`."""
    wanted = [max(0, count - len(founds) + 1 + at) for at in range(len(founds))]
    for at, (found, right) in enumerate(zip(founds, wanted, strict=True)):
        if found != ((request, right, ()) if right else ("", 0, ())):
            return at, right
    return 0, wanted[0] if wanted else 0


def engine(settings: Record) -> str:
    """What its groups are."""
    kinds = [f"group {number} {kind}" for number, kind in enumerate(settings["kinds"], 1)]
    return f"group 0 is attention, {', '.join(kinds)}"


def happened(call: Call) -> Iterator[str]:
    """What a call between steps does."""
    named, function = call.named, call.function.partition(".")[2]
    if function == "add_request":
        yield f"{named['id']} comes in with {tokens(len(named['prompt']))}"
    elif function == "abort":
        yield f"{named['id']} is aborted"
    elif function == "reset_prefix_cache":
        yield f"the prefix cache is reset{', and requests that run are preempted' if named['preempt'] else ''}"


def decided(step: Mapping[str, Any], before: Tables, tables: Tables, begun: set[str]) -> list[str]:
    """What the scheduler decided; requests that begin are `begun` from then on."""
    words = [f"{name} is preempted" for name in step["preempted"]]
    for name, work in step["scheduled"].items():
        words.append(f"{name} {_work(work, again=name in begun)}")
        begun.add(name)
    return words + _moved(before, tables)


def _work(one: Mapping[str, Any], *, again: bool) -> str:
    own, drafts = one["tokens"] - one["drafts"], one["drafts"]
    work = f"computes {own}" + (f" and {drafts} {'draft' if drafts == 1 else 'drafts'}" if drafts else "")
    if not one["begins"]:
        return work
    hit = f" with a hit of {tokens(one['computed'])}" if one["computed"] else ""
    return f"{'resumes' if again else 'begins'}{hit} and {work}"


def added(step: Mapping[str, Any], before: Tables, tables: Tables) -> list[str]:
    """What came of the step."""
    words = [f"{name} says {tokens(len(said))}" for name, said in step["outputs"].items()]
    words += [f"{name} finishes" for name in step["finished"]]
    return [*words, *_moved(before, tables), f"{step['free']} blocks are free"]


def _moved(before: Tables, after: Tables) -> list[str]:
    """Which blocks requests get and lose."""
    words = []
    for name in dict.fromkeys(name for name, _ in (*before, *after)):
        had, has = _blocks(before, name), _blocks(after, name)
        words += [f"{name} gets {_named(has - had)}"] if has - had else []
        words += [f"{name} gives back {_named(had - has)}"] if had - has else []
    return words


def _blocks(tables: Tables, name: str) -> set[int]:
    return {block for (of, _), table in tables.items() if of == name for block in table.values()}


def _named(blocks: set[int]) -> str:
    return f"block{'s' if len(blocks) > 1 else ''} {', '.join(map(str, sorted(blocks)))}"


def published_now(
    before: Mapping[tuple[int, int], tuple[str, int]], now: Mapping[tuple[int, int], tuple[str, int]]
) -> list[str]:
    """Which blocks may be hit now, and which may not be any more."""
    words = [
        f"block {block} may be hit as {tokens(count)} of {name or 'no request'}"
        for (group, block), (name, count) in now.items()
        if before.get((group, block)) != (name, count)
    ]
    gone = {block for _, block in before.keys() - now.keys()}
    return words + ([f"{_named(gone)} may not be hit any more"] if gone else [])
