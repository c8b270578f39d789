"""Conditions of entries about the shapes of states, and about results that are remembered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from oracle.profile import Profile
from statecheck.case import Case
from statecheck.case.values import Call, Expected
from subjects import Condition
from subjects.vllm_conditions.calls import Made, asked_again, calls_of, explained, with_argument

_WITHOUT_ROOM = "short_conv_state_shape"
_DRAFTS = "num_spec"


def _speculates(call: Call) -> bool:
    """A shape is asked for that has to have room for speculative tokens."""
    return call.function.endswith(_WITHOUT_ROOM) and bool(call.named.get(_DRAFTS))


def with_drafts(case: Case, _: Profile) -> bool:
    """A state's shape is asked for, with speculative tokens."""
    return any(_speculates(call) for call in case.calls)


def without_room(case: Case, profile: Profile) -> bool:
    """Every wrong shape is the one for no speculative tokens."""

    def rules(one: Made) -> Iterator[Expected]:
        if _speculates(one.call):
            yield asked_again(with_argument(one.call, _DRAFTS, 0), profile)

    return explained(case, profile, rules)


def repeats_an_earlier_result(case: Case, profile: Profile) -> bool:
    """Every wrong result is what an earlier call of the same function gave."""
    earlier: list[Made] = []
    for one in calls_of(case, profile):
        same = (other for other in earlier if other.call.function == one.call.function)
        if one.deviates and not any(one.is_as(other.expected) for other in same):
            return False
        earlier.append(one)
    return any(one.deviates for one in earlier)


STATELESS: Mapping[str, Condition] = {
    "no_room_for_drafts": Condition(with_drafts, without_room),
    "stale": Condition(outcome=repeats_an_earlier_result),
}
