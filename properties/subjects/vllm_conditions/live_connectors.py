"""Conditions about scenarios with a connector: what was loaded for whom, and what waits for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from oracle.profile import Profile
from properties.harness.case import Case
from properties.harness.case.values import Record, Returned
from properties.harness.subject.deviation import Condition
from properties.subjects.vllm_conditions.scenarios import (
    about_of,
    all_of,
    decided_of,
    of_engine,
    of_wrong_state,
    own,
    speculates,
    steps_of,
)


def _loads_at_once(settings: dict[str, Any]) -> bool:
    return settings.get("connector") == "sync" and bool(settings.get("prefix_caching", True))


def _connected(settings: dict[str, Any]) -> bool:
    return bool(settings.get("connector")) and bool(settings.get("prefix_caching", True))


def _waits_with_drafts(settings: dict[str, Any]) -> bool:
    return speculates(settings) and settings.get("connector") == "async"


def _told(case: Case) -> list[Record]:
    """What the steps returned."""
    ended = (one.value for one in case.actual if isinstance(one, Returned))
    return [one for one in ended if isinstance(one, Record) and one.type == "LiveStep"]


def _loaded_in_its_step(case: Case, _: Profile) -> bool:
    """Whether the request that reads a wrong state has just begun, behind tokens that a connector loaded in the same step."""
    about, decided, steps = about_of(case), decided_of(case), _told(case)
    loaded = steps[-1]["loaded"] if steps else ()
    found = any(
        name == about["request"] and group and tokens == about["tokens"] for group, _, name, tokens in loaded
    )
    return bool(decided["begins"]) and decided["computed"] == about["tokens"] and found


def _loads_of(case: Case) -> Iterator[tuple[int, int]]:
    """(group, tokens) of each block that was loaded for the request that reads what is wrong."""
    for step in _told(case):
        yield from (
            (group, tokens) for group, _, name, tokens in step["loaded"] if name == about_of(case)["request"]
        )


def _hit_without_its_block(case: Case, _: Profile) -> bool:
    """Whether the request has just begun, by a hit, and the block that it misses was never loaded for it."""
    about, decided = about_of(case), decided_of(case)
    loaded = any(
        group == about.get("group") and tokens >= about["tokens"] for group, tokens in _loads_of(case)
    )
    return bool(decided["begins"]) and 0 < about["tokens"] <= decided["computed"] and not loaded


def _begins_as_a_decode(case: Case, _: Profile) -> bool:
    """Whether the request that reads a wrong state has just begun, behind tokens that were loaded."""
    decided = decided_of(case)
    return bool(decided["begins"]) and decided["computed"] > 0 and any(_loads_of(case))


def _has_work(case: Case) -> bool:
    """Whether the last step before the call had rows."""
    steps = steps_of(case)
    return bool(steps and steps[-1])


def _stuck_after_a_failed_load(case: Case, _: Profile) -> bool:
    """Whether nothing runs any more since a load failed."""
    steps = _told(case)
    failed = [at for at, step in enumerate(steps) if step["unloaded"]]
    return bool(failed) and not steps[-1]["scheduled"] and not steps[-1]["loaded"]


def _stuck_after_loads(case: Case, _: Profile) -> bool:
    """Whether nothing runs any more, no load has failed, and requests have what was loaded for them."""
    steps = _told(case)
    waiting = {name for name, *_ in steps[-1]["owners"]} if steps and not steps[-1]["scheduled"] else set()
    loaded = {name for step in steps for _, _, name, _ in step["loaded"]}
    return bool(waiting & loaded) and not any(step["unloaded"] for step in steps)


def _sat_a_step_out(case: Case, _: Profile) -> bool:
    """Whether the request ran with drafts, had no part in the step before its last one, and was not preempted for that."""
    name, steps = about_of(case)["request"], steps_of(case)
    drafted = any(step[name]["drafts"] for step in steps[:-2] if name in step)
    return drafted and name in steps[-1] and name not in steps[-2] and not decided_of(case)["begins"]


LIVE_CONNECTORS: Mapping[str, Condition] = {
    "loads_at_once": Condition(of_engine(_loads_at_once)),
    "loaded_in_its_step": Condition(of_engine(_loads_at_once), _loaded_in_its_step),
    "sat_a_step_out": Condition(
        of_engine(lambda settings: speculates(settings) and settings.get("runner") == "V1"),
        all_of(of_wrong_state(own), _sat_a_step_out),
    ),
    "stuck_after_a_failed_load": Condition(
        of_engine(lambda settings: bool(settings.get("failing_loads"))), _stuck_after_a_failed_load
    ),
    "connected_and_overlapped": Condition(
        of_engine(
            lambda settings: bool(settings.get("connector")) and bool(settings.get("async_scheduling"))
        ),
        lambda case, _: _has_work(case),
    ),
    "hit_without_its_block": Condition(of_engine(_connected), _hit_without_its_block),
    "begins_as_a_decode": Condition(
        of_engine(
            lambda settings: (
                speculates(settings)
                and settings.get("runner", "V2") == "V2"
                and not settings.get("prefix_caching", True)
            )
        ),
        _begins_as_a_decode,
    ),
    "stuck_after_loads": Condition(of_engine(_waits_with_drafts), _stuck_after_loads),
}
