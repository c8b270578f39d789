"""Whether the names in declared defects are those of anything: an entry with a slip in a name matches nothing, and would say so to no one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from statecheck.execution.selection import follows_requests
from statecheck.reference import answered
from statecheck.subject.deviation import KnownDeviation, any_matches

if TYPE_CHECKING:
    from statecheck.execution.registry import Property
    from statecheck.subject import Subject

_MOST_NEAR, _LIKE = 5, 0.5
_OF_THE_HARNESS = "harness."


def require_names(declared: KnownDeviation, tested: Mapping[str, Property], subject: Subject) -> None:
    """Refuse a declaration that can match nothing.

    Raises:
        ValueError: one of its names or patterns is that of no property, or one of its functions is called by none of its properties.
    """
    where = f"known defect {declared.id or declared.alone or declared.link!r}"
    for name in declared.names:
        require_property(name, tested, where)
    called = {
        function
        for one in tested.values()
        if declared.covers(one.name, one.id)
        for function in _called_by(one)
    }
    for symptom in declared.shown_by:
        names = (symptom.function,) if isinstance(symptom.function, str) else symptom.function
        # A port's function may stand for several of the documents', of which a property calls some.
        own_names = {subject.own_name(name) for name in names if name in called}
        for name in names:
            is_called = name in called or subject.own_name(name) in own_names
            if name and "*" not in name and not name.startswith(_OF_THE_HARNESS) and not is_called:
                own = ", ".join(sorted({subject.own_name(one) for one in called if one}))
                rule = f"a function that its properties call: {own or 'none, and function is an empty text'}"
                raise ValueError(f"function = {name!r}, but should be {rule} [{where}]")


def require_property(name: str, tested: Mapping[str, Property], where: str) -> None:
    """Refuse a name, an id or a pattern of properties that matches none.

    Args:
        where: what names it, for the message.

    Raises:
        ValueError: it matches none; with the nearest ids.
    """
    ids = {one.id or one.name for one in tested.values()}
    if _is_any(name, {*tested, *ids}):
        return
    near = get_close_matches(name.lower(), sorted(ids), _MOST_NEAR, _LIKE)
    topics = sorted({one.partition("/")[0] for one in ids})
    hint = f"like it are {', '.join(near)}" if near else f"topics are {', '.join(topics)}"
    raise ValueError(f"properties = {name!r}, but should match a property; {hint} [{where}]")


def _is_any(name: str, known: Collection[str]) -> bool:
    return name in known or ("*" in name and any(any_matches(name, one) for one in known))


def _called_by(tested: Property) -> Iterator[str]:
    """Functions whose calls a failure of the property may be about."""
    owners: Iterable[str] = tested.functions
    yield from owners
    for owner in owners:
        yield from (name for name in answered() if name.startswith(f"{owner}."))
    if follows_requests(tested):
        yield ""
