"""Conditions that files of known defects of sequences may name: `model:NAME` is one of each model, see `ModelIs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from oracle.profile import Profile
from statecheck.case import Case
from statecheck.subject.deviation import Condition

_PREFIX = "models:"


class _Models(Mapping[str, Condition]):
    """`models:mamba*,jamba` holds of a case whose model is one of these, with `*` for any characters."""

    def __getitem__(self, name: str) -> Condition:
        if not name.startswith(_PREFIX):
            raise KeyError(name)
        patterns = name.removeprefix(_PREFIX).split(",")

        def holds(case: Case, _: Profile) -> bool:
            return any(fnmatchcase(case.model, pattern.strip()) for pattern in patterns)

        return Condition(inputs=holds)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.startswith(_PREFIX)

    def __iter__(self) -> Iterator[str]:
        yield f"{_PREFIX}NAME,..."

    def __len__(self) -> int:
        return 1


CONDITIONS: Mapping[str, Condition] = _Models()
