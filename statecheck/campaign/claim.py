"""A campaign's folder belongs to one process at a time: two that start in the same second, or are given the same name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from statecheck.campaign.plan import Plan
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
    mine, lock = plan, None
    # What cannot be made or locked here is not locked: that nothing can be written is said when something is.
    with suppress(OSError):
        mine = plan if named else _fresh(plan)
        mine.folder.mkdir(parents=True, exist_ok=True)
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


def _fresh(plan: Plan) -> Plan:
    """The plan with a number behind its name where there is such a campaign; its folder is made here."""
    number, mine = 1, plan
    while True:
        try:
            mine.folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
            mine = replace(plan, id=f"{plan.id}-{number}")
        else:
            return mine


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
