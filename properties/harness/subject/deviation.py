"""Known defects: the properties that they break, and how that shows in a failure's fields."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oracle.profile import Profile

if TYPE_CHECKING:
    from properties.harness.case import Case
    from properties.harness.case.failure import Failure, Kind

_WILDCARD = "*"
Names = str | tuple[str, ...]
"""A name or several, with `*` for any characters as a part of each."""


def _always(_: Case) -> bool:
    return True


def _in_every_release(_: Case, __: Profile) -> bool:
    return True


@dataclass(frozen=True)
class Condition:
    """What a defect wants of a case beside the place where it shows; each is asked with the profile of the subject's release.

    Args:
        inputs: whether the case's inputs are such that the defect can show.
        outcome: whether what came out is what the defect makes of such inputs.
    """

    inputs: Callable[[Case, Profile], bool] = _in_every_release
    outcome: Callable[[Case, Profile], bool] = _in_every_release

    def __call__(self, case: Case, profile: Profile) -> bool:
        return self.inputs(case, profile) and self.outcome(case, profile)


@dataclass(frozen=True)
class Symptom:
    """One way in which a defect shows: the fields of a failure, see `Failure`.

    Args:
        kind: "value", "refusal", "memory", "race", "fault" or "hang".
        function: the function whose call shows it; "" for what an engine's life shows and no single call.
        place: where in the result, without indices, such as "result.num_decodes"; of a life "read", "stored", "output".
        exception: the name of the exception that is raised, or several; None where that does not matter.
        condition: narrows it to some cases.

    Raises:
        ValueError: a field would match every failure, or none.
    """

    kind: Kind
    function: Names
    place: Names
    exception: Names | None = None
    condition: Condition = field(default=Condition())

    def __post_init__(self) -> None:
        from properties.harness.case.failure import KINDS, without_indices

        if self.kind not in KINDS:
            raise ValueError(f"kind = {self.kind!r}, but should be one of {sorted(KINDS)} [Symptom]")
        if self.exception is not None:
            _require_narrow("exception", self.exception, "Symptom")
        if self.function != "":
            _require_narrow("function", self.function, "Symptom")
        _require_narrow("place", self.place, "Symptom")
        for one in _several(self.place):
            if one != without_indices(one):
                rule = f"{without_indices(one)!r}, without what belongs to one input"
                raise ValueError(f"place = {one!r}, but should be {rule} [Symptom]")

    def fits(self, failure: Failure) -> bool:
        """Whether a failure's fields are those of the symptom, whatever the case."""
        return (
            failure.kind == self.kind
            and any_matches(self.function, failure.function)
            and any_matches(self.place, failure.part)
            and (self.exception is None or any_matches(self.exception, failure.exception))
        )

    def shows_in(self, case: Case, profile: Profile) -> bool:
        """Whether a case's failure is one of the symptom's."""
        return case.failure is not None and self.fits(case.failure) and self.condition(case, profile)


ONE_IN = 20
"""Where a declaration does not say how rare its defect is."""


@dataclass(frozen=True)
class KnownDeviation:
    """A defect that the subject is known to have: `property` may fail in the way that `symptoms` say, for the reason at `link`.

    Args:
        property: the name or id of a property, or those of several that it shows in, with `*` for any characters.
        link: where it is told of.
        symptoms: how it shows, one or several.
        condition: narrows it further, to the cases for which it returns True.
        id: a short name of the defect, for those that show in several properties.
        title: the defect in a sentence.
        one_in: about so many examples of a property show it once: it is not said to be gone before ten times as many.

    Raises:
        ValueError: a declaration would match every property, or has no symptom.
    """

    property: Names
    link: str
    symptoms: Symptom | tuple[Symptom, ...]
    condition: Callable[[Case], bool] = field(default=_always)
    id: str = ""
    title: str = ""
    one_in: int = ONE_IN

    def __post_init__(self) -> None:
        _require_narrow("property", self.property, "KnownDeviation")
        shown = self.symptoms if isinstance(self.symptoms, tuple) else (self.symptoms,)
        if not shown or not all(isinstance(one, Symptom) for one in shown):
            raise ValueError(
                f"symptoms = {self.symptoms!r}, but should be a Symptom or several [KnownDeviation]"
            )

    @builtins.property
    def alone(self) -> str | None:
        """The name or id of the only property that it shows in, if there is just one."""
        return self.property if isinstance(self.property, str) and _WILDCARD not in self.property else None

    @builtins.property
    def names(self) -> tuple[str, ...]:
        """The names and ids, or patterns of them, of the properties that it shows in."""
        return _several(self.property)

    @builtins.property
    def shown_by(self) -> tuple[Symptom, ...]:
        """Its symptoms, of which a failure has to have one."""
        return self.symptoms if isinstance(self.symptoms, tuple) else (self.symptoms,)

    def covers(self, name: str, id_: str = "") -> bool:
        """Whether it may show in the property of that name and id."""
        return any_matches(self.property, name) or (bool(id_) and any_matches(self.property, id_))

    def shows_in(self, case: Case, profile: Profile) -> bool:
        """Whether a failing case is one of the defect's."""
        return (
            self.covers(case.property_name, case.property_id)
            and any(one.shows_in(case, profile) for one in self.shown_by)
            and self.condition(case)
        )


def any_matches(names: Names, name: str) -> bool:
    """Whether a name is among `names`, in which `*` stands for any characters."""
    return any(_matches(one, name) for one in _several(names))


def _matches(pattern: str, name: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split(_WILDCARD))), name) is not None


def _several(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _require_narrow(what: str, names: Names, where: str) -> None:
    """Refuse what matches every name, or nothing."""
    if not isinstance(names, (str, tuple)) or not all(isinstance(one, str) for one in names) or not names:
        raise ValueError(f"{what} = {names!r}, but should be a name or several [{where}]")
    for one in _several(names):
        if not one.replace(_WILDCARD, ""):
            raise ValueError(f"{what} = {one!r}, but should be a name, of which * is only a part [{where}]")
