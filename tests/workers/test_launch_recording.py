"""Examples of properties as cases, recorded without a subject."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import strategies as st

from statecheck.case import Case
from statecheck.case.values import call, int32
from statecheck.diagnose.rerun import replay
from statecheck.execution.example import Bench, Trial
from statecheck.execution.port import InProcess
from statecheck.execution.registry import Property, load_properties
from statecheck.subject import is_engine
from statecheck.workers.compute_sanitizer.record import LaunchRecorder, launches
from subjects import load

SEED = 3
DOCUMENTED = "the_kernel_that_stores_states_may_be_launched_as_documented"
PRECOPY = "a_state_is_precopied_to_the_column_where_its_request_goes_on"
KERNEL = "postprocess_mamba_fused_kernel"
LAUNCHING = sorted(
    name for name, one in load_properties().items() if one.launches and not any(map(is_engine, one.functions))
)


@lru_cache
def recorded(name: str) -> tuple[list[Case], str]:
    return record(load_properties()[name], 1)


def of(strategy: st.SearchStrategy[Any], body: Any) -> Property:
    """A property that is not registered."""
    return replace(load_properties()[DOCUMENTED], body=body, strategies={"drawn": strategy})


def record(tested: Property, examples: int = 2) -> tuple[list[Case], str]:
    return LaunchRecorder(load("impl"), "cuda", SEED).record(tested, examples)


@pytest.mark.parametrize("name", LAUNCHING)
def test_a_property_that_launches_kernels_is_recorded_as_a_case_that_launches(name: str) -> None:
    tested = load_properties()[name]
    (case,), reason = recorded(name)
    assert reason == ""
    assert tested.kind == "refusal" or launches(tested, case)


@pytest.mark.parametrize("name", LAUNCHING[::4])
def test_a_recorded_case_is_one_that_the_subject_answers_by_the_rules(trial: Bench, name: str) -> None:
    for guards in (True, False):
        port = InProcess(load("impl"), trial.port.device, guards=guards)
        assert replay(recorded(name)[0][0], port) is None


def test_a_seed_records_the_same_cases_again_and_they_differ() -> None:
    first, _ = record(load_properties()[PRECOPY], 3)
    assert record(load_properties()[PRECOPY], 3) == (first, "")
    assert len({case.digest for case in first}) == 3


def test_what_was_recorded_before_an_example_that_only_a_subject_can_answer_stays() -> None:
    def body(trial: Trial, drawn: bool) -> None:
        trial.agrees(chunks(int(drawn)))
        trial.holds(not drawn, "only a subject can tell")

    cases, reason = record(of(st.booleans(), body))
    assert cases
    assert reason.startswith("Falsified: only a subject can tell")


def chunks(requests: int) -> Any:
    starts = int32(list(range(requests + 2)))
    return call("compute_varlen_chunk_metadata", query_start_loc=starts, chunk_size=4)


def test_the_bench_of_a_recorder_says_which_device_it_stands_for() -> None:
    recorder = LaunchRecorder(load("impl"), "cuda", SEED)
    tested = load_properties()["storing_by_row_never_waits_for_the_device"]
    assert tested.not_applicable(recorder.bench()) is None
