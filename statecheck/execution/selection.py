"""Which properties a command is about: those that an expression names, that a subject has functions for, on its device; and what a subject
offers of all that there are properties of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING

from statecheck.case import Case
from statecheck.case.case import values_inside
from statecheck.case.values import Function
from statecheck.execution.example import ExecutionContext
from statecheck.execution.executors import ordinary_port
from statecheck.reference import answered
from statecheck.subject import BUILT_IN, Subject, is_documented, is_engine
from statecheck.subject.known import covers
from statecheck.util.text import meant_by

if TYPE_CHECKING:
    # A script that replays a case carries this module, and no properties: it has neither them nor Hypothesis.
    from statecheck.execution.registry import Property

NEED_CUDA = frozenset({"harness.capture", "harness.replay"})
_MOST_NEAR, _LIKE = 5, 0.5
"""Names that an unknown one is answered with, and how like it they have to be."""


def applicable(
    names: list[str], tested: Mapping[str, Property], subject: Subject, device: str
) -> tuple[list[str], dict[str, str]]:
    """The properties that say something about the subject on the device, and by name why the others do not."""
    context = ExecutionContext(subject, ordinary_port(subject, device, sanitized=False))
    reasons = {name: tested[name].not_applicable(context) for name in names}
    skipped = {name: reason for name, reason in reasons.items() if reason is not None}
    return [name for name in names if name not in skipped], skipped


def follows_requests(tested: Property) -> bool:
    """Whether it is a state machine that follows requests through the simulated engine."""
    return getattr(getattr(tested, "machine", None), "follows_requests", False)


def select(ids: list[str], expression: str, tested: Mapping[str, Property], subject: Subject) -> list[str]:
    """The ids of properties that match a pytest `-k` expression.

    A word of it that is a topic, such as "sequences", chooses the whole topic, and a function, as the documents or the subject's author
    name it, the properties that call it. Other words are parts of an id.

    Raises:
        ValueError: no such expression, or it matches nothing.
    """
    if not expression:
        return ids
    from statecheck.execution.private.pytest import chosen_by

    named: dict[str, set[str]] = {}
    for id_ in ids:
        named.setdefault(id_.partition("/")[0], set()).add(id_)
        for function in tested[id_].functions:
            named.setdefault(function, set()).add(id_)
    for own in subject.functions:
        called = [named.get(function, set()) for function in subject.documented_names(own)]
        named.setdefault(own, set()).update(*called)
    chosen = [id_ for id_ in ids if chosen_by(expression, id_, named)]
    if not chosen:
        raise ValueError(
            f"only = {expression!r}, but should match a property, or a function that properties call; {_nearest(expression, ids)} [fuzz]"
        )
    return chosen


def require_declared_properties(subject: Subject) -> None:
    """Refuse a declared defect that names no property, since it would match nothing by a slip, or that names all of them.

    Raises:
        ValueError: as `require_property`; or its patterns match every property.
    """
    from statecheck.execution.registry import load_properties

    tested = load_properties()
    for deviation in subject.known_deviations:
        where = f"known defect {deviation.name!r}"
        for name in deviation.names:
            require_property(name, tested, where)
        if all(map(deviation.covers, tested)):
            names = ", ".join(deviation.names)
            raise ValueError(f"properties = {names}, but should leave out a property at least [{where}]")


def require_property(pattern: str, tested: Mapping[str, Property], where: str) -> None:
    """Refuse a pattern of ids of properties that matches none.

    Args:
        where: what names it, for the message.

    Raises:
        ValueError: it matches none; with the nearest ids.
    """
    if not any(covers((pattern,), id_) for id_ in tested):
        near = _nearest(pattern, tested)
        raise ValueError(f"properties = {pattern!r}, but should match a property; {near} [{where}]")


def _nearest(expression: str, ids: Collection[str]) -> str:
    """The ids and topics that are most like an expression, or all topics where none is."""
    topics = {id_.partition("/")[0] for id_ in ids}
    near = get_close_matches(expression.lower(), sorted({*ids, *topics}), _MOST_NEAR, _LIKE)
    if near:
        return f"like it are {', '.join(near)}"
    return f"topics are {', '.join(sorted(topics))}"


def missing_functions(case: Case, subject: Subject) -> list[str]:
    """What the case calls or launches that the subject does not have.

    Raises:
        ValueError: among what it calls, launches or hands over is something that no document has. Names are looked up in the
            subject, so that a case from elsewhere could otherwise call anything that it imports.
    """
    called = {call.function for call in case.calls}
    parts = values_inside(case.steps, "steps")
    handed_over = {value.name for _, value in parts if isinstance(value, Function)}
    undocumented = sorted((called | handed_over) - answered())
    if undocumented:
        raise ValueError(f"functions = {undocumented}, but should be documented ones [replay]")
    functions = {name for name in called if not name.startswith("harness.")}
    kernels = {call.named["kernel"] for call in case.calls if call.function == "harness.launch"}
    return sorted(name for name in functions | kernels if not subject.has(name))


_SHOWN = 8


@dataclass(frozen=True)
class Offers:
    """The functions of a subject, by the names under which its author knows them."""

    subject: Subject

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All that could be offered: plain functions of the protocol, or what properties call of the documents."""
        if self.subject.functions:
            return self.subject.functions
        return tuple(name for name in _called() if is_documented(name))

    @cached_property
    def engines(self) -> tuple[str, ...]:
        """Whole engines, and libraries with their operations, that it has beside the functions."""
        choices = self.subject.sequences
        names = [name for name in _called() if is_engine(name) and self.subject.provides(name)]
        operations = {name: name.partition(".")[2] for name in names}
        return tuple(
            name
            for name in names
            if not operations[name] or choices is None or choices.offers(operations[name])
        )

    @cached_property
    def offered(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if self.subject.provides(name))

    @cached_property
    def alike(self) -> dict[str, str]:
        """Names that the subject has, and for each the one that may have been meant."""
        if self.subject.name in BUILT_IN:
            return {}
        missing = [name for name in self.names if name not in self.offered]
        own = [name for name in dir(self.subject.module) if not name.startswith("_")]
        near = {name: meant_by(name, missing) for name in own if name not in self.names}
        return {name: meant for name, meant in near.items() if meant}

    @property
    def sentence(self) -> str:
        """How many there are, which, and what may be a slip."""
        shown, more = self.offered[:_SHOWN], len(self.offered) - _SHOWN
        listed = ", ".join(shown) + (f", and {more} more" if more > 0 else "")
        counted = f"{len(self.offered)} of {len(self.names)}{': ' if shown else ''}{listed}"
        whole = [name for name in self.engines if "." not in name]
        parts = {
            name: [part.partition(".")[2] for part in self.engines if part.startswith(f"{name}.")]
            for name in whole
        }
        engines = [f"{name}{' with ' if parts[name] else ''}{', '.join(parts[name])}" for name in whole]
        alone = "".join(
            f"; no property calls {name} without {', '.join(missing)}"
            for name, missing in self.uncalled.items()
        )
        # A library of sequences, or an engine, need not have plain functions.
        offers = ", and ".join([counted] * bool(self.offered or not engines) + engines)
        return f"{self.subject.name} offers {offers}{alone}{''.join(self._questions())}"

    def _questions(self) -> Iterator[str]:
        for name, near in self.alike.items():
            yield f"; it has {name}: did you mean {near}?"

    @cached_property
    def uncalled(self) -> dict[str, tuple[str, ...]]:
        """Plain functions that no property calls alone, and the missing ones of the property that lacks the fewest."""
        from statecheck.execution.registry import load_properties

        found = {}
        for name in self.offered if self.subject.functions else ():
            symbols = set(self.subject.documented_names(name))
            calling = [
                loaded
                for loaded in load_properties().values()
                if not loaded.any_of and symbols & {*loaded.functions}
            ]
            lacking = [map(self.subject.own_name, one.lacking(self.subject)) for one in calling]
            missing = [tuple(sorted({*names} & {*self.names})) for names in lacking]
            if missing and all(missing):
                found[name] = min(missing, key=len)
        return found

    def require(self, wanted: tuple[str, ...]) -> None:
        """Refuse a subject that lacks one of these.

        Raises:
            ValueError: it does, or there is no such function.
        """
        for name in wanted:
            if name not in self.names:
                meant = meant_by(name, self.names)
                near = f"; did you mean {meant}?" if meant else ""
                rule = f"functions that there are properties of: {', '.join(self.names)}"
                raise ValueError(f"require = {name!r}, but should be {rule}{near} [{self.subject.name}]")
        missing = [name for name in wanted if name not in self.offered]
        if missing:
            rule = f"offered by {self.subject.name}, which does not offer {', '.join(missing)}"
            raise ValueError(
                f"require = {','.join(wanted)!r}, but should be {rule}{''.join(self._questions())} [require]"
            )


def _called() -> list[str]:
    """What properties call, by name."""
    from statecheck.execution.registry import load_properties

    return sorted({name for tested in load_properties().values() for name in tested.functions})
