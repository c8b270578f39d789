"""Other ways to search: what they draw, that they are silent about what is right, and that each finds an easy defect."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from properties.strategies.shapes import FAMILIES
from statecheck.execution.example import Bench
from statecheck.execution.port import InProcess
from subjects import load
from tests.hunt import page, results
from tests.hunt.__main__ import main, ways_of
from tests.hunt.defects import GROUPS, OF_RELEASES, planted_defects
from tests.hunt.trial import Hunt, hunt
from tests.hunt.ways import release_tests, search, traffic, types, uniform
from tests.hunt.ways.inputs import TARGETS, Target, sizes_of

EASY = "query lengths are the ends of the queries"
EASY_IN_ENGINES = "decodes read the state before the tokens that they accepted"


@pytest.fixture(scope="module")
def bench() -> Bench:
    subject = load("impl")
    return Bench(subject, InProcess(subject, "cpu"))


@pytest.mark.parametrize("target", TARGETS, ids=lambda one: one.name)
def test_uniform_inputs_are_documented_ones_and_agree(target: Target, bench: Bench) -> None:
    drawn, before = random.Random(5), bench.counts.compared
    tested = search.property_of(target)
    for _ in range(1 if target.launches else 4):
        tested.example(bench, value=uniform.DRAWN[target.input](drawn))
    assert bench.counts.compared > before or target.name == "divide"


@pytest.mark.parametrize("kind", [*uniform.DRAWN], ids=lambda one: one.__name__)
def test_every_input_has_a_strategy_of_its_types(kind: type[object]) -> None:
    seen = []

    @settings(max_examples=3, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(types.strategy_of(kind))
    def drawn(value: object) -> None:
        seen.append(value)

    drawn()
    assert seen
    assert all(isinstance(one, kind) for one in seen)


def test_a_strategy_needs_a_known_type() -> None:
    with pytest.raises(TypeError, match=r"^Owner\.field: .* has no strategy"):
        types.of_hint(dict[str, int], "Owner.field")
    assert isinstance(types.of_hint(bool, "Owner.field"), st.SearchStrategy)


def test_families_of_shapes_have_the_parameters_of_their_functions() -> None:
    assert sizes_of("mamba1_state_shape") == ("intermediate_size", "state_size", "conv_kernel")
    assert all(map(sizes_of, FAMILIES))


def test_traffic_through_what_is_right_shows_no_difference(bench: Bench) -> None:
    run = traffic.drawn(random.Random(3))
    assert run == traffic.drawn(random.Random(3)) or run.requests == traffic.drawn(random.Random(3)).requests
    search.traffic_property().example(bench, run=run)
    assert not bench.known_failures


def test_ways_are_named_and_hunts_of_each_are_hunts_of_their_own(tmp_path: Path) -> None:
    assert ways_of("types,traffic") == ["types", "traffic"]
    with pytest.raises(ValueError, match=r"^by = 'guess', but should be some of statecheck,types,"):
        ways_of("guess")
    both = [Hunt("one", "stateless", 1, 7, 3.0, 4.0, "p", by) for by in ("statecheck", "types")]
    results.save(both, tmp_path / "a.json", {})
    assert results.load(tmp_path) == both


def test_ways_are_compared_over_the_defects_that_both_were_tried_on() -> None:
    def a_hunt(defect: str, by: str, failure: float | None) -> Hunt:
        return Hunt(defect, "stateless", 1, 7, failure, 60.0, "p", by)

    hunts = [
        a_hunt("one", "statecheck", 4.0),
        a_hunt("two", "statecheck", 5.0),
        a_hunt("six", "statecheck", 1.0),
    ]
    hunts += [a_hunt("one", "types", 8.0), a_hunt("two", "types", None)]
    assert page.ratios(hunts).splitlines()[2] == "| types | 2 | 1 | 2 | 8.0 | 4.0 | 2.00 |"
    assert page.ratios(hunts[:3]) == ""
    assert "| all, types | 2 | 2 | 1 |" in page.table(hunts)
    assert "- stateless: two, types: not found by 1 of 1 seeds" in page.table(hunts)


def test_every_so_manieth_defect_of_each_group_is_a_sample() -> None:
    sample = planted_defects(every=8)
    assert len(sample) == sum(-(-len(group) // 8) for group in GROUPS.values())
    assert {one.group for one in sample} == set(GROUPS)


def test_defects_of_releases_are_hunted_for_where_they_are_named(tmp_path: Path) -> None:
    named = planted_defects(tuple(OF_RELEASES))
    assert len({(one.group, one.name) for one in named}) == len(named)
    assert all(one.release for one in named)
    with pytest.raises(ValueError, match=r"^by = 'types', but should be another way for vllm "):
        hunt(named[0], 1, 5.0, "types")
    (known,) = planted_defects(("known-0.33.0",))
    assert known.plant(tmp_path).options == ("--as-new",)


def test_the_tests_of_a_release_are_read_by_what_pytest_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = (
        ".F\n\nFAILED tests/a.py::test_one[2]\nERROR tests/b.py\n1 failed, 309 passed, 1 error in 3.2s\n"
    )
    assert release_tests.failing_tests(written) == ("tests/a.py::test_one[2]", "tests/b.py")
    assert release_tests.tests_run(written) == 311
    monkeypatch.setenv(release_tests.VARIABLE, str(tmp_path))
    with pytest.raises(ValueError, match=r"^RELEASE_TESTS = "):
        release_tests.folder_of_tests()
    (tmp_path / "tests").mkdir()
    assert release_tests.folder_of_tests() == tmp_path
    with pytest.raises(ValueError, match=r"^by = 'tests', but should be another way for sglang "):
        hunt(planted_defects(("sglang",))[0], 1, 5.0, "tests")


@pytest.mark.slow
@pytest.mark.parametrize(("by", "defect"), [("types", EASY), ("uniform", EASY), ("traffic", EASY_IN_ENGINES)])
def test_each_way_finds_an_easy_defect(by: str, defect: str, tmp_path: Path) -> None:
    options = ["--by", by, "--only", defect, "--seeds", "1", "--limit", "120s", "--workers", "1"]
    assert main([*options, "--out", str(tmp_path)]) == 0
    (found,) = results.load(tmp_path)
    assert found.by == by
    assert found.failure is not None
    assert 0 < found.failure <= found.report
    assert found.property_id
