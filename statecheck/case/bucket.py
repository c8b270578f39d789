"""What failing cases are cases of: one bucket of those that show the same thing, and one cause where one defect is behind several buckets.

A thousand inputs that show one defect count as one.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from statecheck.case.case import Case
from statecheck.case.failure import outcome_difference, without_indices
from statecheck.case.values import Call, Outcome, Raised, Record, Value

BEGINS = "Sequences"
"""The call with which each scenario begins."""
ExecutedCall = Sequence[tuple[Call, Outcome]]
"""Calls, with what came of each."""


def scenarios(case: Case) -> list[ExecutedCall]:
    """The calls of each scenario, the first of which makes the library."""
    found: list[list[tuple[Call, Outcome]]] = []
    for call, outcome in zip(case.calls, case.actual, strict=False):
        if call.function == BEGINS:
            found.append([])
        if found:
            found[-1].append((call, outcome))
    return [tuple(one) for one in found]


def last_scenario(case: Case) -> Case:
    """The case without scenarios of earlier examples."""
    numbers = [number for number, call in enumerate(case.calls) if call.function == BEGINS]
    if len(numbers) < 2:
        return case
    first = numbers[-1]
    at = [number for number, step in enumerate(case.steps) if step is case.calls[first]][-1]
    failure = case.failure
    if failure is not None and failure.call is not None:
        about = tuple(number - first for number in failure.about if number >= first)
        failure = replace(failure, call=max(0, failure.call - first), about=about)
    return replace(
        case,
        steps=case.steps[at:],
        expected=case.expected[first:],
        actual=case.actual[first:],
        failure=failure,
        own_calls=case.own_calls[first:],
    )


_DIGITS = 10


@dataclass(frozen=True)
class Bucket:
    """Failing cases of one property that show the same thing on the same subject, and the same model of a library of sequences.

    Args:
        rule: what the subject broke, see `Failure.rule`.
        fault: kind of the device's fault, or name of the sanitizer's finding; "" for a wrong answer.
        raised: function and text of the subject's line that an exception came from, which stay as they are where lines move;
            "" where no exception is the failure, or no line is known.
    """

    property: str
    rule: str
    fault: str
    subject: str
    raised: str = ""

    @builtins.property
    def id(self) -> str:
        """Ten hexadecimal digits, the same in every process and on every machine."""
        parts = [self.property, self.rule, self.fault, self.subject]
        parts += [self.raised] if self.raised else []
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_DIGITS]


def bucket_of(case: Case) -> Bucket:
    """The bucket of a failing case, shrunk or not."""
    rule, fault = (case.failure.rule, case.failure.fault) if case.failure is not None else ("", "")
    # One defect of each model of a library of sequences.
    rule = f"{rule} of {case.model}" if case.model else rule
    return Bucket(case.property_id, rule, fault, case.subject, raised_by(case))


def raised_by(case: Case) -> str:
    """The line of the subject that the failure's exception came from, without its number."""
    failure = case.failure
    if failure is None or failure.kind != "refusal" or failure.call is None:
        return ""
    return line_of(case.actual[failure.call])


def line_of(outcome: Outcome) -> str:
    """The line of the subject that the call raised at, without its number; "" where it returned, or no line is known."""
    at = outcome.at if isinstance(outcome, Raised) else None
    return f"{at.function}: {at.text}" if at is not None else ""


_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")


def _words_of(outcome: Outcome) -> str:
    """The error's name and its first line, without numbers; "" where the call returned."""
    if not isinstance(outcome, Raised):
        return ""
    first, *_ = outcome.message.splitlines() or [""]
    return f"{outcome.exception}: {_NUMBERS.sub('', first)}"


_PLAIN = frozenset({"add_request", "step"})
"""What happens in nearly every scenario of an engine."""
_SIZE = re.compile(r"max_|num_blocks|num_stages|_size|_tokens")
"""Names of settings that say how many or how large, and turn nothing on."""


@dataclass(frozen=True)
class Cause:
    """Failures at the same call and place count as one cause; of a failure that no single call shows, its rule is the place.

    An engine, or a library of sequences, has few calls, whose outcomes name a law: there the call and the place say little. Failures of an engine
    count as one cause where, in their smallest inputs, the same features are on and the same things happen. Those of a library count as one where
    they are of the same model and the same features of its context, whatever operation shows them; an error is another cause than wrong logits, and than other errors.

    Args:
        function: the documents' name of what was called first with a wrong outcome, "" where no single call shows it.
        place: where in its result or in memory, without indices.
        fault: the kind of the device's fault, or the name of the sanitizer's finding; "" for a wrong answer.
        own: what a port itself calls that function, if that is known.
        raised: the function of the subject whose line raised, with that line, see `Bucket`; of a library in another process, where no line is known,
            the error's words without its numbers.
        setting: of an engine or a library, the features that are on, and what happens beside plain steps; "" for any other subject.
    """

    function: str
    place: str
    fault: str = ""
    own: str = ""
    raised: str = ""
    setting: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        if self.function.startswith(f"{BEGINS}."):
            return BEGINS, "", self.fault, self.raised, self.setting
        return self.function, self.place, self.fault, self.raised, self.setting


def cause_of(case: Case) -> Cause:
    """The cause that a failing case shows."""
    bucket = bucket_of(case)
    number = first_wrong_call(case)
    if number is None:
        function = case.failure.function if case.failure is not None else ""
        return Cause(function, bucket.rule, bucket.fault, setting=_setting(last_scenario(case)))
    call = case.calls[number]
    function = str(call.named["kernel"]) if call.function == "harness.launch" else call.function
    raised = line_of(case.actual[number]) or (_words_of(case.actual[number]) if case.model else "")
    name = own_name(case, number)
    return Cause(function, _place(case, number), bucket.fault, name, raised, _setting(last_scenario(case)))


def _setting(case: Case) -> str:
    """The features of an engine or a library that are on, and what happens in the case beside plain steps."""
    made = case.calls[0].named if case.calls else {}
    if case.model:
        features: Mapping[str, Any] = made.get("features", {})
        return ", ".join([case.model, *(f"{name}={value}" for name, value in sorted(features.items()))])
    settings = made.get("settings")
    if not isinstance(settings, Record):
        return ""
    on = (_feature(name, value) for name, value in settings.fields)
    happens = {call.function.rpartition(".")[2] for call in case.calls[1:]} - _PLAIN
    return ", ".join([*filter(None, on), *sorted(happens)])


def _feature(name: str, value: Value) -> str:
    """A setting that turns something on or off; "" for a size."""
    if isinstance(value, bool):
        return name if value else f"no {name}"
    if isinstance(value, str):
        return f"{name}={value}"
    return name if isinstance(value, int) and not _SIZE.search(name) else ""


def wrong_calls(case: Case) -> Iterator[int]:
    """The numbers of the calls whose outcomes are not what the rules expect: none where a condition is about several."""
    places = case.device != "cpu"
    pairs = enumerate(zip(case.expected, case.actual, strict=True))
    return (number for number, pair in pairs if outcome_difference(*pair, places=places) is not None)


def first_wrong_call(case: Case) -> int | None:
    """The first of them; None where each outcome alone is right."""
    return next(wrong_calls(case), None)


def _place(case: Case, number: int) -> str:
    pair = case.expected[number], case.actual[number]
    difference = outcome_difference(*pair, places=case.device != "cpu", part=case.failing_part(number))
    assert difference is not None
    if case.actual[number].changed:
        return ", ".join(dict.fromkeys(map(without_indices, case.actual[number].changed)))
    return without_indices(difference.place)


def own_name(case: Case, number: int) -> str:
    """The name of the port's own function behind a call, "" where there is none, or none is known."""
    calls = case.own_calls[number] if number < len(case.own_calls) else ""
    failure = case.failure
    if not calls and failure is not None and failure.call == number and not failure.about:
        calls = failure.shown
    return calls.rpartition("\n")[2].partition("(")[0]
