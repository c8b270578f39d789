"""Known defects: the properties that they break, and how that shows in a failure's fields."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from oracle.profile import Profile

if TYPE_CHECKING:
    from statecheck.case import Case
    from statecheck.case.failure import Failure, Kind

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
        function: the function whose call shows it; "" for what a scenario of an engine shows and no single call.
        place: where in the result, without indices, such as "result.num_decodes"; of a scenario "read", "stored", "output".
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
        from statecheck.case.failure import KINDS, without_indices

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

    def only_difference(self, failure: Failure) -> tuple[str, Names, str] | None:
        """The field in which alone a failure differs: its name, what is declared, and what the failure has; None where none or several do."""
        fields: tuple[tuple[str, Names, str], ...] = (
            ("kind", self.kind, failure.kind),
            ("function", self.function, failure.function),
            ("place", self.place, failure.part),
            ("exception", failure.exception if self.exception is None else self.exception, failure.exception),
        )
        different = [one for one in fields if not any_matches(one[1], one[2])]
        return different[0] if len(different) == 1 else None


ONE_IN = 20
"""Where a declaration does not say how rare its defect is."""


@dataclass(frozen=True)
class KnownDeviation:
    """A defect that the subject is known to have: `property` may fail in the way that `symptoms` say, for the reason at `link`.

    Args:
        property: the name or id of a property, or those of several that it shows in, with `*` for any characters.
        link: where it is described.
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

    def fitting(self, case: Case) -> tuple[Symptom, ...]:
        """Its symptoms whose fields are those of a case's failure, whatever their conditions; none where it does not cover the property."""
        failure = case.failure
        if failure is None or not self.covers(case.property_name, case.property_id):
            return ()
        return tuple(symptom for symptom in self.shown_by if symptom.fits(failure))

    def accepts(self, case: Case, profile: Profile, symptoms: tuple[Symptom, ...]) -> bool:
        """Whether its own condition and that of one of `symptoms` hold for the case.

        Raises:
            Exception: whatever a condition raises.
        """
        return any(symptom.condition(case, profile) for symptom in symptoms) and bool(self.condition(case))

    def shows_in(self, case: Case, profile: Profile) -> bool:
        """Whether a failing case is one of the defect's."""
        return self.accepts(case, profile, self.fitting(case))


def with_documented_names(
    declared: KnownDeviation, documented: Callable[[str], tuple[str, ...]]
) -> KnownDeviation:
    """The declaration with the documents' names of the functions that its author may have named as his own.

    Args:
        documented: the documents' names of a function; its own name alone, where it has no other.
    """
    shown = tuple(
        replace(one, function=tuple(name for own in _several(one.function) for name in documented(own)))
        if one.function
        else one
        for one in declared.shown_by
    )
    return replace(declared, symptoms=shown)


def any_matches(names: Names, name: str) -> bool:
    """Whether a name is among `names`, in which `*` stands for any characters."""
    literal, patterns = _parsed(names)
    return name in literal or any(_matches(parts, name) for parts in patterns)


# To compile 10,000 regular expressions takes a second, and Python's own cache of them has room for 512.
@cache
def _parsed(names: Names) -> tuple[frozenset[str], tuple[list[str], ...]]:
    """The names without `*`, and what stands between the `*` of each other one."""
    several = _several(names)
    literal = frozenset(one for one in several if _WILDCARD not in one)
    return literal, tuple(one.split(_WILDCARD) for one in several if _WILDCARD in one)


def _matches(parts: list[str], name: str) -> bool:
    """Whether the name consists of the parts in their order, with any characters between them."""
    first, *inner, last = parts
    at, end = len(first), len(name) - len(last)
    if at > end or not (name.startswith(first) and name.endswith(last)):
        return False
    for part in inner:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _several(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _require_narrow(what: str, names: Names, where: str) -> None:
    """Refuse what matches every name, or nothing."""
    if not isinstance(names, (str, tuple)) or not all(isinstance(one, str) for one in names) or not names:
        raise ValueError(f"{what} = {names!r}, but should be a name or several [{where}]")
    for one in _several(names):
        if not one.replace(_WILDCARD, ""):
            raise ValueError(f"{what} = {one!r}, but should be a name, of which * is only a part [{where}]")
