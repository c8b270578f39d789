"""Arguments of align mode in a form that no document has: a refusal names each. The rules know of no such form."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from properties.strategies.refusals import (
    STEP,
    VECTORS,
    collected,
    initialize,
    launch,
    layers,
    memcpy,
    postprocessed,
    preprocess,
    with_value,
)
from statecheck.case.values import Let, Raised, Step, Tensor, int32
from statecheck.execution.in_process import InProcess
from statecheck.execution.run import executed
from subjects import load

GAPS = Tensor("int32", (2,), (1, 0, 1), (2,))


def wrong_forms() -> Iterator[tuple[str, str, tuple[Step, ...]]]:
    """The argument, what is wrong with it, and steps of which the last has it."""
    listed: tuple[Tensor | list[int], ...] = ([0, 0], GAPS)
    for form in listed:
        kind = "a list" if isinstance(form, list) else "a vector with gaps"
        for argument in ("src_ptrs", "dst_ptrs", "sizes"):
            dtype = "int32" if argument == "sizes" else "int64"
            value = form if isinstance(form, list) else Tensor(dtype, (2,), (0, 0, 0), (2,))
            yield argument, kind, memcpy(**{argument: value})
        host = form if isinstance(form, list) else Tensor("int32", (2,), (1, 0, 1), (2,), on="host")
        argument = "num_accepted_tokens_cpu_tensor"
        yield argument, kind, postprocessed(num_accepted_tokens_cpu_tensor=host)
    for function, vectors in VECTORS.items():
        for vector in vectors:
            yield vector, f"a list, {function}", launch(function, **{vector: [1, 1]})
    yield "kv_cache", "a list", initialize(forward_context=layers(temporal=[[1, 2]]))
    yield "block_tables[0]", "a list", initialize(block_tables=[[[1, 2, 3]]])
    counts = "num_accepted_tokens_cpu"
    matrix = Let("accepted", Tensor("int32", (2, 2), (2, 1, 2, 1), on="host"))
    named = tuple(matrix if step == Let("accepted", STEP.accepted()) else step for step in STEP.prepared())
    yield counts, "a matrix", (*named, STEP.preprocess())
    yield counts, "a list", with_value(preprocess(), f"input_batch.{counts}", [2, 1])
    short = Let("accepted", int32([2]).on_host())
    named = tuple(short if step == Let("accepted", STEP.accepted()) else step for step in STEP.prepared())
    yield counts, "a vector too short", (*named, STEP.preprocess())
    for group in (-1, 1):
        yield "group_ids[0]", f"{group}", collected(0, 1, group_ids=[group])


WRONG = {f"{argument}: {kind}": (argument, steps) for argument, kind, steps in wrong_forms()}


@pytest.mark.parametrize("name", WRONG)
def test_an_argument_of_another_form_is_refused_by_name(name: str) -> None:
    argument, steps = WRONG[name]
    port = InProcess(load("impl"), "cpu")
    port.begin()
    outcome = executed(port, steps)[-1]
    assert isinstance(outcome, Raised)
    place, refused, _ = outcome.message.partition(" = ")
    assert outcome.exception == "ValueError", outcome.message
    assert refused
    assert argument in place, outcome.message
