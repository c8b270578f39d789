"""The calls of a case: what was known before each, what the rules expect of it, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from oracle.profile import Profile
from statecheck.case import Case
from statecheck.case.compare import outcome_difference
from statecheck.case.values import ITEM_SIZES, Call, Expected, Outcome, Tensor, Value, View, as_bytes
from statecheck.execution.run import Follower, recorded
from statecheck.reference import answer

Known = Mapping[str, Value]
Rules = Callable[["Made"], Iterable[Expected]]
"""What may come of a call on a subject that has a defect."""


@dataclass(frozen=True)
class Made:
    """A call with its names resolved, and its number; `known` are contents before it, by name, None where unknown.

    `profile` is that of the release that was called.
    """

    number: int
    call: Call
    known: Known
    expected: Expected
    actual: Outcome
    device: str
    profile: Profile

    def is_as(self, expected: Expected) -> bool:
        """Whether what came of it is this."""
        return outcome_difference(expected, self.actual, places=self.device != "cpu") is None

    @property
    def deviates(self) -> bool:
        """Whether what came of it is not what the rules expect."""
        return not self.is_as(self.expected)

    def wrong_bytes(self) -> Iterator[tuple[str, bytes, bytes, bytes]]:
        """The tensors in which it left something else: the name, and the bytes before, expected and observed."""
        wanted = dict(self.expected.after)
        for name, seen in self.actual.after:
            before, right = self.known.get(name), wanted.get(name)
            if isinstance(seen, Tensor) and isinstance(before, Tensor) and isinstance(right, Tensor):
                three = (raw(before), raw(right), raw(seen))
                if three[1] != three[2]:
                    yield (name, *three)


def raw(tensor: Tensor) -> bytes:
    """The bytes that a tensor holds, as they are observed."""
    assert tensor.elements is not None
    return as_bytes(tensor.elements, tensor.dtype)


def calls_of(case: Case, profile: Profile) -> Iterator[Made]:
    """The calls of a case, in order, on a release."""
    expected, known = recorded(case.expected), dict[str, Value]()

    def expect(call: Call, before: Known) -> Expected:
        known.clear()
        known.update(before)
        return expected(call, before)

    outcomes = enumerate(case.actual)
    for _, asked in Follower(expect).follow(case.steps):
        if asked is not None:
            number, actual = next(outcomes)
            yield Made(number, asked.call, dict(known), asked.expected, actual, case.device, profile)


def some_call(holds: Callable[[Call, Profile], bool]) -> Callable[[Case, Profile], bool]:
    """Whether it holds of some call of a case on the release."""
    return lambda case, profile: any(holds(one.call, profile) for one in calls_of(case, profile))


def wrong_calls(case: Case, profile: Profile) -> list[Made]:
    """The calls that deviate from the rules; of a scenario the last one, since what came of those before it did not matter."""
    wrong = [one for one in calls_of(case, profile) if one.deviates]
    is_scenario = case.failure is not None and not case.failure.function
    return wrong[-1:] if is_scenario else wrong


def explained(case: Case, profile: Profile, rules: Rules) -> bool:
    """Whether some call deviates from the rules, and each that does is as these other rules have it."""
    wrong = wrong_calls(case, profile)
    return bool(wrong) and all(any(one.is_as(other) for other in rules(one)) for one in wrong)


def with_argument(call: Call, name: str, value: Value) -> Call:
    """The call with another value of an argument that it has."""
    arguments, keywords = (
        tuple((key, value if key == name else old) for key, old in pairs)
        for pairs in (call.arguments, call.keywords)
    )
    return replace(call, arguments=arguments, keywords=keywords)


def asked_again(call: Call, profile: Profile, known: Known | None = None) -> Expected:
    """What the rules of a release expect of a changed call."""
    return answer(call, known, profile)


def changed_blocks(before: bytes, after: bytes, page: int) -> set[int]:
    """The blocks in which two contents of a pool differ."""
    return {at // page for at, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]}


def everything(values: Iterable[Value]) -> Iterator[Any]:
    """The values, and all that they are made of."""
    waiting = list(values)
    while waiting:
        one = waiting.pop()
        yield one
        fields = getattr(one, "__dataclass_fields__", None)
        if fields is not None:
            waiting.extend(getattr(one, name) for name in fields)
        elif isinstance(one, dict):
            waiting.extend(chain(one.keys(), one.values()))
        elif isinstance(one, (list, tuple)) and not all(isinstance(item, int) for item in one):
            waiting.extend(one)


def only_wrong(case: Case, profile: Profile, holds: Callable[[Made], bool]) -> bool:
    """Whether some call left wrong bytes, and it holds of each that did."""
    wrong = wrong_calls(case, profile)
    return bool(wrong) and all(next(one.wrong_bytes(), None) is not None and holds(one) for one in wrong)


def warp_by_warp(case: Case) -> bool:
    """Where kernels are compiled, a load may see what another warp has stored. On a CPU the sanitizer stops at that load."""
    return case.device != "cpu"


def pages_of(call: Call) -> dict[str, int]:
    """Bytes from one block to the next, by pool."""
    views = (one for one in everything(call.named.values()) if isinstance(one, View))
    strides = ((one.of, one.strides[0] * ITEM_SIZES[one.dtype]) for one in views if one.strides)
    return {pool: stride for pool, stride in strides if stride}
