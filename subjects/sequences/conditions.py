"""Conditions that files of known defects of sequences may name, such as `models:mamba*,jamba features:snapshots history:long-rollback`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from statecheck.case import Case
from statecheck.case.bucket import last_scenario
from statecheck.subject.known import Condition
from statecheck.subject.profile import Profile
from subjects.sequences.extensions import ROWS
from subjects.sequences.histories import HISTORIES


def _has_model(case: Case, names: list[str]) -> bool:
    return any(fnmatchcase(case.model, name) for name in names)


def _has_calls(case: Case, names: list[str]) -> bool:
    made = {call.function.rpartition(".")[2] for call in case.calls}
    return made.issuperset(names)


def _has_features(case: Case, names: list[str]) -> bool:
    """Of the context, or of the call that shows the failure."""
    named = [case.calls[0].named, case.calls[-1].named] if case.calls else []
    given = {name: str(value) for one in named for name, value in _features(one).items()}
    return all(_is_given(given, *name.partition("=")) for name in names)


def _features(named: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = named.get("features", {})
    return found


def _is_given(given: Mapping[str, str], name: str, equals: str, values: str) -> bool:
    return name in given and (
        not equals or any(fnmatchcase(given[name], value) for value in values.split("|"))
    )


def _has_defaults(case: Case, names: list[str]) -> bool:
    return not _has_others(case, names)


def _has_others(case: Case, names: list[str]) -> bool:
    """In the context, or in any call."""
    return any(name in names for call in case.calls for name in _features(call.named))


def _has_histories(case: Case, names: list[str]) -> bool:
    return all(HISTORIES[name](case) for name in names)


_PREFIXES: Mapping[str, Callable[[Case, list[str]], bool]] = {
    "models": _has_model,
    "calls": _has_calls,
    "features": _has_features,
    "default": _has_defaults,
    "other": _has_others,
    "history": _has_histories,
    **ROWS,
}


class _Named(Mapping[str, Condition]):
    """`models:a*,b` holds of a case whose model is one of these, `calls:fork,save` of one that makes all of these calls.

    `features:a,b=1|2` holds where the context, or the call that shows the failure, has a value other than the default for `a`, and 1 or 2
    (or what matches a pattern) for `b`; `default:a,b` where neither has another value, `other:a,b` where one of them has; `history:name` of a case with such a history,
    see `HISTORIES`; `rows:2` and others of rows and lengths, see `ROWS`. Several of them, with blanks between, hold together.
    """

    def __getitem__(self, name: str) -> Condition:
        parts = [part.partition(":") for part in name.split()]
        if not parts or not all(_is_known(prefix, names) for prefix, _, names in parts):
            raise KeyError(name)

        def holds(whole: Case, _: Profile) -> bool:
            case = last_scenario(whole)
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
        return iter(
            (*(f"{prefix}:NAME,..." for prefix in _PREFIXES), *(f"history:{name}" for name in HISTORIES))
        )

    def __len__(self) -> int:
        return len(list(iter(self)))


def _is_known(prefix: str, names: str) -> bool:
    if prefix == "history":
        return all(name in HISTORIES for name in names.split(","))
    return prefix in _PREFIXES and bool(names)


CONDITIONS: Mapping[str, Condition] = _Named()
