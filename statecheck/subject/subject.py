"""A subject: what is being verified, by the documents' names; and what a library of sequences lets a scenario choose."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Self

from statecheck.case import Case
from statecheck.case.raised import error_text, from_outside
from statecheck.case.values import Call
from statecheck.sequences import DAMAGES
from statecheck.subject.known import (
    KnownDefectMatcher,
    KnownDeviation,
    known_in,
    with_documented_names,
)
from statecheck.subject.profile import DOCUMENTS, Profile


class NotOffered(Exception):
    """The subject does not offer what the call needs, which is no failure.

    Only this class says so: an exception of the subject's own that has the same name is a failure like any other.
    """


class NotVerified(NotOffered):
    """A model of a library cannot be verified: a fresh run of it fails, or its weights hide the state.

    Nothing can be said of it, and a verdict names it.
    """


def version_of(package: str) -> tuple[int, ...]:
    """The numbers of the release; those of a checkout that was never built are 999."""
    try:
        found = re.match(r"\d+(\.\d+)*", importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        found = None
    return tuple(map(int, found[0].split("."))) if found else (999,)


def first_offered(*places: str) -> Any:
    """What the first of `places`, each a module and a name as `a.b:name`, leads to.

    Raises:
        NotOffered: none of them exists in this release.
    """
    for place in places:
        module, _, name = place.partition(":")
        try:
            found = sys.modules.get(module) or importlib.import_module(module)
        except ModuleNotFoundError as error:
            # That a package is missing which the release needs does not mean that the release lacks the name.
            if not f"{module}.".startswith(f"{error.name}."):
                raise
            continue
        if hasattr(found, name):
            return getattr(found, name)
    raise NotOffered(f"none of {', '.join(places)}")


Features = Mapping[str, Sequence[Any]]
"""The values of each feature, the default first."""


@dataclass
class SequenceChoices:
    """Names of models, and features by function; both are asked for once.

    Args:
        list_models: of the library.
        list_features: of a model, those that a function has parameters for.
        script: of a port that writes scripts with its library alone, see docs/sequences.md.
        offers: whether the port has a function of this name.
        warm_up: has all ready that examples of all models need, before the time of a campaign begins.
        unsupported: why models cannot be verified, by name or pattern, as the port declares it.
        effects: names of what features of the port may do, with the operation that shows each; see docs/sequences.md.
        isolated: models are in processes of their own.
        explain: the first call, layer and state in which a case differs, in a sentence; "" where that is not known.
        limit: the share of the logits' scale by which they may differ from a fresh run's at most, with features of a context.
        given_to_reference: features that fresh runs get, too.
        damages: of saves, of `statecheck.sequences.DAMAGES`, that the library can see.
        needs: by feature, another one and its value, without which it does nothing.
    """

    list_models: Callable[[], Sequence[str]]
    list_features: Callable[[str, str], Features]
    script: Callable[..., str] | None = None
    explain: Callable[[Case], str] = lambda case: ""
    limit: Callable[[Mapping[str, Any]], float] = lambda features: 0.01
    given_to_reference: tuple[str, ...] = ()
    offers: Callable[[str], bool] = lambda function: True
    warm_up: Callable[[], None] = lambda: None
    unsupported: Mapping[str, str] = field(default_factory=dict)
    effects: Mapping[str, str] = field(default_factory=dict)
    isolated: bool = False
    damages: Sequence[str] = DAMAGES
    needs: Mapping[str, tuple[str, Any]] = field(default_factory=dict)

    @cached_property
    def all_models(self) -> Sequence[str]:
        """The names of all models, those that are declared as unsupported among them."""
        return self.list_models()

    @cached_property
    def models(self) -> Sequence[str]:
        """The names of the models that are tried."""
        return tuple(name for name in self.all_models if not self.why_unsupported(name))

    def why_unsupported(self, model: str) -> str:
        """Why the port declares a model as unsupported; "" where it does not."""
        reasons = (why for name, why in self.unsupported.items() if fnmatchcase(model, name))
        return next(reasons, "")

    def model(self, number: int) -> str:
        """The model that a drawn number stands for."""
        return self.models[number % len(self.models)]

    def features(
        self, model: str, function: str, numbers: Sequence[tuple[int, int]], besides: Collection[str] = ()
    ) -> dict[str, Any]:
        """The values that drawn pairs stand for: a number for the feature, and one for its value, which is never the default.

        A feature that needs a value of another one gives it this value, if that was not drawn.

        Args:
            besides: features that are not among those that are drawn.

        Raises:
            ValueError: a feature needs a value that the other feature does not have.
        """
        found: dict[str, Any] = {}
        varied = [
            (name, values)
            for name, values in self.list_features(model, function).items()
            if len(values) > 1 and name not in besides
        ]
        for which, number in numbers if varied else ():
            name, values = varied[which % len(varied)]
            found[name] = values[1 + number % (len(values) - 1)]
        drawn = list(found)
        for name in drawn:
            needed, value = self.needs.get(name, ("", None))
            if needed in (others := dict(varied)) and needed not in found:
                if value not in others[needed]:
                    rule = f"one of the values {others[needed]}"
                    raise ValueError(f"NEEDS[{name!r}] = {(needed, value)!r}, but should be {rule}")
                found[needed] = value
                drawn.append(needed)
        return found


LAYOUT_VARIABLE = "VLLM_SSM_CONV_STATE_LAYOUT"
LIBRARY, OF_LIBRARY = "Sequences", "Sequences."
"""A whole library, which no document describes; nor do documents describe an engine, a class whose name ends with `Engine`."""
_OF_RELEASES = frozenset(
    {
        "GDNAttentionMetadataBuilder.update_block_table",
        "Recurrences",
        "StateTransfer",
        "StateSlots",
        "TrackingPlan",
    }
)
"""Functions of releases beside their engines, which no document describes either."""
_LAUNCH = "harness.launch"
"""The function of the harness that runs a kernel of the subject."""
_ABSENT = object()
_FOREIGN = sys.stdlib_module_names | {"torch", "triton", "numpy"}
NoteCall = Callable[[str, Mapping[str, Any]], None]
"""Takes a function's name and its arguments."""


@dataclass(frozen=True)
class Outside:
    """Inputs that the subject's contract leaves out: `condition` holds of a call with all names resolved, for this reason.

    `function` is the function that is called, with `*` for any characters. Examples that make such a call end there and
    say nothing: they are counted, but not as passed.
    """

    function: str
    reason: str
    condition: Callable[[Call], bool] | None = None
    """None: of every call."""
    lacked: bool = False
    """The subject has nothing that such calls are about, whatever else is drawn: they count as not offered."""

    def covers(self, function: str) -> bool:
        return fnmatchcase(function, self.function)

    def holds(self, call: Call) -> bool:
        return self.covers(call.function) and (self.condition is None or self.condition(call))


@dataclass(eq=False, repr=False)
class Subject:
    """Looks the documents' names up in one module.

    Args:
        name: how users select it; importable, so that `repro.py` can import it on its own.
        module: the module with the documents' names, dotted paths such as `MambaStateShapeCalculator.mamba1_state_shape`
            included.
        known_deviations: failures that are expected.
        profile: the rules of its release, where they differ on purpose.
        outside: inputs that its contract leaves out.
        refuses: whether it promises to refuse what is undocumented. What the rules refuse is outside where it does not.
        release: the version of what it adapts, such as "0.25.1", for reports.
        is_adapter: whether its module adapts a project, so that scripts call functions in modules of the project.
        supplied: names of the adapter's own, behind which there is nothing of what it adapts.
        inside: of an engine, the module whose functions stand in the place of its own, "" for none.
        sequences: of a library of sequences, what a scenario may choose. Its values are plain, so that neither torch nor Triton is needed.
    """

    name: str
    module: ModuleType
    known_deviations: tuple[KnownDeviation, ...] = ()
    _: KW_ONLY
    profile: Profile = DOCUMENTS
    outside: tuple[Outside, ...] = ()
    refuses: bool = True
    release: str = ""
    is_adapter: bool = False
    supplied: frozenset[str] = frozenset()
    inside: str = ""
    sequences: SequenceChoices | None = None
    functions: tuple[str, ...] = field(default=(), init=False)
    """What its author can offer, where these are other names than the documents'."""

    def __post_init__(self) -> None:
        self._environment: dict[str, str] | None = None
        self._known_defects = KnownDefectMatcher(self.known_deviations, self.profile)
        self.resolve = lru_cache(maxsize=None)(self._resolve)

    @property
    def known_defects(self) -> KnownDefectMatcher:
        """Its declared defects, and what their conditions raised."""
        # `known_deviations` may be replaced, in copies of a subject above all.
        if self._known_defects.given is not self.known_deviations:
            self._known_defects = KnownDefectMatcher(self.known_deviations, self.profile)
        return self._known_defects

    def known(self, case: Case) -> KnownDeviation | None:
        """The declared defect that a failing case shows, if there is one."""
        return self.known_defects.find(case)

    def never(self, function: str) -> str | None:
        """Why every call of the function is outside of the contract; None where some are inside."""
        always = (entry for entry in self.outside if entry.condition is None and entry.covers(function))
        return next((entry.reason for entry in always), None)

    def has(self, function: str) -> bool:
        try:
            self.resolve(function)
        except AttributeError:
            return False
        return True

    def own_name(self, function: str) -> str:
        """What its author calls what stands behind a documented function."""
        return function

    def documented_names(self, function: str) -> tuple[str, ...]:
        """The documents' names for what its author calls so; the name itself where that is the documents'."""
        return (function,)

    def declared_in(self, path: Path) -> tuple[KnownDeviation, ...]:
        """The defects that a file declares of its release, with the documents' names of functions.

        Raises:
            ValueError: as `known.declared_in`.
        """
        return tuple(
            with_documented_names(defect, self.documented_names) for defect in known_in(path, self.release)
        )

    def own_calls(self) -> int | None:
        """How many calls of its author's functions were made in this process; None where every name of it is one."""
        return None

    def is_own(self, function: str) -> bool:
        """Whether a call of that name runs code of the subject, and not of the harness or the adapter alone."""
        of_the_harness = function.startswith("harness.") and function != _LAUNCH
        return not of_the_harness and function not in self.supplied

    def provides(self, name: str) -> bool:
        """Whether it has what its author calls so."""
        return self.has(name)

    def _resolve(self, function: str) -> Any:
        found: Any = self.module
        for part in function.split("."):
            found = safe_getattr(found, part)
        return found

    def construct(self, type_: str, fields: dict[str, Any]) -> Any:
        """An object of the subject's class of that name, or a plain namespace where it has no such class."""
        # Names come from case files, so that nothing but a class of the subject's own may be called: not what it imports.
        found = getattr(self.module, type_, None)
        if isinstance(found, type) and found.__module__.partition(".")[0] not in _FOREIGN:
            return found(**fields)
        return SimpleNamespace(**fields)

    @contextmanager
    def environment(self, variables: dict[str, str]) -> Iterator[None]:
        """Run with exactly these layout variables set; cached readings are forgotten when they change."""
        wanted = {LAYOUT_VARIABLE: variables[LAYOUT_VARIABLE]} if LAYOUT_VARIABLE in variables else {}
        # Other code in this process, such as another subject, may have changed it since.
        changed_by_others = os.environ.get(LAYOUT_VARIABLE) != wanted.get(LAYOUT_VARIABLE)
        if wanted != self._environment or changed_by_others:
            os.environ.pop(LAYOUT_VARIABLE, None)
            os.environ.update(wanted)
            self.forget_environment()
            self._environment = wanted
        yield

    def forget_environment(self) -> None:
        """Drop what the subject remembers of the environment."""
        if self.has("get_conv_state_layout"):
            clear = getattr(self.resolve("get_conv_state_layout"), "cache_clear", None)
            if clear is not None:
                clear()

    def noting_calls(self, note: NoteCall) -> Self:  # noqa: ARG002
        """The same subject, which notes the calls of its author's `functions`; here there are none."""
        return self


def is_engine(function: str) -> bool:
    """Whether it is a whole engine, or something that happens to one."""
    name = function.partition(".")[0]
    return name == LIBRARY or name.endswith("Engine")


def is_documented(function: str) -> bool:
    """Whether documents describe it: it is of no engine, of no release alone, and not the harness's own."""
    return not (
        function.startswith("harness.")
        or is_engine(function)
        or not _OF_RELEASES.isdisjoint((function, function.partition(".")[0]))
    )


def safe_getattr(owner: Any, name: str, *absent: Any) -> Any:
    """As `getattr`, with `absent` as the value where there is none.

    Raises:
        AttributeError: there is none of that name, or to look for it raised something, as a module's `__getattr__` does
            that imports what is not installed.
    """
    try:
        return getattr(owner, name, *absent)
    except AttributeError:
        raise
    except BaseException as error:
        if from_outside(error):
            raise
        if absent:
            return absent[0]
        raise AttributeError(f"{name} = {error_text(error)}, but should be found [safe_getattr]") from error


def offers(owner: Any, name: str) -> bool:
    """Whether `safe_getattr` finds it."""
    return safe_getattr(owner, name, _ABSENT) is not _ABSENT
