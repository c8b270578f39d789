"""Every property has been seen to fail: each planted defect is found by the properties that it names."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from lab.hunt.defects import planted_defects, release_python
from statecheck import rooms
from statecheck.case import Case
from statecheck.execution.registry import load_properties
from statecheck.kernels import triton_mode
from statecheck.subject import is_documented
from subjects import Subject
from tests.helpers.hunts import MAX_EXAMPLES, hunt
from tests.helpers.planted import (
    IN_IMPL,
    IN_PORTS,
    IN_RELEASES,
    PlantedDefect,
    broken_subject,
    planted,
    planted_in_impl,
)

PROPERTIES = load_properties()
NEED_CUDA = {
    "common-metadata/no-sync": "on the CPU there is nothing to wait for",
    "builder/no-sync": "on the CPU there is nothing to wait for",
    "builder/graph-replay": "there are no graphs without CUDA",
    "v1-postprocess/no-sync": "on the CPU there is nothing to wait for",
    "v2-postprocess/no-sync": "on the CPU there is nothing to wait for",
    "precopy/no-sync": "on the CPU there is nothing to wait for",
    "align-postprocess/no-sync": "on the CPU there is nothing to wait for",
    "staging/no-sync": "on the CPU there is nothing to wait for",
}
OF_RELEASES = {
    tested.id
    for tested in PROPERTIES.values()
    if not all(is_documented(function) or function.startswith("harness.") for function in tested.functions)
}
"""What only a release offers; the groups of releases plant defects there."""
COPIED = (*planted_in_impl(), *(defect for group in IN_PORTS for defect in planted(group)))
PAIRS = [(defect, name) for defect in COPIED for name in defect.found_by]
FIRST = {name: defect for defect, name in reversed(PAIRS)}
"""One defect of each property."""
TRIED = {PROPERTIES[name].topic: (FIRST[name], name) for name in reversed(FIRST)}
"""Of each module of properties, a defect and its property; the others are slow."""
_MOST_CALLS, _MOST_TOKENS = 7, 70
"""Of a shrunk case: with the call that makes the context. A rounding needs a certain state, beside which up to two sequences more may stay."""
SHRUNK: dict[str, Callable[[Case], bool]] = {
    "tests/adapters/sequences/reference_port.py": lambda case: (
        len(case.calls) <= _MOST_CALLS and case.model == "small"
    ),
    "examples/recurrences_port.py": lambda case: (
        max(call.named["query_start_loc"].values()[-1] for call in case.calls) <= _MOST_TOKENS
    ),
}
"""By a port, what holds of the smallest input that is found of its defects."""


@pytest.fixture(scope="module")
def broken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    """A copy with one defect, made once for all properties that it names."""
    with broken_subject(request.param.variant, tmp_path_factory.mktemp("broken")) as subject:
        yield subject


@pytest.mark.parametrize(
    ("broken", "defect", "name"),
    [
        pytest.param(
            *(defect, defect, name),
            id=f"{defect.name}: {name}",
            marks=[] if (defect, name) in TRIED.values() else pytest.mark.slow,
        )
        for defect, name in PAIRS
    ],
    indirect=["broken"],
)
def test_a_defect_is_found_by_the_properties_that_it_names(
    broken: Subject, defect: PlantedDefect, name: str, record_property: Callable[[str, object], None]
) -> None:
    if PROPERTIES[name].launches and not triton_mode.executes():
        pytest.skip("kernels are compiled in this process; their defects are hunted where they are executed")
    is_small = SHRUNK.get(defect.file)
    catch = hunt(PROPERTIES[name], broken, shrink=is_small is not None)
    assert catch is not None, f"{name} passes {MAX_EXAMPLES} examples, but should fail: {defect.name}"
    assert is_small is None or is_small(catch.case), catch.case.calls
    record_property("examples", catch.examples)
    record_property("seen", catch.seen)


def test_every_property_that_can_run_here_has_been_seen_to_fail() -> None:
    assert set(PROPERTIES) - set(FIRST) - set(NEED_CUDA) - OF_RELEASES == set()


def test_only_properties_that_need_cuda_are_excused() -> None:
    assert [name for name in NEED_CUDA if PROPERTIES[name].device != "cuda" or name in FIRST] == []


def test_every_defect_of_a_copy_has_its_own_name_and_line() -> None:
    names = Counter(defect.variant.package for defect in COPIED)
    lines = Counter((defect.file, defect.old, defect.new, defect.also) for defect in COPIED)
    assert [key for key, times in (names + lines).items() if times > 1] == []


@pytest.mark.parametrize("group", [*IN_IMPL, *IN_PORTS, *IN_RELEASES])
def test_defects_of_a_group_have_distinct_names_and_name_properties(group: str) -> None:
    defects = planted(group)
    assert len({defect.name for defect in defects}) == len(defects)
    named = {name for defect in defects for name in (*defect.found_by, *defect.found_inside_by)}
    assert named - set(PROPERTIES) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "word"),
    [
        ("vllm", "rejected drafts"),
        ("vllm", "preempted request comes back"),
        ("vllm", "get the block behind"),
        ("vllm", "convolution is copied into the temporal"),
        ("vllm", "eight requests"),
        ("vllm-all", "column of their last scheduled token"),
        ("vllm-connectors", "another block"),
        ("vllm-connectors", "too early"),
        ("vllm-connectors", "while they are loaded"),
        ("vllm-stages", "does not wait for the sampled tokens"),
        ("vllm-kernels", "prompts in pieces"),
        ("vllm-functions", "first heads of a temporal state"),
        ("inside", "sampled token reaches"),
        ("sglang", "given out twice"),
        ("sglang", "after the first token of a step"),
        ("sglang", "not copied to host memory"),
        ("sglang-functions", "only the first layer"),
        ("llamacpp", "as long"),
        ("llamacpp", "without the last layer"),
        ("llamacpp", "as an infill"),
    ],
)
def test_a_defect_of_a_release_is_found(group: str, word: str) -> None:
    defects = planted_defects([group], word)
    assert defects
    project, release = group.partition("-")[0].replace("inside", "vllm"), defects[0].release
    if not release_python(project, release).exists():
        pytest.skip(f"statecheck fuzz --{project} {release} makes the environment")
    command = [sys.executable, "-m", "lab.planted", "--groups", group, "--only", word, "--examples", "600"]
    found = subprocess.run(command, cwd=rooms.FOLDER, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
