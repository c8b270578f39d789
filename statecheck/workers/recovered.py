"""Logs that were left behind by a process that is gone, as cases."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from oracle.profile import DOCUMENTS, Profile
from statecheck.case import Case
from statecheck.case.failure import stated
from statecheck.case.packed import unpack
from statecheck.case.values import Call, Outcome, Raised, Step
from statecheck.data.files import in_file_name
from statecheck.data.locks import try_lock
from statecheck.execution.run import Follower, rules_of
from statecheck.workers.log import SUFFIX, WORKER, records

UNFINISHED = ".unfinished.json"
UNKNOWN_OUTCOME = Raised("NotRecorded", "the process ended before anything was written about this call")


def recover(path: Path, profile: Profile = DOCUMENTS, *, owner_ended: bool = False) -> Case | None:
    """The example that the log was left with, None if nothing was in hand or a process is still writing.

    What the rules expect is worked out anew. No outcome is known, those of the case say so, unless it had failed already.

    Args:
        profile: of the release that was run. A replay asks the rules of its own subject again.
        owner_ended: the process that wrote it has ended, whatever its lock says: a process that it forked may hold that.
    """
    try:
        found = list(records(_content(path, locked=not owner_ended)))
        if len(found) < 2:
            return None
        about, *packed = found
        return _recovered(json.loads(about), [unpack(one) for one in packed], profile)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        # There is none, it is being written, or it is no log at all.
        return None


def recover_all(folder: Path) -> list[Path]:
    """Turn the logs that campaigns have left in `folder` into case files beside them; their paths."""
    found = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        with suppress(OSError):
            found.append(save_recovered(path))
    return [path for path in found if path is not None]


def save_recovered(path: Path, folder: Path | None = None, *, owner_ended: bool = False) -> Path | None:
    """Turn a log into a case file, if it was left behind with an example in hand; the file's path.

    Args:
        folder: of the case file; by default that of the log.
    """
    case = recover(path, owner_ended=owner_ended)
    saved = None
    if case is not None:
        _, of_worker, number = path.stem.rpartition(WORKER)
        name = f"{in_file_name(case.property_name)}.{number}" if of_worker else path.stem
        saved = case.save(
            (folder or path.parent) / f"{name}{UNFINISHED if UNKNOWN_OUTCOME in case.actual else '.json'}"
        )
    if owner_ended or not _in_use(path):
        path.unlink(missing_ok=True)
    return saved


def _in_use(path: Path) -> bool:
    with suppress(FileNotFoundError):
        try:
            _content(path)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return False


def _content(path: Path, *, locked: bool = True) -> bytes:
    # A FIFO of that name would keep an ordinary open waiting for a writer.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is no file")
        # Shared: two that look at the same time must not take each other for its writer.
        if locked and not try_lock(file.fileno(), shared=True):
            raise BlockingIOError(f"{path} is being written")
        return file.read()


def _recovered(about: Mapping[str, Any], contents: Sequence[list[Step] | Case], profile: Profile) -> Case:
    """The example whose steps, and whose failure where it has one, were recorded."""
    if isinstance(contents[-1], Case):
        return contents[-1]
    kept = [step for steps in contents if not isinstance(steps, Case) for step in steps]
    while kept and not isinstance(kept[-1], Call):
        kept.pop()
    asked = (found for _, found in Follower(rules_of(profile)).follow(kept))
    expected = tuple(found.expected for found in asked if found is not None)
    unknown: tuple[Outcome, ...] = (UNKNOWN_OUTCOME,) * len(expected)
    ended = replace(stated("the process that ran this input ended"), kind="fault")
    return Case(**about, steps=tuple(kept), expected=expected, actual=unknown, failure=ended)
