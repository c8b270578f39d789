"""An engine of a nightly campaign: a process that explores, replays the corpus, and listens to the canary.

Messages to it are `Explore`, `Replay` and `Listen`, or None to stop. Messages from it are `Progress` and `Explored`, and for the
other two `Replayed` and `Listened`. Whatever fails stands in the corpus before anybody hears of it.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from properties.harness.case import Case
from properties.harness.device.shared import DeviceGone
from properties.harness.nightly.record import CorpusRecord
from properties.harness.worker import Finished, Setting, Task, Worker, live, pending_path

if TYPE_CHECKING:
    from properties.harness.registry import Property


_Kind = TypeVar("_Kind", bound=BaseException)


@dataclass(frozen=True)
class EngineSetting(Setting):
    """What the tasks of a nightly campaign have in common.

    `database`: of examples: "local", "none", or the URL of a Redis server. `first_seen`: the date and commit of what is found.
    """

    corpus: str = "corpus"
    database: str = "local"
    first_seen: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Explore(Task):
    """Explore one property; failing examples of `known` buckets are counted, and gone past."""

    known: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Replay:
    """Replay a file of the corpus."""

    path: str


@dataclass(frozen=True)
class Listen:
    """Have the canary found, reported in the folder, and replayed."""

    folder: str


@dataclass(frozen=True)
class Found:
    """A shrunk case, and the buckets of the failing examples that led to it, its own first."""

    buckets: tuple[str, ...]
    case: dict[str, Any]
    report: str
    corpus: str
    note: str


@dataclass(frozen=True)
class Explored(Finished):
    """The end of an exploration.

    `behaviours`: numbers that stand for the sets of marks that single examples reached. `failing`: failing examples by bucket.
    `gone`: why the device can be used no more. `faults`: how many of each kind there were.
    """

    marks: dict[str, int] = field(default_factory=dict)
    behaviours: frozenset[int] = frozenset()
    failing: dict[str, int] = field(default_factory=dict)
    found: Found | None = None
    gone: str = ""
    faults: dict[str, int] = field(default_factory=dict)
    troubles: tuple[str, ...] = ()


@dataclass(frozen=True)
class Replayed:
    """What became of a case of the corpus; `bucket` and `case` of one that still fails."""

    result: CorpusRecord
    bucket: str = ""
    case: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Listened:
    """What was heard of the canary; nothing, and why, where it was silent."""

    heard: str
    why: str = ""


@dataclass(frozen=True)
class Gone:
    """The device is of no use, so that there is no engine on it."""

    why: str


class _LogFailed(BaseException):
    """What an example is about to do cannot be written down. No `Exception`: it is nothing that the example shows."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class Engine(Worker):
    """Runs the tasks of a nightly campaign on one bench."""

    setting: EngineSetting

    def __init__(self, setting: EngineSetting, pipe: Connection) -> None:
        super().__init__(setting, pipe)
        from properties.harness.corpus import Corpus

        _use_database(setting.database)
        self.corpus = Corpus(Path(setting.corpus), Path(setting.reports) / "corpus")
        self.bench.passes_by = self._is_known
        self._logged = True
        self._forget()

    def _forget(self) -> None:
        self._known: frozenset[str] = frozenset()
        self._failing: Counter[str] = Counter()
        self._marks: Counter[str] = Counter()
        self._behaviours: set[int] = set()
        self._kinds: dict[frozenset[str], int] = {}
        self._found: Found | None = None
        self._gone = ""
        # Examples of the canary, or of a replayed case, are nobody's.
        self._unsent = 0

    def run(self, task: Task | Replay | Listen) -> None:
        if isinstance(task, Explore):
            self._forget()
            self._known = task.known
            super().run(task)
        elif isinstance(task, Replay):
            self.pipe.send(self._replayed(Path(task.path)))
        elif isinstance(task, Listen):
            self.pipe.send(self._listened(Path(task.folder)))

    def _begin(self, task: Task) -> None:
        try:
            super()._begin(task)
        except OSError as error:
            self._logged = False
            self._trouble(self._pending.parent, error)
        if not self._logged:
            self._begin_without_log(task)

    def _begin_without_log(self, task: Task) -> None:
        assert self._isolated is not None
        self._isolated.begin_property(task.property, self.properties[task.property].sentence, seed=task.seed)

    def _explored(self, task: Task) -> tuple[str, str, str]:
        try:
            return super()._explored(task)
        except _LogFailed as failed:
            self._trouble(self._pending.parent, failed.error)
            self._begin_without_log(task)
            return self._explored(task)
        except DeviceGone as gone:
            self._gone = str(gone)
            return "passed", "", ""

    def _failed(self, error: Exception) -> tuple[str, str, str]:
        # What the subject raises is an outcome; this is of the log, which stands where there is no room.
        if _within(error, MemoryError) is not None:
            # The subject's own would be an outcome. This engine has become too large, and a new one is not.
            raise error
        system = _within(error, OSError)
        if system is not None and self._isolated is not None and self._logged:
            self._logged = False
            raise _LogFailed(system)
        return super()._failed(error)

    def _property(self, name: str) -> Property:
        from properties.harness.marks import noted

        return noted(super()._property(name), self._note)

    def _note(self, reached: frozenset[str]) -> None:
        self._marks.update(reached)
        if reached not in self._kinds:
            self._kinds[reached] = behaviour(reached)
            self._behaviours.add(self._kinds[reached])

    def _is_known(self, case: Case) -> bool:
        from properties.harness.case.bucket import bucket_of

        bucket = bucket_of(case).id
        self._failing[bucket] += 1
        return bucket in self._known

    def _reported(self, case: Case, note: str) -> Path:
        from properties.harness.case.bucket import bucket_of

        own = bucket_of(case).id
        # First of all: whatever happens to the report, this stands.
        kept = self.corpus.add(case, first_seen=dict(self.setting.first_seen))
        alike = [one for one in self._failing if one not in self._known and one != own]
        corpus = str(kept) if kept.is_file() else ""
        self._found = Found((own, *alike), case.to_data(), "", corpus, note)
        try:
            directory = super()._reported(case, note)
        except Exception as error:
            # The report is for reading; what was found must not be lost with it.
            self._trouble(self.reports, error)
            return kept
        self._found = replace(self._found, report=str(directory), note=self._last_note)
        return directory

    def _finished(self, finished: Finished) -> Finished:
        port, faults = self._isolated, {}
        if port is not None:
            faults = dict(port.faults)
            port.faults.clear()
        return Explored(
            **vars(finished),
            marks=dict(self._marks),
            behaviours=frozenset(self._behaviours),
            failing=dict(self._failing),
            found=self._found,
            gone=self._gone,
            faults=faults,
            troubles=(*self.corpus.troubles, *self.troubles),
        )

    def _replayed(self, path: Path) -> Replayed:
        from properties.harness.case.bucket import bucket_of
        from properties.harness.corpus import Entry, replayed

        try:
            case, problem = Case.load(path), ""
        except (OSError, ValueError, RecursionError) as error:
            case, problem = None, f"{type(error).__name__}: {error}"
        with _quietly():
            result = replayed(
                Entry(path, case, problem), self.bench.subject, self.setting.device, self.bench.port
            )
        if case is None or result.verdict != "FAILED":
            return Replayed(result)
        return Replayed(result, bucket_of(case).id, case.to_data())

    def _listened(self, folder: Path) -> Listened:
        from properties.harness.nightly.canary import listen

        try:
            with _quietly():
                return Listened(listen(self.bench, folder))
        except Exception as error:
            return Listened("", f"{type(error).__name__}: {error}")

    @property
    def _pending(self) -> Path:
        # Several engines may be exploring one property.
        return pending_path(self.reports, f"{self._current}.{os.getpid()}")


@contextlib.contextmanager
def _quietly() -> Any:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def _within(error: BaseException, kind: type[_Kind]) -> _Kind | None:
    """An error of that kind in what Hypothesis raises, which may be that it came and went."""
    if isinstance(error, kind):
        return error
    parts = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return next((found for found in (_within(part, kind) for part in parts) if found is not None), None)


def behaviour(marks: frozenset[str]) -> int:
    """A number that stands for a set of marks, the same in every process."""
    import hashlib

    return int.from_bytes(hashlib.sha256("\0".join(sorted(marks)).encode()).digest()[:8], "big")


def _use_database(database: str) -> None:
    from hypothesis import settings

    if database == "none":
        chosen = None
    elif database == "local":
        return
    else:
        from properties.harness.nightly.examples_database import example_database

        chosen = example_database(database)
    settings.register_profile("nightly-here", settings.get_profile("nightly"), database=chosen)
    settings.load_profile("nightly-here")


def main(setting: EngineSetting, pipe: Connection) -> None:
    """The process's life: tasks until None comes, or until the coordinator is gone."""
    try:
        live(Engine, setting, pipe)
    except DeviceGone as gone:
        with contextlib.suppress(OSError):
            pipe.send(Gone(str(gone)))
