"""Tables of a terminal: no verdict is lost however narrow it is."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from statecheck.campaign.record import CampaignRecord, KnownRecord
from statecheck.campaign.terminal.display import conclusion, summary
from statecheck.execution.registry import load_properties
from statecheck.execution.verdict import Counts, Status
from tests.unit.campaign.nightly_examples import a_property, a_record

NAMES = sorted(load_properties(), key=len)[-3:]


def record() -> CampaignRecord:
    """A property of each verdict, with the longest names that there are."""
    statuses = [status.value for status in Status]
    names = [f"{name}_{status.split()[0]}" for status in statuses for name in NAMES[:1]]
    pairs = zip(names, statuses, strict=True)
    return a_record(
        properties=[
            a_property(name, status=status, counts=Counts(1200, 1200, discarded=5)) for name, status in pairs
        ]
    )


def printed(shown: object, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(shown)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 130, 200])
def test_no_verdict_is_lost_or_cut(width: int) -> None:
    lines = printed(summary(record()), width)
    assert max(map(len, lines)) <= width
    for status in set(Status) - {Status.NOT_APPLICABLE}:
        assert sum(status.value in line for line in lines) >= 1, (status, lines)


@pytest.mark.parametrize(
    ("gone", "message"), [(1, "1 known defect no longer fails"), (2, "2 known defects no longer fail")]
)
def test_a_campaign_counts_known_defects_in_its_last_line(gone: int, message: str) -> None:
    known = [KnownRecord(f"id-{number}", standing="no longer fails") for number in range(gone)]
    assert f"{message}; " in conclusion(a_record(known=known))
