"""Which branches of kernels a process says that it took, and how it says that kernels were launched."""

from __future__ import annotations

import inspect
import json
import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from statecheck.campaign.coordinator import run
from statecheck.campaign.launched import KernelRecord, launches_of, records_of
from statecheck.campaign.plan import Plan
from statecheck.campaign.record import CampaignRecord
from statecheck.case.values import call
from statecheck.data.decode import Decoder
from statecheck.execution.example import Bench
from statecheck.kernels.coverage import EXECUTED, INTERPRETED, Branch, Coverage, How, summary, take
from statecheck.kernels.launch import STATE
from statecheck.kernels.memory import Memory
from statecheck.workers.port import InWorker
from tests.helpers.modules import ROOT, module

FILE = str(Path(__file__).relative_to(ROOT))


@pytest.fixture(autouse=True)
def _nothing_was_launched_so_far(trial: Bench) -> Iterator[None]:
    if trial.port.device != "cpu":
        pytest.skip("kernels are compiled in this process, and this is about executed ones")
    take()
    yield
    take()


# Or else a size of 1 would be a constant, and a kernel of its own.
@triton.jit(do_not_specialize=["size"])
def signs_kernel(x_ptr, out_ptr, size, STEP: tl.constexpr):  # type: ignore[no-untyped-def]
    for place in range(0, size, STEP):
        if tl.load(x_ptr + place) > 0:
            tl.store(out_ptr + place, 1)
        else:
            tl.store(out_ptr + place, -1)
            for _ in range(tl.load(x_ptr + place)):
                tl.store(out_ptr, 7)


@triton.jit(noinline=True)
def behind(x_ptr, places):  # type: ignore[no-untyped-def]
    return x_ptr + places


@triton.jit
def passed_on_kernel(x_ptr):  # type: ignore[no-untyped-def]
    tl.store(behind(x_ptr, 1), 5)


def line_of(text: str) -> int:
    """Of this file, where the text is unique in `signs_kernel`."""
    lines, first = inspect.getsourcelines(signs_kernel.fn)
    (number,) = (number for number, line in enumerate(lines) if text in line)
    return first + number


def launched(*numbers: int, step: int = 1) -> Coverage:
    """What is said of a launch of `signs_kernel` on these numbers."""
    given = torch.tensor(numbers or (0,), dtype=torch.int32)
    signs_kernel[(1,)](given, torch.zeros_like(given), len(numbers), STEP=step)
    return take()


def ways(branches: frozenset[Branch]) -> set[tuple[str, str]]:
    """Lines' source and the way taken."""
    return {(one.text, one.way) for one in branches}


OUTER = ("for place in range(0, size, STEP):", "loop")
THEN, ELSE = (("if tl.load(x_ptr + place) > 0:", way) for way in ("then", "else"))
INNER = ("for _ in range(tl.load(x_ptr + place)):", "loop")
ALL = {OUTER, THEN, ELSE, INNER}


@pytest.mark.parametrize(
    ("numbers", "taken"),
    [((), set()), ((5,), {OUTER, THEN}), ((0, -1), {OUTER, ELSE}), ((0, 5), {OUTER, THEN, ELSE})],
    ids=["no numbers", "positive", "not positive", "both"],
)
def test_branches_are_taken_by_what_a_launch_does(numbers: tuple[int, ...], taken: set[Any]) -> None:
    assert ways(launched(*numbers).taken) == taken


def test_branches_that_nothing_reaches_are_named_by_file_line_and_way() -> None:
    # Another variant, of which all branches are new here.
    found = launched(1, 0, step=2) + launched(1, 0)
    (kernel,) = (one for one in records_of(found.launches) if one.name == "signs_kernel")
    inner = [one for one in found.branches - found.taken if one.text == INNER[0]]
    assert [(one.file, one.line, one.way) for one in inner] == [(FILE, line_of("for _ in"), "loop")]
    assert kernel.place == f"{FILE}:{line_of('triton.jit')}"
    assert kernel.executed == 2


def test_variants_of_a_kernel_have_their_branches_in_common() -> None:
    one, other = launched(1, step=3), launched(0, step=4)
    assert (ways(one.branches), one.branches) == (ALL, other.branches)
    assert ways((one + other).taken) == {OUTER, THEN, ELSE}


def test_what_is_taken_over_is_told_once() -> None:
    launched(1, 0)
    assert not take()
    again = launched(1)
    # The branches that exist are sent once; the branches that were taken are sent each time.
    assert (again.branches, ways(again.taken), again.launches.total()) == (frozenset(), {OUTER, THEN}, 1)


class _Broken(Memory):
    def load1(self, *_: object) -> Any:
        raise RuntimeError("no memory")


def test_a_launch_that_ends_in_an_error_took_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STATE, "memory", lambda launch: _Broken())
    with pytest.raises(RuntimeError, match="no memory"):
        launched(1)
    assert ways(take().taken) == {OUTER}


def test_a_kernel_that_is_not_understood_is_interpreted_and_the_reason_is_told() -> None:
    numbers = torch.zeros(2, dtype=torch.int32)
    for _ in range(3):
        passed_on_kernel[(1,)](numbers)
    (how,) = (found := take()).launches
    assert numbers.tolist() == [0, 5]
    assert (how.kernel, how.how, found.launches[how]) == ("passed_on_kernel", INTERPRETED, 3)
    assert how.why == "a function of its own that returns pointers"
    (kernel,) = records_of(found.launches)
    assert (kernel.executed, kernel.interpreted[0].times, found.branches) == (0, 3, frozenset())


def test_coverage_goes_from_process_to_process_and_launches_into_files() -> None:
    found = launched(1, step=5)
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301 - what has just been written
    written = json.loads(json.dumps([asdict(one) for one in records_of(found.launches)]))
    assert launches_of(Decoder().decode(written, list[KernelRecord])) == found.launches


def how(kernel: str, why: str = "") -> How:
    return How(kernel, INTERPRETED if why else EXECUTED, why)


@pytest.mark.parametrize(
    ("launches", "text"),
    [
        ({}, ""),
        ({how("f"): 1}, "1 executed from their IR (1 launch)"),
        ({how("f"): 12_000, how("g"): 345}, "2 executed from their IR (12,345 launches)"),
        ({how("f", "tt.new"): 12}, "1 in Triton's interpreter, unwatched: f (tt.new), 12 launches"),
        (
            {how("f"): 2, how("f", "a"): 1, how("g", "b"): 3},
            "1 executed from their IR (2 launches); 2 in Triton's interpreter, unwatched: g (b), 3 launches; f (a), 1 launch",
        ),
    ],
)
def test_how_kernels_were_run_is_a_line(launches: dict[How, int], text: str) -> None:
    assert summary(Counter(launches)) == text


def test_of_many_interpreted_kernels_some_are_named() -> None:
    assert summary({how(f"k{n}", "x"): 1 for n in range(1, 10)}).endswith("; k8 (x), 1 launch; 1 more")


LAUNCHING = """
import torch, triton, triton.language as tl

@triton.jit
def halves_kernel(x_ptr):
    if tl.load(x_ptr) > 10:
        tl.store(x_ptr, 1)

def halve(x):
    number = torch.tensor([x])
    halves_kernel[(1,)](number)
    return int(number)
"""


@pytest.mark.slow
def test_a_subject_in_a_process_of_its_own_is_covered_too(tmp_path: Path) -> None:
    with module(tmp_path, "toy_halves", LAUNCHING) as name, InWorker(name, "cpu") as port:
        found = []
        for x in (3, 30):
            port.begin()
            port.execute(call("halve", x=x))
            found.append(port.take_coverage())
        assert not port.take_coverage()
    assert [{one.way for one in each.taken} for each in found] == [{"else"}, {"then"}]
    assert [each.launches.total() for each in found] == [1, 1]
    assert {(one.file, one.line) for one in found[0].branches} == {("toy_halves.py", 6)}


COPIES = "an_accepted_state_on_a_boundary_is_stored_in_the_column_of_its_block"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> CampaignRecord:
    """A campaign of a few examples on impl."""
    folder = tmp_path_factory.mktemp("campaign")
    plan = Plan(
        "covered",
        "impl",
        COPIES,
        "cpu",
        budget=None,
        examples=12,
        engines=1,
        reports=str(folder),
        corpus=str(folder / "corpus"),
        seed=1,
    )
    return run(plan)


def test_a_campaign_on_impl_counts_the_launches_of_its_kernels(campaign: CampaignRecord) -> None:
    (kernel,) = campaign.launched
    assert kernel.name == "postprocess_mamba_fused_kernel"
    assert kernel.executed > 0
