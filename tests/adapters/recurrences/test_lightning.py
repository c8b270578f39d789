"""The condition of vLLM's declared defect of lightning attention."""

import pytest

from statecheck.case.failure import Failure
from statecheck.case.values import Bounded, Call, Returned, Tensor, raw_floats
from statecheck.subject.profile import DOCUMENTS
from subjects.vllm_conditions import CONDITIONS
from tests.helpers.cases import a_case

STARTS = (0, 3, 303)
TOKENS = range(STARTS[-1])


@pytest.mark.parametrize("is_bounded", [True, False])
@pytest.mark.parametrize(
    ("tokens", "states", "is_declared"),
    [
        ((0,), (1, 0), True),
        ((2,), (0, 1), False),
        ((258,), (1, 0), False),
        ((259,), (0, 0), True),
        ((3,), (0, 1), True),
        ((2, 4), (0, 1), False),
    ],
)
def test_outputs_behind_a_state_alone_are_declared(
    tokens: tuple[int, ...], states: tuple[int, int], is_declared: bool, is_bounded: bool
) -> None:
    assert _is_declared(tokens, states, is_bounded=is_bounded) == is_declared


def test_a_wrong_output_behind_a_declared_one_is_not_declared() -> None:
    assert not _is_declared((0, 4), (1, 0), is_bounded=True)


def _is_declared(tokens: tuple[int, ...], states: tuple[int, int], *, is_bounded: bool) -> bool:
    """Whether outputs of these tokens may be wrong, of two rows of which some have a state."""
    shape, zeros = (len(TOKENS), 1), (0.0,) * len(TOKENS)
    near = tuple((at, 0.0, 0.5) for at in TOKENS)
    right = Bounded("float32", shape, raw_floats(zeros, "float32"), near)
    named = {
        "g": Tensor("float32", shape, (-1.0,) * len(TOKENS)),
        "query_start_loc": Tensor("int32", (3,), STARTS),
        "has_state": Tensor("bool", (2,), states),
    }
    case = a_case(
        steps=(Call("Recurrences.linear_chunk", (), tuple(named.items())),),
        expected=(Returned(right if is_bounded else Tensor("float32", shape, zeros)),),
        actual=(Returned(Tensor("float32", shape, tuple(float(at in tokens) for at in TOKENS))),),
        failure=Failure("value", "wrong", function="Recurrences.linear_chunk", call=0, place="result"),
    )
    return CONDITIONS["lightning_behind_a_state"](case, DOCUMENTS)
