"""Every property has been seen to fail: each deliberate defect is found by the properties that it names."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

from statecheck.execution.registry import load_properties
from statecheck.expectations import symbols
from statecheck.kernels import triton_mode
from statecheck.subject import is_engine
from subjects import Subject, load
from tests.breakages import table
from tests.breakages.table import BREAKAGES, FILE, described, find, finders, hunt
from tests.breakages.variants import Breakage, broken_subject

NEED_CUDA = {
    "nothing_waits_for_the_device": "on the CPU there is nothing to wait for",
    "no_build_waits_for_the_device": "on the CPU there is nothing to wait for",
    "a_replayed_graph_reads_what_an_eager_step_builds": "there are no graphs without CUDA",
    "storing_by_row_never_waits_for_the_device": "on the CPU there is nothing to wait for",
    "storing_by_slot_never_waits_for_the_device": "on the CPU there is nothing to wait for",
    "precopying_never_waits_for_the_device": "on the CPU there is nothing to wait for",
    "the_postprocess_never_waits_for_the_device": "on the CPU there is nothing to wait for",
    "staging_never_waits_for_the_device": "on the CPU there is nothing to wait for",
    "host_arguments_on_the_device_are_refused_by_name": "on the CPU everything is on the host",
}
PAIRS = [(breakage, name) for breakage in BREAKAGES for name in finders(breakage)]
CAUGHT = {name for _, name in PAIRS}
FIRST = {name: (breakage, name) for breakage, name in reversed(PAIRS)}
"""One defect of each property, which every run tries."""


@pytest.fixture(scope="module")
def broken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    """A copy with one defect, made once for all properties that it names."""
    with broken_subject(request.param.variant, tmp_path_factory.mktemp("broken")) as subject:
        yield subject


@pytest.mark.parametrize(
    ("broken", "breakage", "name"),
    [
        pytest.param(breakage, breakage, name, id=f"{breakage.name}: {name}")
        for breakage, name in PAIRS
        if FIRST[name] == (breakage, name)
    ],
    indirect=["broken"],
)
def test_a_defect_is_found_by_the_properties_that_it_names(
    broken: Subject,
    breakage: Breakage,
    name: str,
    record_property: Callable[[str, object], None],
    pytestconfig: pytest.Config,
) -> None:
    """Unshrunk: shrinking what is found takes minutes, and is for the table."""
    if pytestconfig.getoption("--slow") and name == finders(breakage)[0]:
        pytest.skip("tests/campaign/known/test_known_lint.py has this property find this defect")
    if load_properties()[name].launches and not triton_mode.executes():
        pytest.skip("kernels are compiled in this process; their defects are hunted where they are executed")
    catch = find(breakage, name, load_properties(), broken, shrink=False)
    record_property("examples", catch.examples)
    record_property("seen", catch.seen)
    print(f"{breakage.name}: {name} after {catch.examples} examples: {catch.seen}")


OF_RELEASES = {
    name
    for name, one in load_properties().items()
    if any(is_engine(function) or function in symbols.OF_RELEASES for function in one.functions)
}
"""What only a release offers; `release.py` plants defects in one."""


def test_every_property_that_can_run_here_has_been_seen_to_fail() -> None:
    assert set(load_properties()) - CAUGHT - set(NEED_CUDA) - OF_RELEASES == set()


def test_only_properties_that_need_cuda_are_excused() -> None:
    tested = load_properties()
    assert [name for name in NEED_CUDA if tested[name].device != "cuda" or name in CAUGHT] == []


def test_every_defect_has_a_name_and_a_line_of_its_own() -> None:
    names = Counter(breakage.variant.package for breakage in BREAKAGES)
    lines = Counter((breakage.file, breakage.old, breakage.new) for breakage in BREAKAGES)
    assert [one for one, times in (names + lines).items() if times > 1] == []


def test_the_table_on_disk_is_of_these_defects() -> None:
    rows = [line for line in FILE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]
    pairs = itertools.zip_longest(rows, BREAKAGES)
    stale = [
        breakage.name if breakage else row
        for row, breakage in pairs
        if not (row and breakage and row.startswith(described(breakage)))
    ]
    assert stale == [], "`python -m tests.breakages.table --write --new` brings it up"


def test_rows_of_defects_that_are_no_longer_new_stay_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "BREAKAGES", BREAKAGES[:2])
    monkeypatch.setattr(table, "_hunt_all", lambda breakage, tested: [])
    monkeypatch.setattr(table, "_row", lambda breakage, catches: f"| {breakage.name} | new |")
    kept, gone = f"{described(BREAKAGES[1])} 7 | seen |", "| gone | `a.py` | a |"
    assert table.table([kept, gone]).splitlines()[-2:] == [f"| {BREAKAGES[0].name} | new |", kept]


def test_hunting_leaves_hypothesis_as_it_was() -> None:
    before = repr(settings())
    assert hunt(load_properties()["division_is_exact_or_refused"], load("impl"), shrink=True) is None
    assert repr(settings()) == before
