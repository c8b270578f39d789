"""Campaigns go on when something around them fails, and lose no failing input."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nightly_faults.ground import Ground, ground
from tests.nightly_faults.table import FAULTS, FILE

_BY_COMMAND = {
    "device_of_no_use",
    "subject_without_memory",
    "worker_killed",
    "server_killed",
    "engine_killed",
    "output_without_reader",
    "no_room_anywhere",
}
"""A similar fault is tried here or in `test_campaign.py`; `python -m tests.nightly_faults` tries all."""


@pytest.fixture(scope="module")
def here() -> Iterator[Ground]:
    with ground(seconds=9.0, examples=300, failing=2000, kills=1) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(FAULTS) - _BY_COMMAND))
def test_a_campaign_survives_the_fault_and_keeps_what_it_found(name: str, here: Ground) -> None:
    seen = FAULTS[name].run(here)
    if seen.skipped:
        pytest.skip(seen.skipped)
    assert not seen.wrong, "\n".join(seen.wrong)


def test_the_table_has_every_fault_and_nothing_wrong() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert all(f"\n| {name} | {fault.done} |" in text for name, fault in FAULTS.items())
    assert "WRONG" not in text
