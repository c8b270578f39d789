"""Declared defects of a subject: what one is, how a file declares it, which of them a failure shows, and when one is gone.

The file is TOML with a table `[[known]]` for each defect:

    id          a short name
    title       the defect in a sentence
    properties  ids of the properties that it shows in, as patterns of `fnmatch`
    versions    releases that have it, such as ">=0.20,<0.28"
    link        where it is described
    why         what goes wrong, and how we know
    source      optional: the place in a release's source
    one_in      optional: about so many examples of a property show it once, 20 if this is not given; it is not said to be gone
                before ten times as many

and in it a table `[[known.symptoms]]` for each way in which it shows, with the fields of a failure:

    kind        "value", "refusal", "memory", "race", "fault" or "hang"
    function    the function whose call shows it, or a list of them; "scenario" for what a scenario of an engine shows and no single call
    place       where in the result, without indices, or a list of such places
    exception   optional: the name of the exception that is raised, or a list of them
    condition   optional: what it wants of the case besides, by name

and a table `[[unsupported]]` for what the subject cannot do:

    properties  ids of properties that are not applicable therefore, as patterns of `fnmatch`
    models      optional: names of models of a library of sequences, as patterns; the properties apply to all others
    why         the reason

A failure is one of the defect's if it has all the fields of one symptom. Functions, places and exceptions are names and no patterns: a declaration
says what it is about. A condition that raises does not hold: the case counts as new, and the campaign, the replay or the test says what was raised.
"""

from __future__ import annotations

import builtins
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from statecheck.case import Case
from statecheck.case.failure import KINDS, Failure, Kind, without_indices
from statecheck.case.findings import OverflowedOffset
from statecheck.case.raised import error_text, from_outside
from statecheck.subject.profile import Profile
from statecheck.util.decode import Decoder, Misfit, require_once
from statecheck.util.files import read_text, toml_string

LARGEST = 1 << 26
"""Bytes of a file of declared defects."""
SCENARIO = "scenario"
"""The function of a failure that no single call shows."""
ONE_IN = 20
"""Where a declaration does not say how rare its defect is."""
SHOWED, GONE, NOT_ENOUGH, NOT_TRIED = "showed", "no longer fails", "not tried enough", "not tried"
# (1 - 1/n)^(10 n) is about e^-10: of a defect that one example in n shows, 10 n examples miss it once in 22,000 times, so
# that a campaign of hundreds of properties calls none gone by chance.
_TIMES = 10
Names = str | tuple[str, ...]
"""A name or several."""


def _always(_: Case, __: Profile) -> bool:
    return True


@dataclass(frozen=True)
class Condition:
    """The conditions of a defect beside the place where it shows; each is asked with the profile of the subject's release.

    Args:
        inputs: whether the case's inputs are such that the defect can show.
        outcome: whether what came out is what the defect makes of such inputs.
    """

    inputs: Callable[[Case, Profile], bool] = _always
    outcome: Callable[[Case, Profile], bool] = _always

    def __call__(self, case: Case, profile: Profile) -> bool:
        return bool(self.inputs(case, profile)) and bool(self.outcome(case, profile))


@dataclass(frozen=True)
class Symptom:
    """A way in which a defect shows: the fields of a failure, see `Failure`.

    Args:
        kind: "value", "refusal", "memory", "race", "fault" or "hang".
        function: the function whose call shows it, or several; `SCENARIO` for what a scenario of an engine shows and no single call.
        place: where in the result, without indices, such as "result.num_decodes"; of a scenario "read", "stored", "output".
        exception: the name of the exception that is raised, or several; None where that does not matter.
        condition: narrows it to some cases.

    Raises:
        ValueError: a field is no name that a failure can have.
    """

    kind: Kind
    function: Names
    place: Names
    exception: Names | None = None
    condition: Condition = field(default=Condition())

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind = {self.kind!r}, but should be one of {sorted(KINDS)} [Symptom]")
        _require_names("function", self.function, "Symptom")
        _require_names("place", self.place, "Symptom")
        if self.exception is not None:
            _require_names("exception", self.exception, "Symptom")
        for place in _several(self.place):
            if place != without_indices(place):
                rule = f"{without_indices(place)!r}, without what belongs to one input"
                raise ValueError(f"place = {place!r}, but should be {rule} [Symptom]")

    def differences(self, failure: Failure) -> Iterator[tuple[str, Names, str]]:
        """The fields in which a failure differs, whatever the case: the name of each, what is declared, and what the failure has."""
        fields: tuple[tuple[str, Names | None, str], ...] = (
            ("kind", self.kind, failure.kind),
            ("function", self.function, failure.function or SCENARIO),
            ("place", self.place, failure.part),
            ("exception", self.exception, failure.exception),
        )
        for name, declared, seen in fields:
            if declared is not None and seen not in _several(declared):
                yield name, declared, seen

    def fits(self, failure: Failure) -> bool:
        """Whether a failure's fields are those of the symptom, whatever the case."""
        return next(self.differences(failure), None) is None


@dataclass(frozen=True)
class KnownDeviation:
    """A defect that the subject is known to have: `property` may fail in the way that `symptoms` say, for the reason at `link`.

    Args:
        property: the id of a property, or those of several that it shows in, as patterns of `fnmatch`.
        link: where it is described.
        symptoms: how it shows, one or several.
        id: a short name of the defect, for those that show in several properties.
        title: the defect in a sentence.
        one_in: about so many examples of a property show it once: it is not said to be gone before ten times as many.

    Raises:
        ValueError: a declaration would match every property, or has no symptom.
    """

    property: Names
    link: str
    symptoms: Symptom | tuple[Symptom, ...]
    id: str = ""
    title: str = ""
    one_in: int = ONE_IN

    def __post_init__(self) -> None:
        _require_names("property", self.property, "KnownDeviation", patterns=True)
        if not self.shown_by or not all(isinstance(symptom, Symptom) for symptom in self.shown_by):
            raise ValueError(
                f"symptoms = {self.symptoms!r}, but should be a Symptom or several [KnownDeviation]"
            )

    @builtins.property
    def name(self) -> str:
        """The id, or a text that tells the defect apart where it has no id."""
        return self.id or self.alone or self.link

    @builtins.property
    def alone(self) -> str | None:
        """The id of the only property that it shows in, if there is just one."""
        return self.property if isinstance(self.property, str) and "*" not in self.property else None

    @builtins.property
    def names(self) -> tuple[str, ...]:
        """The ids, or patterns of them, of the properties that it shows in."""
        return _several(self.property)

    @builtins.property
    def shown_by(self) -> tuple[Symptom, ...]:
        """The symptoms; a failure has to have one of them."""
        return self.symptoms if isinstance(self.symptoms, tuple) else (self.symptoms,)

    def covers(self, property_id: str) -> bool:
        """Whether the defect may show in the property of that id."""
        return covers(self.names, property_id)

    def fitting(self, case: Case) -> tuple[Symptom, ...]:
        """The symptoms with the fields of a case's failure, whatever their conditions; none where the defect does not cover the property."""
        alike = self.alike(case)
        return alike if alike and self.covers(case.property_id) else ()

    def alike(self, case: Case) -> tuple[Symptom, ...]:
        """The symptoms with the fields of a case's failure, whatever their conditions and the property."""
        failure = case.failure
        return () if failure is None else tuple(symptom for symptom in self.shown_by if symptom.fits(failure))

    def shows_in(self, case: Case, profile: Profile) -> bool:
        """Whether a failing case is one of the defect's.

        Raises:
            Exception: whatever a condition raises.
        """
        return any(symptom.condition(case, profile) for symptom in self.fitting(case))


def covers(patterns: Sequence[str], property_id: str) -> bool:
    """Whether the id of a property is among `patterns` of `fnmatch`."""
    return any(fnmatchcase(property_id, pattern) for pattern in patterns)


def _several(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _require_names(what: str, names: Names, where: str, *, patterns: bool = False) -> None:
    """Refuse what is no name, and what matches every name."""
    if not isinstance(names, (str, tuple)) or not all(isinstance(given, str) for given in names) or not names:
        raise ValueError(f"{what} = {names!r}, but should be a name or several [{where}]")
    for one in _several(names):
        if not one.replace("*", "").strip():
            rule = f"a name{', of which * is only a part' if patterns else ''}"
            raise ValueError(f"{what} = {one!r}, but should be {rule} [{where}]")
        if "*" in one and not patterns:
            raise ValueError(
                f"{what} = {one!r}, but should be a name without *: only properties have patterns [{where}]"
            )


def with_documented_names(
    declared: KnownDeviation, documented: Callable[[str], tuple[str, ...]]
) -> KnownDeviation:
    """The declaration with the documents' names of the functions that its author may have named as his own.

    Args:
        documented: the documents' names of a function; its own name alone, where it has no other.
    """
    shown = tuple(
        replace(
            symptom, function=tuple(name for own in _several(symptom.function) for name in documented(own))
        )
        for symptom in declared.shown_by
    )
    return replace(declared, symptoms=shown)


class KnownDefectMatcher:
    """Finds the declared defect that a failing case shows, and counts the failing examples of each.

    A condition is the code of the declaration's author. A case for which it raises does not show its defect, so that it is reported
    as a new one.

    `declared` are the defects by their names. `matched` counts the examples that `known` was asked about; `hidden`: the sanitizer's finding
    was one of them.

    Args:
        declared: in the order in which they are asked.
        profile: the rules of the subject's release, for conditions.

    Raises:
        ValueError: two defects have one name.
    """

    def __init__(self, declared: Sequence[KnownDeviation], profile: Profile) -> None:
        self.given = declared
        require_once([defect.name for defect in declared], "declared defects")
        self.declared = {defect.name: defect for defect in declared}
        self.matched: Counter[str] = Counter()
        self.hidden = False
        """Whether the sanitizer ended examples that could go on without it."""
        self._errors: dict[str, str] = {}
        self._profile = profile

    @property
    def errors(self) -> tuple[str, ...]:
        """The errors that conditions raised, a sentence for each declaration."""
        return tuple(self._errors.values())

    def clear(self) -> None:
        """Forget what was counted."""
        self.matched.clear()
        self.hidden = False

    def known(self, case: Case) -> KnownDeviation | None:
        """Find the defect, and count the example."""
        found = self.find(case)
        if found is not None:
            self.matched[found.name] += 1
            # Without the sanitizer an access by such an offset goes to another address, and may end the worker.
            overflowed = case.failure is not None and case.failure.exception == OverflowedOffset.__name__
            self.hidden = self.hidden or (case.sanitized and not overflowed)
        return found

    def find(self, case: Case) -> KnownDeviation | None:
        """The first declared defect that the case shows; None where it is new. Raises nothing that a condition raises."""
        return next(
            (defect for defect in self.given if self._accepts(defect, case, defect.fitting(case))), None
        )

    def find_of_any_property(self, case: Case) -> KnownDeviation | None:
        """As `find`, of a case of which it is not known which property drew it, so that a declaration's properties do not count."""
        return next(
            (defect for defect in self.given if self._accepts(defect, case, defect.alike(case))), None
        )

    def nearest(self, case: Case) -> str:
        """A sentence about the first declared defect from which a new failure differs in one field alone, such as by a slip in the place; or "".

        Its condition holds for the case: a defect of other inputs or of another model is none that the failure is near to.
        """
        failure = case.failure
        if failure is None:
            return ""
        for defect in self.given:
            # Where all fields of a symptom are the failure's, a condition keeps it from matching.
            if not defect.covers(case.property_id) or defect.fitting(case):
                continue
            for symptom in defect.shown_by:
                different = list(symptom.differences(failure))
                if len(different) == 1 and self._accepts(defect, case, (symptom,)):
                    ((name, declared, seen),) = different
                    return f"Known defect {defect.name} is declared for {name} = {declared!r}. This failure has {name} = {seen!r}, and differs in nothing else."
        return ""

    def _accepts(self, one: KnownDeviation, case: Case, symptoms: Sequence[Symptom]) -> bool:
        try:
            return any(symptom.condition(case, self._profile) for symptom in symptoms)
        except BaseException as error:
            if from_outside(error):
                raise
            message = (
                f"a condition of known defect {one.name} raised {error_text(error)}: the case counts as new"
            )
            self._errors.setdefault(one.name, message)
            return False


# When a declared defect is gone.


@dataclass(frozen=True)
class TriedProperty:
    """The results of a property in which a defect may show.

    Args:
        applies: whether the property says something about the subject.
        compared: examples that were compared.
        reason: why there were none, or no more.
    """

    applies: bool
    compared: int
    reason: str = ""


def enough(one_in: int) -> int:
    """The compared examples of each of its properties after which a defect that did not show is gone.

    Args:
        one_in: see `KnownDeviation`.
    """
    return _TIMES * one_in


def defect_status(
    one_in: int, rows: Sequence[TriedProperty], *, showed: bool, complete: bool
) -> tuple[str, str]:
    """The status of a declared defect, and a note.

    Args:
        rows: the properties in which it may show, as far as they were chosen.
        complete: whether these are all of its properties.
    """
    if showed:
        return SHOWED, ""
    tried = [row for row in rows if row.applies and row.compared]
    if not tried:
        reasons = dict.fromkeys(row.reason for row in rows if row.reason)
        return NOT_TRIED, "; ".join(reasons) if rows else "none of its properties was chosen"
    gone = complete and all(not row.applies or row.compared >= enough(one_in) for row in rows)
    many = f"{len(tried)} propert{'y' if len(tried) == 1 else 'ies'}"
    note = f"{sum(row.compared for row in tried):,} examples of {many} did not show it"
    return GONE if gone else NOT_ENOUGH, note


# The file.


def known_in(
    path: Path, release: str, conditions: Mapping[str, Condition] | None = None
) -> tuple[KnownDeviation, ...]:
    """The defects in the file that the release has.

    Args:
        release: such as "0.25.1"; "" is older than any.
        conditions: the functions that entries name.

    Raises:
        ValueError: as `declared_in`.
    """
    made = declared_in(path, conditions)
    return tuple(known for known, versions in made if has(versions, release))


def declared_in(
    path: Path, conditions: Mapping[str, Condition] | None = None
) -> tuple[tuple[KnownDeviation, str], ...]:
    """All defects in the file, each with the releases that have it.

    Raises:
        ValueError: there is no such file, it is no TOML, or an entry is not as described above; names the file, and of an entry
            its id or number, from 0 on, and the field.
    """
    made = []
    for entry in _file(path).known:
        where = f"{path}, entry {entry.id!r}"
        with _located(where):
            given = _given(entry)
            has(entry.versions, "")
            if entry.one_in is not None and entry.one_in < 1:
                raise Misfit("one_in", entry.one_in, "an integer >= 1")
        shown = tuple(
            _symptom(one, conditions or {}, f"{where}, symptom {at}")
            for at, one in enumerate(entry.symptoms, 1)
        )
        fields = {name: given[name] for name in ("id", "title", "one_in") if name in given}
        with _located(where):
            known = KnownDeviation(tuple(entry.properties), entry.link, shown, **fields)
        made.append((known, entry.versions))
    for name, times in Counter(known.id for known, _ in made).items():
        if times > 1:
            raise ValueError(f"id = {name!r}, but should be that of one defect, not of {times} [{path}]")
    return tuple(made)


def unsupported_in(path: Path) -> tuple[Unsupported, ...]:
    """The properties that the file declares as unsupported.

    Raises:
        ValueError: as `declared_in`.
    """
    made = _file(path).unsupported
    for at, entry in enumerate(made):
        with _located(f"{path}, unsupported entry {at}"):
            _given(entry)
    return tuple(made)


def ids_in(path: Path) -> frozenset[str]:
    """The ids of the entries in the file, also of those whose author has not said the reason yet.

    Raises:
        ValueError: there is no such file, it is no TOML, or an entry lacks a field.
    """
    return frozenset(entry.id for entry in _file(path).known)


def entry_text(id_: str, title: str, property_: str, failure: Failure, function: str) -> str:
    """The TOML of an entry for a failure; its `link` and `why` are left to complete.

    Args:
        function: what the subject's author calls the failure's function.
    """
    symptom = {"kind": failure.kind, "function": function or SCENARIO, "place": failure.part}
    if failure.exception:
        symptom["exception"] = failure.exception
    lines = [
        "[[known]]",
        f"id = {toml_string(id_)}",
        f"title = {toml_string(title)}",
        f"properties = [{toml_string(property_)}]",
        'versions = ">=0"',
        'link = ""',
        'why = ""',
        "",
        "[[known.symptoms]]",
        *(f"{name} = {toml_string(text)}" for name, text in symptom.items()),
    ]
    return "\n".join(lines) + "\n"


def has(versions: str, release: str) -> bool:
    """Whether a release such as "0.25.1" is among `versions`, such as ">=0.20,<0.28"; "" is all of them.

    Raises:
        ValueError: `versions` says something else.
    """
    try:
        releases = SpecifierSet(versions)
    except InvalidSpecifier:
        raise ValueError(f"versions = {versions!r}, but should be as in >=0.20,<0.28") from None
    # A candidate, or a user's own build, has the defects of the release that it is one of.
    numbers = re.search(r"\d+(\.\d+)*", release)
    return releases.contains(Version(numbers[0] if numbers else "0"))


@dataclass(frozen=True)
class KnownSymptom:
    """A symptom as it is written; a field that is missing is refused with the entry's id."""

    kind: str | None = None
    function: str | list[str] | None = None
    place: str | list[str] | None = None
    exception: str | list[str] | None = None
    condition: str | None = None


@dataclass(frozen=True)
class KnownEntry:
    id: str
    title: str
    properties: list[str]
    versions: str
    link: str
    why: str
    symptoms: list[KnownSymptom]
    source: str | None = None
    one_in: int | None = None


@dataclass(frozen=True)
class Unsupported:
    """Properties, by ids or patterns, that ask for what the subject cannot do, and why it cannot."""

    properties: list[str]
    why: str
    models: list[str] | None = None


@dataclass(frozen=True)
class KnownFile:
    known: list[KnownEntry] = field(default_factory=list)
    unsupported: list[Unsupported] = field(default_factory=list)


def _file(path: Path) -> KnownFile:
    try:
        data = tomllib.loads(read_text(path, LARGEST))
    except OSError as error:
        raise ValueError(
            f"file = {error.strerror or error}, but should be a readable file [{path}]"
        ) from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"text = no TOML, but should be TOML: {error} [{path}]") from error
    with _located(str(path)):
        file: KnownFile = Decoder().decode(data, KnownFile)
    return file


def _given(decoded: KnownEntry | KnownSymptom | Unsupported) -> dict[str, Any]:
    """The fields that are given, none of which is empty."""
    given = {name: value for name, value in vars(decoded).items() if value is not None}
    for name, value in given.items():
        texts = value if isinstance(value, list) else [value]
        if not texts or any(isinstance(text, str) and not text.strip() for text in texts):
            raise Misfit(name, value, "text that is not empty")
    return given


def _symptom(symptom: KnownSymptom, conditions: Mapping[str, Condition], where: str) -> Symptom:
    with _located(where):
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in _given(symptom).items()
        }
        for required in ("kind", "function", "place"):
            if required not in given:
                raise ValueError(f"{required} = nothing, but should be given")
        name = given.pop("condition", None)
        if name is not None and name not in conditions:
            raise ValueError(f"condition = {name!r}, but should be one of {sorted(conditions)}")
        if name is not None:
            given["condition"] = conditions[name]
        return Symptom(**given)


@contextmanager
def _located(where: str) -> Iterator[None]:
    """Add the place in the file to what a declaration refuses."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{error} [{where}]") from error
