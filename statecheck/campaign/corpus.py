"""Failing cases on disk: those that are kept for good, in a corpus, and those that a campaign has in hand.

A corpus has a file for each bucket, in a folder that many may write to at once. A file is whole at every moment. A case that the folder does not
take, because the disk is full for one, is printed to the standard error at once.

A campaign's folder belongs to one process at a time, and holds failing inputs until they stand in a report or in the corpus. Two campaigns may
start in the same second, or be given the same name. What another campaign has in hand is read only when its process is gone; then it goes to the
corpus, and is replayed as everything there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from statecheck.campaign.plan import Plan
from statecheck.campaign.record import CorpusRecord, bucket_in
from statecheck.case import Case
from statecheck.case.bucket import bucket_of
from statecheck.case.case import encode
from statecheck.diagnose.replay import replay_case
from statecheck.execution.executors import Executor
from statecheck.subject import Subject, load
from statecheck.subject.loading import SOURCE
from statecheck.util.files import in_file_name, load_json, mark_reports, require_inside, try_lock, write_whole

_streams: list[TextIO] = []


def print_to(stream: TextIO) -> None:
    """Print cases there, in a process whose standard error leads elsewhere."""
    _streams[:] = [stream]


def print_case(case: Case) -> None:
    """Print to the standard error of the process; `sys.stderr` may be redirected while a property is explored."""
    with suppress(OSError, ValueError):
        print(case.to_json(), file=_streams[0] if _streams else sys.__stderr__, flush=True)


_BESIDE = 100

Weight = tuple[int, str]
"""What makes one case of a bucket smaller than another: the length of its steps in JSON, and then their text."""


@dataclass(frozen=True)
class CorpusFile:
    """A file of the corpus; `problem` says why there is no case in it that can be read."""

    path: Path
    case: Case | None
    problem: str = ""


class Corpus:
    """The cases in a folder, which is made when the first case is added.

    `warnings` says why the folder did not take cases, a sentence for each reason.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warnings: list[str] = []
        self._printed: dict[str, Weight] = {}

    def add(self, case: Case, *, first_seen: dict[str, str]) -> Path | None:
        """Keep the case, unless the one of its bucket that is kept already is no larger.

        Args:
            first_seen: {"date", "commit"}, for a bucket that was never met before.

        Returns:
            The bucket's file; None where the folder did not take the case, which was printed.
        """
        name, weight = file_name(case), _weight(case)
        case = replace(case, first_seen=first_seen or case.first_seen)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path, held = _place_of(self.folder / name)
            if held is None or weight < _weight(held):
                # Of the source, it is this case's that tells whether a replay without a failure means something.
                earlier = {} if held is None else {**held.first_seen}
                earlier.pop(SOURCE, None)
                write_whole(path, replace(case, first_seen=case.first_seen | earlier).to_json())
        except OSError as error:
            why = error.strerror or error
            warning = f"{self.folder} took no case ({why}), which went to the standard error"
            if warning not in self.warnings:
                self.warnings.append(warning)
            if name not in self._printed or weight < self._printed[name]:
                self._printed[name] = weight
                print_case(case)
            return None
        return path

    def entries(self) -> list[CorpusFile]:
        """Every file, by name; those that cannot be read with what is wrong with them."""
        try:
            paths = self.paths()
        except OSError as error:
            return [CorpusFile(self.folder, None, f"cannot be listed: {error.strerror}")]
        return [entry for entry in map(read, paths) if entry is not None]

    def paths(self) -> list[Path]:
        """Every file, by name; none is opened.

        Raises:
            OSError: the folder cannot be listed.
        """
        try:
            names = sorted(entry.name for entry in os.scandir(self.folder) if entry.name.endswith(".json"))
        except FileNotFoundError:
            return []
        return [self.folder / name for name in names]

    def find(self, wanted: str) -> Path:
        """The file of a bucket, by its id, the first digits of it, the file's name, or the id of its property.

        Raises:
            ValueError: there is none, or more than one.
        """
        entries = [entry for entry in self.entries() if entry.path != self.folder]
        paths = [entry.path for entry in entries]
        named = [path for path in paths if wanted in (path.name, path.stem)]
        named = named or [entry.path for entry in entries if entry.case and entry.case.property_id == wanted]
        found = named or [path for path in paths if wanted and bucket_in(path.name).startswith(wanted)]
        if len(found) == 1:
            return found[0]
        those = (
            f"one of {', '.join(path.name for path in found or paths)}"
            if paths
            else "of a case, and there is none"
        )
        raise ValueError(f"id = {wanted!r}, but should be {those} [{self.folder}]")


def kept_in(folder: Path) -> frozenset[str]:
    """The ids of the buckets that the folder has a case of; none where it cannot be listed."""
    with suppress(OSError):
        return frozenset(filter(None, (bucket_in(path.name) for path in folder.iterdir())))
    return frozenset()


def path_of(text: str, folder: Path) -> Path:
    """What a person means: the path of a case, or one of the corpus in `folder` by `Corpus.find`.

    Raises:
        ValueError: no such case. What looks like a path is returned, and opening it fails.
    """
    path = Path(text).absolute()
    if path.is_file():
        return path
    try:
        return Corpus(folder).find(text)
    except ValueError:
        if path.suffix or path.name != text:
            return path
        raise


def replayed(
    entry: CorpusFile, subject: Subject | str, device: str, port: Executor | None = None
) -> tuple[CorpusRecord, Case | None]:
    """What becomes of an entry on the subject: see `ReplayVerdict`, or "UNREADABLE"; and the case as it fails now, if it does. Never raises.

    Args:
        device: "cpu" or "cuda", for which the process is prepared.
        port: an open one of that subject and device, see `replay_case`.
    """
    if entry.case is None:
        return CorpusRecord(entry.path.name, "UNREADABLE", entry.problem), None
    try:
        target = load(subject) if isinstance(subject, str) else subject
        found = replay_case(entry.case, target, device, port)
    except Exception as error:
        # A file may say anything, and one that means nothing is no reason to give up all the others.
        return CorpusRecord(entry.path.name, "UNREADABLE", f"{type(error).__name__}: {error}"), None
    record = CorpusRecord(entry.path.name, found.verdict, found.message)
    if found.verdict != "FAILED":
        return record, None
    same = bucket_of(found.case) == bucket_of(entry.case)
    return record, found.case if same else replace(found.case, subject=target.name)


def file_name(case: Case) -> str:
    """The name of the file that a case's bucket has in every corpus."""
    return f"{in_file_name(case.property_id)}-{bucket_of(case).id}.json"


def _weight(case: Case) -> Weight:
    text = json.dumps(encode(case.steps))
    return len(text), text


def property_in(path: Path) -> str:
    """The id of the property that a file's case is of, "" where nothing says it. The case is not decoded, which may take long."""
    try:
        data = load_json(path, "a case")
    except (OSError, ValueError):
        return ""
    name = data.get("property_id") if isinstance(data, dict) else None
    return name if isinstance(name, str) else ""


def read(path: Path) -> CorpusFile | None:
    """A file of a corpus, or what is wrong with it; None where there is no such file."""
    try:
        require_inside(path, path.parent)
        return CorpusFile(path, Case.load(path))
    except FileNotFoundError:
        return None if not path.is_symlink() else CorpusFile(path, None, "a link to nothing")
    except OSError as error:
        return CorpusFile(path, None, f"cannot be read: {error.strerror}")
    except ValueError as error:
        return CorpusFile(path, None, str(error))


def _place_of(path: Path) -> tuple[Path, Case | None]:
    """The path of the bucket's case. A file that cannot be read is never overwritten: the case goes beside it, with a number."""
    stem, problem = path.stem, ""
    for number in range(2, _BESIDE):
        entry = read(path)
        if entry is None or entry.case is not None:
            return path, entry.case if entry is not None else None
        path, problem = path.with_name(f"{stem}-{number}.json"), entry.problem
    raise OSError(f"{stem}: {problem}")


class CorpusWriter:
    """Puts cases into a corpus and writes their reports.

    What cannot be written is a warning and no exception: what was found must not be lost with its report.

    Args:
        reports: folder of the reports.
        subject: for scripts that reproduce; gives None where it cannot be imported here.
        warn: called with a sentence for each thing that could not be written, possibly more than once.
    """

    def __init__(
        self, corpus: Path, reports: Path, subject: Callable[[], Subject | None], warn: Callable[[str], None]
    ) -> None:
        self.reports = reports
        self._corpus = Corpus(corpus)
        self._subject, self._warn = subject, warn

    def keep(self, case: Case, first_seen: Mapping[str, str]) -> str:
        """Put a case into the corpus, which keeps the smallest of a bucket; the bucket's file, "" where the corpus did not take it.

        Args:
            first_seen: date and commit, for a bucket that was never met before.
        """
        path = self._corpus.add(case, first_seen=dict(first_seen))
        for sentence in self._corpus.warnings:
            self._warn(sentence)
        return str(path) if path is not None else ""

    def report(self, case: Case, note: str = "") -> str:
        """Write a report; its folder, "" where it could not be written."""
        from statecheck.report.render import write_report

        try:
            return str(write_report(case, self.reports, self._subject(), note=note))
        except Exception as error:
            self._warn(not_written(self.reports, error))
            return ""


def not_written(place: Path, error: Exception) -> str:
    """A sentence about something that could not be written."""
    why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    return f"{place} could not be written: {why}"


_LOCK = ".lock"


@contextmanager
def claimed(plan: Plan, *, named: bool) -> Iterator[Plan]:
    """The plan, whose folder no other process writes while this is entered, if the file system has locks.

    Args:
        named: the name was given. A name by the time gets a number if there is such a campaign.

    Raises:
        ValueError: another process runs the campaign.
    """
    mine, lock, number = plan, None, 1
    # What cannot be made or locked here is not locked: that nothing can be written is said when something is.
    with suppress(OSError):
        while True:
            try:
                mine.folder.mkdir(parents=True, exist_ok=named)
                mark_reports(Path(mine.reports))
                break
            except FileExistsError:
                if named:
                    raise
                number += 1
                mine = replace(plan, id=f"{plan.id}-{number}")
        lock = os.open(mine.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if not try_lock(lock):
            os.close(lock)
            rule = "that of a campaign that no other process is running"
            raise ValueError(f"id = {plan.name!r}, but should be {rule} [nightly]")
    try:
        yield mine
    finally:
        if lock is not None:
            # While the lock is held, so that no process claims a folder that is about to be removed.
            with suppress(OSError):
                if [path.name for path in mine.folder.iterdir()] == [_LOCK]:
                    (mine.folder / _LOCK).unlink()
                    mine.folder.rmdir()
            os.close(lock)


def is_unclaimed(folder: Path) -> bool:
    """Whether no process runs the campaign in a folder, as far as the file system can tell."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        # Shared: two that look at the same time must not take each other for its owner.
        return try_lock(lock, shared=True)
    except OSError:
        return False
    finally:
        os.close(lock)


def pending_folder(campaign: Path) -> Path:
    """The folder of a campaign's pending inputs."""
    return campaign / "pending"


class Pending:
    """What one worker has in hand: the smallest case of each bucket that it met in a task.

    Args:
        warn: called with what could not be written.
        otherwise: keeps a case that could not be written here.
    """

    def __init__(
        self, folder: Path, warn: Callable[[str], None], otherwise: Callable[[Case], object]
    ) -> None:
        self.folder = folder
        self.cases: dict[str, Case] = {}
        self._sizes: dict[str, int] = {}
        self._warn, self._otherwise = warn, otherwise

    def keep(self, name: str, case: Case) -> None:
        """Have the case on disk, unless a smaller one of its bucket is."""
        bucket, text = bucket_of(case).id, case.to_json()
        if bucket in self._sizes and self._sizes[bucket] < len(text):
            return
        try:
            case.save(self._path(name, bucket), durable=False)
        except (OSError, ValueError) as error:
            # Or else a full disk would be taken for what fails, and shrunk.
            self._warn(not_written(self.folder, error))
            if bucket not in self.cases:
                self._otherwise(case)
        self.cases[bucket], self._sizes[bucket] = case, len(text)

    def settle(self, name: str) -> None:
        """All that was in hand under this name stands elsewhere."""
        for bucket in self.cases:
            with suppress(OSError):
                self._path(name, bucket).unlink(missing_ok=True)
        self.cases.clear()
        self._sizes.clear()

    def _path(self, name: str, bucket: str) -> Path:
        return self.folder / f"{in_file_name(name)}.{bucket}.{os.getpid()}.json"


def pending_cases(folder: Path, worker: int | None = None) -> Iterator[tuple[Path, Case]]:
    """Failing inputs that a worker that is gone, or all of a campaign that is gone, have left: the file, and the case."""
    for path in sorted(folder.glob("*.json" if worker is None else f"*.{worker}.json")):
        with suppress(OSError, ValueError):
            yield path, Case.load(path)
