"""A campaign's folder belongs to one process at a time: two that start in the same second, or are given the same name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from statecheck.campaign.plan import Plan
from statecheck.data.locks import try_lock

_LOCK = ".lock"
_MOST = 100


@contextmanager
def claimed(plan: Plan, *, named: bool) -> Iterator[Plan]:
    """The plan, whose folder no other process writes while this is entered, if the file system has locks.

    Args:
        named: the name was given. A name by the time gets a number if there is such a campaign.

    Raises:
        ValueError: another process runs the campaign.
    """
    found, lock = _locked(plan) if named else _fresh(plan)
    try:
        yield found
    finally:
        if lock is not None:
            # While the lock is held, so that no process claims a folder that is about to be removed.
            _leave(found.folder)
            os.close(lock)


def _leave(folder: Path) -> None:
    """Nothing, where nothing was done."""
    with suppress(OSError):
        if [path.name for path in folder.iterdir()] == [_LOCK]:
            (folder / _LOCK).unlink()
            folder.rmdir()


def _fresh(plan: Plan) -> tuple[Plan, int | None]:
    for number in range(1, _MOST):
        found = replace(plan, id=plan.id if number == 1 else f"{plan.id}-{number}")
        try:
            found.folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError:
            return found, None
        return _locked(found)
    return _locked(plan)


def _locked(plan: Plan) -> tuple[Plan, int | None]:
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(plan.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        return plan, None
    free = True
    with suppress(OSError):
        free = try_lock(lock)
    if not free:
        os.close(lock)
        rule = "that of a campaign that no other process is running"
        raise ValueError(f"id = {plan.name!r}, but should be {rule} [nightly]")
    return plan, lock


def unclaimed(folder: Path) -> bool:
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
