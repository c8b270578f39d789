"""What a replay through a release's own engine shows and leaves behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

from properties.engine.traffic.options import ReplayOptions
from properties.engine.traffic.report import print_text
from properties.engine.traffic.violations import STEP, LiveViolation
from properties.strategies.live import LiveWorld
from statecheck.case import Case
from statecheck.case.failure import stated
from statecheck.case.values import Call, Outcome, Record, Returned, call
from statecheck.report.block_tables import page_of
from statecheck.report.scenario_timeline import timeline_of
from statecheck.subject import Subject

_SHOWN = 10


def release_line(world: LiveWorld, subject: Subject) -> str:
    """The release's engine."""
    return (
        f"{subject.name} {subject.release}, its own engine, runner {world.runner}, layout {world.layout}, "
        f"attention + {' + '.join(world.kinds)}, {world.num_blocks:,} blocks of {world.block_size} tokens, "
        f"{world.max_num_batched_tokens:,} tokens a step, "
        f"{'async' if world.async_scheduling else 'no async'} scheduling"
    )


def tell_violations(
    console: Console,
    options: ReplayOptions,
    world: LiveWorld,
    found: Sequence[Mapping[str, Any]],
    first: tuple[LiveViolation, tuple[tuple[Call, Outcome], ...]] | None,
) -> None:
    """Print what broke a law, and draw the first of it."""
    _print_violations(console, found)
    if first is not None:
        _draw_violation(console, options, world, *first)


def _print_violations(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    declared = Counter(one["defect"] for one in found if one["defect"])
    for name, count in sorted(declared.items()):
        print_text(console, f"known: {name}, {count:,} violation{'s' if count > 1 else ''}")
    new = [one for one in found if not one["defect"]]
    for one in new[:_SHOWN]:
        print_text(console, f"VIOLATION in step {one['step']}, {one['law']}: {one['message']}")
    if len(new) > _SHOWN:
        print_text(console, f"and {len(new) - _SHOWN:,} more, in replay.json")


def _draw_violation(
    console: Console,
    options: ReplayOptions,
    world: LiveWorld,
    violation: LiveViolation,
    recent: Iterable[tuple[Call, Outcome]],
) -> None:
    """Block tables of the last steps up to the violation, of the request that it is of."""
    names = {violation.request} if violation.request else None
    did = [(made, _narrowed(outcome, names)) for made, outcome in recent if _is_of(made, names)]
    while len(did) > 1 and _is_idle(did[0][1]):
        did.pop(0)
    first = violation.step + 1 - sum(made.function == STEP for made, _ in did)
    engine = call("LiveEngine", settings=world.settings), Returned(None)
    steps, actual = zip(engine, *did, strict=True)
    failure = stated(violation.message, place=f"result.broken.{violation.law}", function=STEP)
    case = Case("", "", options.subject, steps, tuple(Returned(None) for _ in steps), actual, failure)
    timeline = timeline_of(case, first)
    if timeline is None:
        return
    target = options.out / "violation.html"
    target.write_text(page_of(timeline), encoding="utf-8")
    what = "the first that is not declared" if not violation.defect else "the first, a declared one"
    again = f"--requests {options.requests} --seed {options.seed}"
    print_text(
        console, f"block tables {target}: {what}, in step {violation.step}; it comes again with {again}"
    )


def _is_idle(outcome: Outcome) -> bool:
    """Whether it is a step in which the request has no part yet."""
    value = outcome.value if isinstance(outcome, Returned) else None
    seen = dict(value.fields) if isinstance(value, Record) else {"owners": True}
    return not seen.get("tables") and not seen.get("owners")


def _is_of(made: Call, names: set[str] | None) -> bool:
    return made.function == STEP or names is None or made.named.get("id") in names


def _narrowed(outcome: Outcome, names: set[str] | None) -> Outcome:
    """A step's outcome without what other requests did."""
    if names is None or not isinstance(outcome, Returned) or not isinstance(outcome.value, Record):
        return outcome
    seen: dict[str, Any] = dict(outcome.value.fields)
    for name in ("scheduled", "outputs"):
        seen[name] = {one: what for one, what in seen[name].items() if one in names}
    for name in ("preempted", "finished"):
        seen[name] = tuple(one for one in seen[name] if one in names)
    kept = [one[0] in names for one in seen["owners"]]
    seen["held"] = tuple(one for one, mine in zip(seen["held"], kept, strict=True) if mine)
    for name in ("owners", "tables", "accesses"):
        seen[name] = tuple(one for one in seen[name] if one[0] in names)
    mine = {(group, block) for _, group, _, block in (*seen["owners"], *seen["tables"])}
    seen["published"] = tuple(one for one in seen["published"] if one[:2] in mine)
    seen["findings"] = tuple(one for one in seen["findings"] if one[3].get("request", "") in (*names, ""))
    return replace(outcome, value=Record(outcome.value.type, tuple(seen.items())))
