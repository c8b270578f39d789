"""Failing cases that are kept for good: a file for each bucket, in a folder that many may write to at once.

A file is whole at every moment. A case that the folder does not take, because the disk is full for one, is printed to the standard
error at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from statecheck.campaign.record import CorpusRecord, bucket_in
from statecheck.campaign.unsaved_cases import print_case
from statecheck.case import Case
from statecheck.case.bucket import bucket_of
from statecheck.case.case import encode
from statecheck.diagnose.replay import replay_case
from statecheck.execution.executors import Executor
from statecheck.subject import Subject, load
from statecheck.subject.identity import SOURCE
from statecheck.util.files import in_file_name, require_inside, write_whole
from statecheck.util.json_files import load as load_json

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

    `troubles` says why the folder did not take cases, a sentence for each reason.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.troubles: list[str] = []
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
            trouble = f"{self.folder} took no case ({why}), which went to the standard error"
            if trouble not in self.troubles:
                self.troubles.append(trouble)
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
    """What becomes of an entry on the subject: see `Replay`, or "UNREADABLE"; and the case as it fails now, if it does. Never raises.

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


class Keeper:
    """Puts cases into a corpus and writes their reports.

    What cannot be written is a trouble and no exception: what was found must not be lost with its report.

    Args:
        reports: folder of the reports.
        module: the subject's, for scripts that reproduce.
        trouble: called with a sentence for each thing that could not be written, possibly more than once.
    """

    def __init__(
        self, corpus: Path, reports: Path, module: Callable[[], ModuleType], trouble: Callable[[str], None]
    ) -> None:
        self.reports = reports
        self._corpus = Corpus(corpus)
        self._module, self._trouble = module, trouble

    def keep(self, case: Case, first_seen: Mapping[str, str]) -> str:
        """Put a case into the corpus, which keeps the smallest of a bucket; the bucket's file, "" where the corpus did not take it.

        Args:
            first_seen: date and commit, for a bucket that was never met before.
        """
        path = self._corpus.add(case, first_seen=dict(first_seen))
        for sentence in self._corpus.troubles:
            self._trouble(sentence)
        return str(path) if path is not None else ""

    def report(self, case: Case, note: str = "") -> str:
        """Write a report; its folder, "" where it could not be written."""
        from statecheck.report.files import write_report

        try:
            return str(write_report(case, self.reports, self._module(), note=note))
        except Exception as error:
            self._trouble(not_written(self.reports, error))
            return ""


def not_written(place: Path, error: Exception) -> str:
    """A sentence about something that could not be written."""
    why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    return f"{place} could not be written: {why}"
