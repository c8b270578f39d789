"""The condition of vLLM's declared defect of lightning attention."""

import pytest

from statecheck.case.failure import Failure
from statecheck.case.values import Call, Returned, Tensor
from statecheck.subject.profile import DOCUMENTS
from subjects.vllm_conditions import CONDITIONS
from tests.helpers.cases import a_case

STARTS = (0, 3, 303)


@pytest.mark.parametrize(
    ("token", "states", "is_declared"),
    [(0, (1, 0), True), (2, (0, 1), False), (258, (1, 0), False), (259, (0, 0), True), (3, (0, 1), True)],
)
def test_outputs_behind_a_state_alone_are_declared(
    token: int, states: tuple[int, int], is_declared: bool
) -> None:
    right = Tensor("float32", (303, 1), (0.0,) * 303)
    wrong = Tensor("float32", (303, 1), tuple(float(at == token) for at in range(303)))
    named = {
        "g": Tensor("float32", (303, 1), (-1.0,) * 303),
        "query_start_loc": Tensor("int32", (3,), STARTS),
        "has_state": Tensor("bool", (2,), states),
    }
    case = a_case(
        steps=(Call("Recurrences.linear_chunk", (), tuple(named.items())),),
        expected=(Returned(right),),
        actual=(Returned(wrong),),
        failure=Failure("value", "wrong", function="Recurrences.linear_chunk", call=0, place="result"),
    )
    assert CONDITIONS["lightning_behind_a_state"](case, DOCUMENTS) == is_declared
