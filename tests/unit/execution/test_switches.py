"""Interleavings as an input: what they find of the implementation broken on purpose, and how a script repeats it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import find

from properties.strategies.orders import switches as switches_drawn
from statecheck.case import Case
from statecheck.case.values import Call
from statecheck.diagnose.replay import replay
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.in_process import InProcess
from statecheck.execution.registry import load_properties
from tests.helpers.hunts import hunting
from tests.helpers.observers import FailureLog
from tests.helpers.planted import Variant, broken_subject, implementation

pytestmark = [pytest.mark.usefixtures("executed"), pytest.mark.slow]

BY_SLOT = "v2-postprocess/program-order"
FILE = "align/kernels/postprocess.py"
ARRIVAL = "if last_to_finish(programs, counters_ptr):"
EXAMPLES = 100
IN_TURN = ("", "reversed", "switches:0>1", "switches:0>2", "switches:0>3")


def arrives_early() -> Variant:
    """A program arrives before it has read the counts: who arrives last may set them before others have read them.

    No order in which programs run one after the other shows it.
    """
    text = (implementation() / FILE).read_text(encoding="utf-8")
    old = text[text.index("    copying = 0\n") : text.index(ARRIVAL) + len(ARRIVAL)]
    sooner = (
        "    last = False\n    if HAS_IDX_MAPPING:\n        last = last_to_finish(programs, counters_ptr)\n"
    )
    return Variant("arrives_early", FILE, old, sooner + old.replace(ARRIVAL, "if last:"))


@dataclass(frozen=True)
class Found:
    """A failure that the property found with interleavings alone: after so many examples, and shrunk."""

    examples: int
    shrunk: Case
    port: InProcess

    def fails(self, schedule: str) -> Case | None:
        """The case as it fails in another order of its last launch."""
        return replay(scheduled(self.shrunk, schedule), self.port)


def scheduled(case: Case, schedule: str) -> Case:
    *steps, last = case.steps
    assert isinstance(last, Call)
    return replace(case, steps=(*steps, replace(last, schedule=schedule)))


@contextmanager
def found_in(variant: Variant, folder: Path) -> Iterator[Found]:
    with broken_subject(variant, folder) as subject:
        port = InProcess(subject, "cpu", sanitized=False)
        log = FailureLog()
        context = ExecutionContext(subject, port, log)
        with hunting(shrink=True), pytest.raises(Falsified) as caught:
            load_properties()[BY_SLOT].explore(context, seed=1, max_examples=EXAMPLES)
        case = caught.value.case
        yield Found(log.examples[0], case, port)


@pytest.fixture(scope="module")
def early(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    with found_in(arrives_early(), tmp_path_factory.mktemp("early")) as found:
        yield found


def test_a_defect_of_interleavings_shows_in_no_order_of_whole_programs(early: Found) -> None:
    assert not [order for order in IN_TURN if early.fails(order)]


def test_few_drawn_switches_show_what_only_an_interleaving_does(early: Found) -> None:
    drawn = find(switches_drawn(), lambda schedule: early.fails(schedule) is not None)
    assert 1 <= drawn.count(">") <= 2
