"""Conditions that files of known defects of sequences may name: texts such as `models:mamba*,jamba` and `calls:fork,save`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase

from oracle.profile import Profile
from statecheck.case import Case
from statecheck.subject.deviation import Condition


def _has_model(case: Case, names: list[str]) -> bool:
    return any(fnmatchcase(case.model, name) for name in names)


def _has_calls(case: Case, names: list[str]) -> bool:
    made = {call.function.rpartition(".")[2] for call in case.calls}
    return made.issuperset(names)


_PREFIXES: Mapping[str, Callable[[Case, list[str]], bool]] = {"models": _has_model, "calls": _has_calls}


class _Named(Mapping[str, Condition]):
    """`models:a*,b` holds of a case whose model is one of these, `calls:fork,save` of one that makes all of these calls.

    Several of them, with blanks between, hold together.
    """

    def __getitem__(self, name: str) -> Condition:
        parts = [part.partition(":") for part in name.split()]
        if not parts or not all(prefix in _PREFIXES and names for prefix, _, names in parts):
            raise KeyError(name)

        def holds(case: Case, _: Profile) -> bool:
            return all(_PREFIXES[prefix](case, names.split(",")) for prefix, _, names in parts)

        return Condition(inputs=holds)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        try:
            self[name]
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(f"{prefix}:NAME,..." for prefix in _PREFIXES)

    def __len__(self) -> int:
        return len(_PREFIXES)


CONDITIONS: Mapping[str, Condition] = _Named()
