"""Expected failures of a project: what its own file declares besides the known defects that the subject's adapter declares."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path

from statecheck.campaign.plan import Plan
from statecheck.execution.declared_names import require_property
from statecheck.execution.registry import Property
from statecheck.subject import Subject
from statecheck.subject.deviation import KnownDeviation, any_matches
from statecheck.subject.known import unsupported_in


def with_xfails(plan: Plan, subject: Subject) -> Subject:
    """The subject with what the plan's file declares, too; without any declared defect where all failures count as new.

    Raises:
        ValueError: the file is not as `statecheck/subject/known.py` says, or declares a defect that the subject declares.
    """
    if not plan.as_new and not plan.xfails:
        return subject
    changed = copy.copy(subject)
    changed.known_deviations = () if plan.as_new else _all_declared(subject, Path(plan.xfails))
    return changed


def _all_declared(subject: Subject, path: Path) -> tuple[KnownDeviation, ...]:
    own = {one.id for one in subject.known_deviations}
    added = subject.declared_in(path)
    for one in added:
        if one.id in own:
            raise ValueError(
                f"id = {one.id!r}, but should not be that of a defect that the subject declares [{path}]"
            )
    return (*subject.known_deviations, *added)


def unsupported(plan: Plan, tested: Mapping[str, Property], model: str = "") -> dict[str, str]:
    """By property, why it is not applicable according to the plan's file.

    Args:
        model: of a library of sequences: why it is not applicable to this model; "": why to none.

    Raises:
        ValueError: as `with_xfails`; or a name in an entry matches no property.
    """
    reasons: dict[str, str] = {}
    for entry in unsupported_in(Path(plan.xfails)) if plan.xfails else ():
        names = tuple(entry.properties)
        for name in names:
            require_property(name, tested, plan.xfails)
        found = [
            name for name, one in tested.items() if any_matches(names, name) or any_matches(names, one.id)
        ]
        if not any_matches(tuple(entry.models), model) if entry.models else bool(model):
            continue
        reasons |= dict.fromkeys(found, f"declared as unsupported: {entry.why}")
    return reasons
