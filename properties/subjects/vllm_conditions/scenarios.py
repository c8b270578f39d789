"""What a case says of a scenario: its settings, its steps, and the wrong state that the broken step tells of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from oracle.profile import Profile
from properties.harness.case import Case
from properties.harness.case.values import Record, Returned


def settings_of(case: Case) -> dict[str, Any]:
    """What the engine of the case is like, where that is not as usual."""
    return dict(case.calls[0].named["settings"].fields)


def of_engine(asked: Callable[[dict[str, Any]], bool]) -> Callable[[Case, Profile], bool]:
    return lambda case, _: asked(settings_of(case))


def about_of(case: Case) -> dict[str, Any]:
    """What `LiveLaws` tells of the wrong state that breaks the law of the failure; nothing where there is none."""
    law = case.failure.part.rpartition(".")[2] if case.failure is not None else ""
    ended = case.actual[-1] if case.actual else None
    step = ended.value if isinstance(ended, Returned) else None
    findings = step["findings"] if isinstance(step, Record) and step.type == "LiveStep" else ()
    told = next((dict(about) for broken, *_, about in findings if broken == law), {})
    return {"request": "", "tokens": -1, "found": (), "conv": False} | told


def steps_of(case: Case) -> list[dict[str, Mapping[str, Any]]]:
    """What the scheduler decided, step by step, for each request of the step."""
    ended = (one.value for one in case.actual if isinstance(one, Returned))
    steps = [one for one in ended if isinstance(one, Record) and one.type == "LiveStep"]
    return [{name: dict(decided) for name, decided in dict(one["scheduled"]).items()} for one in steps]


def decided_of(case: Case) -> Mapping[str, Any]:
    """As `_steps`, of the last step for the request whose state is wrong; nothing of it where it had no part."""
    steps = steps_of(case)
    nothing = {"computed": -1, "tokens": 0, "drafts": 0, "begins": False}
    return steps[-1].get(about_of(case)["request"], nothing) if steps else nothing


def of_wrong_state(so: Callable[[dict[str, Any]], bool]) -> Callable[[Case, Profile], bool]:
    """Whether the wrong state is such a one."""
    return lambda case, _: so(about_of(case))


def all_of(*conditions: Callable[[Case, Profile], bool]) -> Callable[[Case, Profile], bool]:
    return lambda case, profile: all(one(case, profile) for one in conditions)


def own(about: dict[str, Any]) -> bool:
    """States of the request itself, after another count of tokens or after drafts."""
    found = about["found"]
    return bool(found) and all(owner == about["request"] for owner, _, _ in found)


def somebodys(about: dict[str, Any]) -> bool:
    """States of requests, or zeros. A block may be named after another request than the one that wrote it."""
    return bool(about["found"]) and all(owner != "?" for owner, _, _ in about["found"])


def speculates(settings: dict[str, Any]) -> bool:
    return bool(settings.get("num_spec", 0) > 0)
