"""Conditions about scenarios with a connector: what was loaded for which request, and what waits for it."""

from __future__ import annotations

from collections.abc import Mapping

from statecheck.subject.known import Condition
from subjects.vllm_conditions.scenarios import RecordedScenario, of_scenario


def _loads_at_once(s: RecordedScenario) -> bool:
    return s.settings["connector"] == "sync" and bool(s.settings["prefix_caching"])


def _loaded_in_its_step(s: RecordedScenario) -> bool:
    """Whether the request that reads a wrong state has just begun, behind tokens that a connector loaded in the same step."""
    loaded = s.returned[-1]["loaded"] if s.returned else ()
    found = any(
        name == s.request and group and tokens == s.wrong["tokens"] for group, _, name, tokens in loaded
    )
    return bool(s.row["begins"]) and s.row["computed"] == s.wrong["tokens"] and found


def _stuck_after_a_failed_load(s: RecordedScenario) -> bool:
    """Whether nothing runs any more since a load failed."""
    failed = any(step["unloaded"] for step in s.returned)
    return failed and not s.returned[-1]["scheduled"] and not s.returned[-1]["loaded"]


def _stuck_after_loads(s: RecordedScenario) -> bool:
    """Whether nothing runs any more, no load has failed, and requests have what was loaded for them."""
    steps = s.returned
    waiting = {name for name, *_ in steps[-1]["owners"]} if steps and not steps[-1]["scheduled"] else set()
    loaded = {name for step in steps for _, _, name, _ in step["loaded"]}
    return bool(waiting & loaded) and not any(step["unloaded"] for step in steps)


def _sat_a_step_out(s: RecordedScenario) -> bool:
    """Whether the request ran with drafts, had no part in the step before its last one, and was not preempted for that."""
    name, steps = s.request, s.steps
    drafted = any(step[name]["drafts"] for step in steps[:-2] if name in step)
    return drafted and name in steps[-1] and name not in steps[-2] and not s.row["begins"]


CONNECTORS: Mapping[str, Condition] = {
    "loads_at_once": of_scenario(_loads_at_once),
    "loaded_in_its_step": of_scenario(_loads_at_once, _loaded_in_its_step),
    "sat_a_step_out": of_scenario(
        lambda s: s.speculates and s.settings["runner"] == "V1", lambda s: s.found_own and _sat_a_step_out(s)
    ),
    "stuck_after_a_failed_load": of_scenario(
        lambda s: bool(s.settings["failing_loads"]), _stuck_after_a_failed_load
    ),
    "connected_and_overlapped": of_scenario(
        lambda s: bool(s.settings["connector"] and s.settings["async_scheduling"]),
        lambda s: bool(s.steps and s.steps[-1]),
    ),
    "stuck_after_loads": of_scenario(
        lambda s: s.speculates and s.settings["connector"] == "async", _stuck_after_loads
    ),
}
