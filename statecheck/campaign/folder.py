"""A campaign's folder: it belongs to one process at a time, and holds failing inputs until they stand in a report or in the corpus.

Two campaigns may start in the same second, or be given the same name. What another campaign has in hand is read only when its process is
gone; then it goes to the corpus, and is replayed as everything there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from statecheck.campaign.corpus import not_written
from statecheck.campaign.plan import Plan
from statecheck.case import Case
from statecheck.case.bucket import bucket_of
from statecheck.util.files import in_file_name
from statecheck.util.locks import try_lock

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
        trouble: called with what could not be written.
        otherwise: keeps a case that could not be written here.
    """

    def __init__(
        self, folder: Path, trouble: Callable[[str], None], otherwise: Callable[[Case], object]
    ) -> None:
        self.folder = folder
        self.cases: dict[str, Case] = {}
        self._sizes: dict[str, int] = {}
        self._trouble, self._otherwise = trouble, otherwise

    def keep(self, name: str, case: Case) -> None:
        """Have the case on disk, unless a smaller one of its bucket is."""
        bucket, text = bucket_of(case).id, case.to_json()
        if bucket in self._sizes and self._sizes[bucket] < len(text):
            return
        try:
            case.save(self._path(name, bucket), durable=False)
        except (OSError, ValueError) as error:
            # Or else a full disk would be taken for what fails, and shrunk.
            self._trouble(not_written(self.folder, error))
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
