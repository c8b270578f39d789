"""Arguments of align mode of another type or value than the documented ones: a `ValueError` names each, and nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import strategies as st

from properties.refusals.test_align_refusals import (
    ALL,
    SETUP,
    STEP,
    TWO_GROUPS,
    BadSteps,
    buffer,
    changed,
    collected,
    create,
    launch,
    preprocess,
    staged,
    uploaded,
    with_fields,
    with_requests,
)
from properties.strategies.align.launches import POSTPROCESS, POSTPROCESS_ALIGN, PRECOPY
from properties.strategies.align.runner import (
    STAGE,
    STAGE_COLUMNS,
    STAGE_METADATA,
    Scheduled,
    copy_buffers,
    requests_of,
    scheduler_output,
)
from properties.strategies.align.runner_steps import RunnerStep
from properties.strategies.forms import with_value, wrong_ints
from statecheck.case.values import Call, Let, Name, Rows, Step, Tensor, int32, int64, record
from statecheck.execution.example import Bench, Trial
from statecheck.execution.registry import PROPERTIES, prop, written_examples


def forms(name: str, steps: tuple[Step, ...], *paths: str) -> Iterator[BadSteps]:
    """The steps with each of these ints of the last call as a bool and as a float."""
    last = steps[-1]
    assert isinstance(last, Call)
    for form in wrong_ints(last, *paths):
        yield BadSteps(f"{form.name}, {name}", (*steps[:-1], form.call))


def lists(**changes: object) -> tuple[Step, ...]:
    return Let("config", SETUP.config(4)), changed(copy_buffers(SETUP, 1), **changes)


def renamed(**changes: object) -> tuple[Step, ...]:
    return preprocess(requests=with_requests(STEP, **changes))


INT_FORMS = (
    *forms("context", create(), "max_num_reqs", "num_state_types"),
    *forms("lists", lists(), "max_num_reqs"),
    *forms("buffer", (buffer(3),), "size0"),
    *forms("upload", uploaded(2), "n"),
    *forms("copy", collected(0, 3), "src_col", "dst_col"),
    *(
        form
        for one in (POSTPROCESS, POSTPROCESS_ALIGN, PRECOPY)
        for form in forms(one, launch(one), "num_reqs")
    ),
    *(form for one in (STAGE, STAGE_COLUMNS, STAGE_METADATA) for form in forms(one, staged(one), "num_reqs")),
    *forms(
        "preprocess",
        preprocess(),
        "scheduler_output.num_scheduled_tokens.r0",
        "requests.r0.num_computed_tokens",
    ),
)
ROWS = requests_of(STEP.cache, STEP.rows)
VALUES = (
    BadSteps("lists without copy functions", lists(copy_funcs=())),
    BadSteps("a buffer without a dimension", (buffer(),)),
    BadSteps("a buffer of negative length", (buffer(-1),)),
    BadSteps(
        "a remembered column below -1",
        (
            *(
                Let("state_idx", {"r0": -2, "r1": 1})
                if isinstance(one, Let) and one.name == "state_idx"
                else one
                for one in STEP.prepared()
            ),
            STEP.preprocess(),
        ),
    ),
    BadSteps(
        "a request in two rows",
        (*STEP.prepared(), with_value(STEP.preprocess(), "input_batch.req_ids", ["r0", "r0"])),
    ),
    BadSteps(
        "counts for too few rows",
        (
            *(
                Let("accepted", int32([2]).on_host())
                if isinstance(one, Let) and one.name == "accepted"
                else one
                for one in STEP.prepared()
            ),
            STEP.preprocess(),
        ),
    ),
    BadSteps("negative computed tokens", renamed(num_computed_tokens=-1)),
    BadSteps("blocks of too few groups", renamed(block_ids=[])),
    *(
        BadSteps(
            f"a column of {column}, {function}",
            staged(function, columns={row.id: column for row in STEP.rows}),
        )
        for function in (STAGE, STAGE_COLUMNS)
        for column in (-1, 2**31)
    ),
    *(
        BadSteps(
            f"a column of {column} in one row, {function}",
            staged(function, columns={"r0": first, "r1": last}),
        )
        for function in (STAGE, STAGE_COLUMNS)
        for column in (-1, 2**31)
        for first, last in ((column, 0), (0, column))
    ),
    BadSteps(
        "bools as tokens computed and scheduled",
        preprocess(
            requests=with_requests(STEP, num_computed_tokens=True),
            scheduler_output=with_fields(STEP.output, num_scheduled_tokens={"r0": True, "r1": 1}),
        ),
    ),
    *(
        BadSteps(f"{name}, {function}", staged(function, **{argument: value}))
        for function in (STAGE, STAGE_METADATA)
        for name, argument, value in (
            (
                "negative computed tokens",
                "requests",
                {one: with_fields(row, num_computed_tokens=-1) for one, row in ROWS.items()},
            ),
            (
                "more scheduled tokens than 32 bits",
                "scheduler_output",
                with_fields(STEP.output, num_scheduled_tokens=dict.fromkeys(ROWS, 2**31)),
            ),
        )
    ),
)
TABLES = {
    "of 64 bits": int64([[1, 2, 3, 4]] * 2),
    "of one dimension": int32([1, 2, 3, 4]),
    "with gaps in its rows": Tensor("int32", (2, 2), (1,) * 8, (4, 2)),
}
TWO_TABLES = replace(STEP, setup=TWO_GROUPS)


def tabled(step: RunnerStep, *tables: Tensor) -> tuple[Step, ...]:
    """Preprocess with these tables in the batch."""
    held = [record("BlockTable", get_device_tensor=Rows(table)) for table in tables]
    return (*step.prepared(), with_value(step.preprocess(), "input_batch.block_table", held))


OF_ALL = {
    "scheduler_output": scheduler_output([Scheduled("r0", 0, 3, 3, 2)]),
    "kv_cache_config": Name("config"),
    "input_batch": record("InputBatch", req_ids=["r0"]),
    "requests": {},
    "mamba_state_idx": Name("state_idx"),
    "num_spec_tokens": 2,
    "num_reqs": 1,
}
TABLES_AND_MODES = (
    *(BadSteps(f"a batch's block table {name}", tabled(STEP, table)) for name, table in TABLES.items()),
    BadSteps(
        "block tables of two widths", tabled(TWO_TABLES, int32([[1, 2, 3]] * 2), int32([[1, 2, 3, 4]] * 2))
    ),
    BadSteps(
        "a full decode of an unknown request",
        (
            Let("config", SETUP.config(4)),
            Let("state_idx", {}),
            Call(ALL, tuple(OF_ALL.items()), observes=("state_idx",)),
        ),
    ),
)
BAD_INPUTS = (*INT_FORMS, *VALUES, *TABLES_AND_MODES)


@prop(
    "bad-input/align-values",
    "refusal",
    *sorted({bad.call.function for bad in BAD_INPUTS}),
    bad=st.sampled_from(BAD_INPUTS),
)
def test_wrong_values_of_align_mode_are_refused_by_name(trial: Trial, bad: BadSteps) -> None:
    before, last = bad.steps[:-1], bad.call
    if any(isinstance(step, Call) for step in before):
        trial.agrees(*before)
        trial.refuses(last)
    else:
        trial.refuses(*before, last)


@written_examples("wrong_values_of_align_mode_are_refused_by_name", "bad", BAD_INPUTS, lambda bad: bad.name)
def test_each_wrong_value_of_align_mode_is_refused(trial: Bench, bad: BadSteps) -> None:
    PROPERTIES["wrong_values_of_align_mode_are_refused_by_name"].example(trial, bad=bad)
