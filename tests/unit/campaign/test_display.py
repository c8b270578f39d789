"""The display of a campaign in a terminal: lines end between words, and a failure is named as soon as it is there."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from statecheck.campaign.display import Display, line
from statecheck.campaign.tasks import Explored
from tests.helpers.cases import a_property
from tests.unit.campaign.nightly_examples import a_state


def test_a_failure_is_shown_while_it_is_shrunk() -> None:
    state = a_state([a_property()])
    campaign: Any = SimpleNamespace(state=state, plan=state.record.plan, record=state.record, at=1.0)
    out = io.StringIO()
    display = Display(Console(file=out, width=200))
    state.property_states["toys/divide"].begin()
    state.property_states["toys/divide"].failing = True
    display.watch(campaign)
    display.watch(campaign)
    assert out.getvalue() == "failing, being shrunk: toys/divide\n"
    assert "0 falsified, 1 failing, being shrunk, " in line(campaign)
    state.explored(Explored("toys/divide", "passed", 1.0), at=1.0)
    state.property_states["toys/divide"].end()
    assert "being shrunk" not in line(campaign)
