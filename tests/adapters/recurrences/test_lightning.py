"""The condition of vLLM's declared defect of lightning attention."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import exp

import pytest

from oracle.recurrences.linear import linear_step
from properties.strategies.recurrences import Batch, Row, Sizes
from statecheck.case.failure import Failure, outcome_difference
from statecheck.case.values import Bounded, Call, Returned, Step, Tensor, floats_of, raw_floats
from statecheck.execution.run import Follower, rules_of
from statecheck.reference.recurrences import FloatMemory
from statecheck.subject.profile import Profile
from subjects.vllm_conditions import CONDITIONS
from tests.helpers.cases import a_case

PROFILE = Profile(lightning=("linear_chunk",))
BLOCK, LENGTHS = 256, (3, 258)
FRESH, CONTINUED = (True, False)
"""Whether a row begins without a state."""
Outputs = list[float]


@cache
def example(*fresh: bool) -> tuple[tuple[Step, ...], Returned, Outputs, Outputs]:
    """A call of two rows: its steps, what is expected, the right outputs and those of a kernel whose states before a block decay by a token too little."""
    rows = tuple(
        Row(number, 0 if is_fresh else 5, length, (number,), 1, is_fresh)
        for number, (is_fresh, length) in enumerate(zip(fresh, LENGTHS, strict=True))
    )
    sizes, options = Sizes(1, 1, 4, 2), frozenset({"decay", "constant decay"})
    steps = tuple(Batch("linear_chunk", sizes, rows, 2, options=options).of_release(PROFILE).steps())
    follower = Follower(rules_of(PROFILE))
    *preparation, call = steps
    assert isinstance(call, Call)
    for step in preparation:
        follower.learn(step, None)
    memory, asked = FloatMemory(dict(follower.memory.known(call))), follower.resolved_call(call)
    assert asked is not None
    assert isinstance(asked.expected, Returned)
    named = asked.call.named
    q, k, v, g, states = (memory.nested(named[name]) for name in ("q", "k", "v", "g", "states"))
    right, wrong = [], []
    for row, start in zip(rows, (0, LENGTHS[0]), strict=True):
        state = [[0.0] * 4 for _ in range(2)] if row.is_fresh else states[row.sequence][0]
        for token in range(start, start + row.length):
            if (token - start) % BLOCK == 0:
                before, own, behind = state, [[0.0] * 4 for _ in range(2)], 0
            inputs, decay = (q[token][0], k[token][0], v[token][0]), exp(g[token][0])
            state, output = linear_step(state, *inputs, decay, named["scale"])
            own, of_block = linear_step(own, *inputs, decay, named["scale"])
            _, of_state = linear_step(
                before, q[token][0], [0.0] * 4, [0.0] * 2, decay**behind, named["scale"]
            )
            behind += 1
            right += output
            wrong += [a + b for a, b in zip(of_block, of_state, strict=True)]
    return steps, asked.expected, right, wrong


def held(expected: Returned) -> tuple[tuple[str, Tensor], ...]:
    """The right states, in memory."""
    ((name, states),) = expected.after
    assert isinstance(states, Bounded)
    values = list(floats_of(states.raw, "float32"))
    for at, value, _ in states.near:
        values[at] = value
    raw = raw_floats(values, "float32")
    return ((name, Tensor("uint8", (len(raw),), raw)),)


def is_declared(
    fresh: tuple[bool, bool], change: Callable[[Outputs, Outputs], Outputs], stated: str = ""
) -> bool:
    """Whether outputs that are made of the right ones and the defective ones are declared, where the call's difference fails, or what a property states of it."""
    steps, expected, right, wrong = example(*fresh)
    assert isinstance(expected.value, Bounded)
    outputs = Tensor("float32", expected.value.shape, tuple(change(right, wrong)))
    actual = Returned(outputs, after=held(expected))
    difference = outcome_difference(expected, actual, places=False)
    assert difference is not None
    observed = stated or difference.seen
    case = a_case(
        steps=steps,
        expected=(expected,),
        actual=(actual,),
        failure=Failure("value", observed, function="Recurrences.linear_chunk", call=0, place="result"),
    )
    return CONDITIONS["lightning_behind_a_state"](case, PROFILE)


def defective(_: Outputs, wrong: Outputs) -> Outputs:
    return wrong


@pytest.mark.parametrize("fresh", [(FRESH, FRESH), (CONTINUED, FRESH), (FRESH, CONTINUED)])
def test_outputs_of_a_decay_too_little_are_declared(fresh: tuple[bool, bool]) -> None:
    assert is_declared(fresh, defective)
    assert not is_declared(fresh, defective, "outputs of row 0 differ alone")


@pytest.mark.parametrize(
    ("fresh", "token"),
    # Tokens behind a state and others, in either row; token 259 is the first of the second row's second block.
    [((CONTINUED, FRESH), 1), ((CONTINUED, FRESH), 4), ((FRESH, FRESH), 2), ((FRESH, FRESH), 260)],
)
def test_an_output_that_is_wrong_by_anything_else_is_not_declared(
    fresh: tuple[bool, bool], token: int
) -> None:
    def change(_: Outputs, wrong: Outputs) -> Outputs:
        return [*wrong[: 2 * token], wrong[2 * token] + 2.0, *wrong[2 * token + 1 :]]

    assert not is_declared(fresh, change)


def test_all_states_too_large_are_not_declared() -> None:
    def change(right: Outputs, wrong: Outputs) -> Outputs:
        return [good + 2.0 * (bad - good) for good, bad in zip(right, wrong, strict=True)]

    assert not is_declared((CONTINUED, CONTINUED), change)
