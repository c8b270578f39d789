"""Functions of the harness and of the rules, which a subject can replace: it runs in the same process.

A subject that does so decides what it is compared with. Nothing that was compared meanwhile is evidence.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, groupby
from operator import attrgetter, is_, itemgetter
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

_ROOMS = ("statecheck", "oracle")
_KINDS = (FunctionType, type, property, classmethod, staticmethod)


class _Entry(NamedTuple):
    """A name in a module or class, what it stood for, and the code of that, if it was a function.

    `names`: those of the owner, as they are at any time.
    """

    owner: Any
    names: Mapping[str, Any]
    name: str
    found: Any
    code: CodeType | None

    def restore(self) -> None:
        setattr(self.owner, self.name, self.found)
        if self.code is not None:
            self.found.__code__ = self.code


class OwnCode:
    """All functions, classes and methods of what is imported of the harness and the rules when this is made."""

    def __init__(self) -> None:
        modules = [module for name, module in list(sys.modules.items()) if _is_ours(name)]
        self._entries = tuple(entry for module in modules for entry in _entries_of(module))
        by_owner = [list(entries) for _, entries in groupby(self._entries, attrgetter("owner"))]
        self._owners = [(one[0].names, _getter(entry.name for entry in one)) for one in by_owner]
        self._found = tuple(entry.found for entries in by_owner for entry in (*entries, entries[0]))
        # A function that several modules import is looked at once.
        coded = {id(one.found): one for one in self._entries if one.code is not None}.values()
        self._functions = tuple(one.found for one in coded)
        self._codes = tuple(one.code for one in coded)

    def restore(self) -> tuple[str, ...]:
        """Put back all that was replaced since; the full names of it."""
        if self._is_unchanged():
            return ()
        replaced = [
            one
            for one in self._entries
            if (one.code is not None and one.found.__code__ is not one.code)
            or one.names.get(one.name) is not one.found
        ]
        for one in replaced:
            one.restore()
        return tuple(f"{_name_of(one.owner)}.{one.name}" for one in replaced)

    def _is_unchanged(self) -> bool:
        # This runs after each exploration, over 4,700 names. A loop over the entries takes five times as long.
        try:
            found = chain.from_iterable(get(names) for names, get in self._owners)
            same = all(map(is_, found, self._found))
        except KeyError:
            return False
        return same and all(map(is_, map(attrgetter("__code__"), self._functions), self._codes))


def _getter(names: Iterable[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """A function that gets the values of these names as a tuple.

    The first value is repeated at the end: for a single name, `itemgetter` returns no tuple.
    """
    first, *others = names
    return itemgetter(first, *others, first)


def _is_ours(name: str) -> bool:
    return any(name == room or name.startswith(f"{room}.") for room in _ROOMS)


def _entries_of(owner: Any) -> Iterator[_Entry]:
    names = vars(owner)
    for name, found in list(names.items()):
        if not isinstance(found, _KINDS):
            continue
        yield _Entry(owner, names, name, found, _code_of(found))
        if isinstance(owner, ModuleType) and isinstance(found, type) and found.__module__ == owner.__name__:
            yield from _entries_of(found)


def _code_of(found: Any) -> CodeType | None:
    return found.__code__ if isinstance(found, FunctionType) else None


def _name_of(owner: Any) -> str:
    return owner.__name__ if isinstance(owner, ModuleType) else f"{owner.__module__}.{owner.__qualname__}"
