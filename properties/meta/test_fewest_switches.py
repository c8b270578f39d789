"""Interleavings as an input: what they find of the implementation broken on purpose, and how few switches show it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from properties.harness.case import Case
from properties.harness.case.bucket import bucket_of
from properties.harness.execution.example import Bench, Falsified
from properties.harness.execution.fewest_switches import simpler, with_fewest_switches
from properties.harness.execution.replay import replay
from properties.harness.port import InProcess
from properties.harness.property_tests import _Kept
from properties.harness.registry import load_properties
from properties.harness.values import Call, Returned
from properties.harness.variants import Variant, broken_subject, implementation
from properties.meta.breakages import without_memory

pytestmark = pytest.mark.usefixtures("executed")

BY_SLOT = "no_order_of_programs_shows_in_what_is_stored_by_slot"
FILE = "align/kernels/postprocess.py"
ARRIVAL = "if last_to_finish(programs, counters_ptr):"
AT_ONCE = Variant("counts_at_once", FILE, ARRIVAL, "if resets > 0:")
"""Every program sets the counts as soon as it is done, while others still have to decide by the counts before."""
EXAMPLES = 100
IN_TURN = ("", "reversed", *(f"shuffled:{seed}" for seed in range(20)))


def arrives_early() -> Variant:
    """A program arrives before it has read all counts: who arrives last may set them while others still read.

    No order in which programs run one after the other shows it.
    """
    text = (implementation() / FILE).read_text(encoding="utf-8")
    old = text[text.index("    if program < tickets:") : text.index(ARRIVAL) + len(ARRIVAL)]
    sooner = (
        "    last = False\n    if HAS_IDX_MAPPING:\n        if resets > 0:\n"
        "            last = last_to_finish(programs, counters_ptr)\n"
    )
    return Variant("arrives_early", FILE, old, sooner + old.replace(ARRIVAL, "if last:"))


@dataclass(frozen=True)
class Found:
    """What the property found with interleavings alone: after so many examples, shrunk, and with the fewest switches."""

    examples: int
    shrunk: Case
    fewest: Case
    port: InProcess

    def fails(self, schedule: str) -> Case | None:
        """The case as it fails in another order of its last launch."""
        return replay(scheduled(self.fewest, schedule), self.port)


def scheduled(case: Case, schedule: str) -> Case:
    *steps, last = case.steps
    assert isinstance(last, Call)
    return replace(case, steps=(*steps, replace(last, schedule=schedule)))


@contextmanager
def found_in(variant: Variant, folder: Path) -> Iterator[Found]:
    with broken_subject(variant, folder) as subject:
        failing: list[int] = []
        port = InProcess(subject, "cpu", sanitized=False)
        bench = Bench(subject, port)
        bench.on_falsified = lambda case: failing.append(bench.examples)
        with without_memory(shrink=True), pytest.raises(Falsified) as caught:
            load_properties()[BY_SLOT].explore(bench, seed=1, max_examples=EXAMPLES)
        case = caught.value.case
        yield Found(failing[0], case, with_fewest_switches(case, port), port)


@pytest.fixture(scope="module")
def at_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    with found_in(AT_ONCE, tmp_path_factory.mktemp("at_once")) as found:
        yield found


@pytest.fixture(scope="module")
def early(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    with found_in(arrives_early(), tmp_path_factory.mktemp("early")) as found:
        yield found


def switches(case: Case) -> list[str]:
    return [call.schedule for call in case.calls if call.schedule]


def test_counts_set_while_siblings_read_them_are_found_by_interleavings_alone(
    at_once: Found, early: Found
) -> None:
    assert max(at_once.examples, early.examples) <= EXAMPLES
    print(f"after {at_once.examples} and {early.examples} examples")


def test_what_only_an_interleaving_shows_no_order_of_whole_programs_does(early: Found) -> None:
    assert not [order for order in IN_TURN if early.fails(order)]


def test_a_found_case_has_the_fewest_switches_that_show_it(at_once: Found, early: Found) -> None:
    """One, to a program that decides first; and one more, to one that sets the counts before the first has gone on."""
    assert [len(one[0].split(",")) for one in map(switches, (at_once.fewest, early.fewest))] == [1, 2]
    for found in (at_once, early):
        assert bucket_of(found.fewest).id == bucket_of(found.shrunk).id
        assert replay(found.fewest, found.port) is not None
        (schedule,) = switches(found.fewest)
        fewer = [one for one in simpler(schedule) if one.count(">") < schedule.count(">")]
        assert not [one for one in fewer if found.fails(one)]


@pytest.mark.parametrize("kind", ["interleaved", "priorities"])
def test_a_seed_becomes_the_switches_that_it_made_and_then_the_fewest(early: Found, kind: str) -> None:
    failing = filter(None, (early.fails(f"{kind}:{seed}") for seed in range(100)))
    fewest = with_fewest_switches(next(failing), early.port)
    assert switches(fewest)[0].startswith("switches:")
    assert switches(fewest)[0].count(">") == 2


def test_where_the_plain_order_fails_too_no_order_is_left(at_once: Found) -> None:
    wrong = replace(at_once.fewest, expected=(*at_once.fewest.expected[:-1], Returned(17)))
    failing = replay(scheduled(wrong, "interleaved:5"), at_once.port)
    assert failing is not None
    assert switches(with_fewest_switches(failing, at_once.port)) == []


def test_what_does_not_fail_again_or_has_no_order_stays_as_it_is(at_once: Found) -> None:
    for schedule in ("", "switches:99>1"):
        case = scheduled(at_once.fewest, schedule)
        assert with_fewest_switches(case, at_once.port) is case


def test_simpler_schedules_have_fewer_switches_or_smaller_numbers() -> None:
    tried = list(simpler("switches:3>2,4>1"))
    assert tried[0] == ""
    assert {"switches:4>1", "switches:7>1", "switches:3>2", "switches:2>2,5>1", "switches:3>0,4>1"} <= set(
        tried
    )
    assert "warpswitches:2:1>1" in set(simpler("warpswitches:2:1>1,5>0"))
    assert "switches:;5>0" in set(simpler("switches:1>1;5>0"))


def test_reports_of_a_test_run_have_the_fewest_switches(early: Found, tmp_path: Path) -> None:
    kept = _Kept(Bench(early.port.subject, early.port), tmp_path)
    kept.begin(load_properties()[BY_SLOT])
    kept.end(Falsified(early.shrunk))
    (path,) = tmp_path.glob("*/case.json")
    assert switches(Case.load(path)) == switches(early.fewest)
