"""What became of mutants: one JSON file for each shard in a folder, which are read together."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from statecheck.util.files import encoded, load_json

KILLED, TIMEOUT, MEMORY, CRASH = "killed", "timeout", "memory", "crash"
EQUIVALENT, SURVIVED, UNREACHED = "equivalent", "survived", "unreached"
NOTICED = (KILLED, TIMEOUT, MEMORY, CRASH)
"""How a mutant is killed: an item failed, did not end, took too much memory, or ended its process."""
_SCHEMA = 1
_LARGEST = 1 << 30
_SAVED_EVERY = 10.0


@dataclass(frozen=True)
class MutantResult:
    """What became of a mutant.

    Args:
        source: the digest of the file that was mutated and of its judges, see `Target.source`.
        by: the item that noticed it.
        why: what went wrong there, or by which rule the mutant is equivalent.
        ran: how many items ran.
        examples: how many examples each property had.
        seconds: of CPU time.
    """

    status: str
    source: str
    by: str = ""
    why: str = ""
    ran: int = 0
    examples: int = 0
    seconds: float = 0.0

    @property
    def noticed(self) -> bool:
        return self.status in NOTICED

    @property
    def survives(self) -> bool:
        return self.status in (SURVIVED, UNREACHED)


class Shard:
    """The file of a shard, which is written now and then."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.results = _read(path) if path.is_file() else {}
        self._saved = time.monotonic()

    def add(self, mutant: str, result: MutantResult) -> None:
        self.results[mutant] = result
        if time.monotonic() - self._saved > _SAVED_EVERY:
            self.save()

    def save(self) -> None:
        """Write the file; it is whole at every moment."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        content = {"schema": _SCHEMA, "results": {key: asdict(one) for key, one in self.results.items()}}
        written = self._path.with_suffix(".writing")
        written.write_bytes(encoded(json.dumps(content, indent=0, sort_keys=True)))
        written.replace(self._path)
        self._saved = time.monotonic()


Results = dict[tuple[str, str], MutantResult]
"""By mutant and by the source that it was a mutant of."""


def merged(folder: Path) -> Results:
    """The results of all shards in a folder; where several have a result for the same source, the one that says most.

    Raises:
        ValueError: a file is none of a shard.
    """
    results: Results = {}
    for path in sorted(folder.glob("shard-*.json")):
        for mutant, result in _read(path).items():
            known = results.get((mutant, result.source))
            if known is None or _weight(result) >= _weight(known):
                results[mutant, result.source] = result
    return results


def _weight(result: MutantResult) -> tuple[bool, int]:
    """A mutant that was noticed once is killed, and more examples say more."""
    return (not result.survives, result.examples)


def _read(path: Path) -> dict[str, MutantResult]:
    rule = f"the results of a shard, of schema {_SCHEMA} [{path}]"
    content: Any = load_json(path, rule, largest=_LARGEST)
    if not isinstance(content, Mapping) or content.get("schema") != _SCHEMA:
        raise ValueError(f"results = another form, but should be {rule}")
    return {key: MutantResult(**one) for key, one in content["results"].items()}
