"""Failing inputs of one campaign, until they stand in a report or in the corpus.

Each campaign has a folder of its own for them: what another one has in hand, or has left behind, is none of its business but
when that campaign is gone; then it goes to the corpus, and is replayed as everything there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from statecheck.campaign.keeper import not_written
from statecheck.case import Case
from statecheck.case.bucket import bucket_of


def pending_of(campaign: Path) -> Path:
    """The folder of a campaign's pending inputs."""
    return campaign / "pending"


class Pending:
    """What one worker has in hand: the smallest case of each bucket that it met in a task.

    Args:
        trouble: called with what could not be written.
        otherwise: keeps a case that could not be written here.
    """

    def __init__(
        self,
        folder: Path,
        trouble: Callable[[str], None],
        otherwise: Callable[[Case], object],
    ) -> None:
        self.folder = folder
        self.cases: dict[str, Case] = {}
        self._sizes: dict[str, int] = {}
        self._trouble, self._otherwise = trouble, otherwise

    def keep(self, name: str, case: Case) -> str:
        """Have the case on disk, unless a smaller one of its bucket is; the bucket's id."""
        bucket, text = bucket_of(case).id, case.to_json()
        if bucket in self._sizes and self._sizes[bucket] < len(text):
            return bucket
        try:
            case.save(self._path(name, bucket), durable=False)
        except (OSError, ValueError) as error:
            # Or else a full disk would be taken for what fails, and shrunk.
            self._trouble(not_written(self.folder, error))
            if bucket not in self.cases:
                self._otherwise(case)
        self.cases[bucket], self._sizes[bucket] = case, len(text)
        return bucket

    def settle(self, name: str) -> None:
        """All that was in hand under this name stands elsewhere."""
        for bucket in self.cases:
            with suppress(OSError):
                self._path(name, bucket).unlink(missing_ok=True)
        self.cases.clear()
        self._sizes.clear()

    def _path(self, name: str, bucket: str) -> Path:
        return self.folder / f"{name}.{bucket}.{os.getpid()}.json"


def left_by(folder: Path, worker: int) -> Iterator[tuple[Path, Case]]:
    """What a worker that is gone has left: the file, and the case."""
    for path in sorted(folder.glob(f"*.{worker}.json")):
        with suppress(OSError, ValueError):
            yield path, Case.load(path)


def left_behind(folder: Path) -> Iterator[tuple[Path, Case]]:
    """All failing inputs in a folder whose campaign is gone."""
    for path in sorted(folder.glob("*.json")):
        with suppress(OSError, ValueError):
            yield path, Case.load(path)
