"""What a failing case is a case of, so that a thousand inputs that show one defect count as one."""

from __future__ import annotations

import builtins
import hashlib
import json
import re
from dataclasses import dataclass

from properties.harness.case import Case
from properties.harness.compare import Difference, outcome_difference
from properties.harness.device.faults import DEVICE_FAULT
from properties.harness.sanitizer.findings import FINDINGS, RACES
from properties.harness.values import Call, Expected, Outcome, Raised, Refusal

_DIGITS = 10


@dataclass(frozen=True)
class Bucket:
    """Failing cases of one property that show the same thing on the same subject.

    Args:
        rule: what the subject broke, in words that hold for every input: no number, name or value of one is in it.
        fault: kind of the device's fault, or name of the sanitizer's finding; "" for a wrong answer.
    """

    property: str
    rule: str
    fault: str
    subject: str

    @builtins.property
    def id(self) -> str:
        """Ten hexadecimal digits, the same in every process and on every machine."""
        parts = json.dumps([self.property, self.rule, self.fault, self.subject])
        return hashlib.sha256(parts.encode()).hexdigest()[:_DIGITS]


def bucket_of(case: Case) -> Bucket:
    """The bucket of a failing case, shrunk or not."""
    return Bucket(case.property_name, _rule(case), _fault(case), case.subject)


def _fault(case: Case) -> str:
    for one in case.actual:
        if isinstance(one, Raised) and one.exception == DEVICE_FAULT:
            return one.message.partition(":")[0]
        if isinstance(one, Raised) and one.exception in FINDINGS:
            return one.exception
    return ""


def _rule(case: Case) -> str:
    for step, expected, actual in zip(case.calls, case.expected, case.actual, strict=False):
        if isinstance(actual, Raised) and (actual.exception == DEVICE_FAULT or actual.exception in FINDINGS):
            return f"{step.function}: {_what_faulted(actual)}"
        found = outcome_difference(expected, actual, places=case.device != "cpu")
        if found is not None and case.message.startswith(f"{found} ["):
            return f"{step.function}: {_what_differs(found, expected, actual)}"
    last = case.actual[-1] if case.actual else None
    if isinstance(last, Raised) and case.message.startswith(f"the call = {last.exception}: {last.message}"):
        return f"{case.calls[-1].function}: {_what_was_raised(last)}"
    return plain(_without_call(case.message, case.calls))


_ACCESS = re.compile(r"program \([^)]*\) of (\w+) (\w+) .*?`([^`]*)`")


def _what_faulted(fault: Raised) -> str:
    """A fault's own words name addresses and programs; who touched what is all that stays."""
    if fault.exception == DEVICE_FAULT:
        return "device fault"
    access = _ACCESS.search(fault.message)
    if access is None:
        return plain(fault.message)
    kernel, verb, tensor = access.groups()
    # Which side of a race is told first depends on the input.
    return f"{kernel} {'races for' if fault.exception in RACES else verb} {_place(tensor)}"


def _what_differs(found: Difference, expected: Expected, actual: Outcome) -> str:
    if actual.changed:
        return ", ".join(dict.fromkeys(map(_place, actual.changed))) + " written to"
    if isinstance(expected, Refusal) and found.place in ("result", "the call"):
        done = f"raises {actual.exception}" if isinstance(actual, Raised) else "returns"
        return f"{done}, but should raise {expected.exception} that names {_place(expected.argument)}"
    if isinstance(actual, Raised) and found.place == "the call":
        return _what_was_raised(actual)
    return _place(found.place)


def _what_was_raised(outcome: Raised) -> str:
    return f"raises {outcome.exception}: {plain(outcome.message)}"


def _place(place: str) -> str:
    """A place without indices, and without the numbers that tell things of a kind apart: `pool0[3]` is `pool`."""
    place = re.sub(r"^byte \d+ (before|behind) |\.shape$", "", place)
    place = re.sub(r"^len\((.*)\)$", r"\1", place)
    while (shorter := re.sub(r"\[[^][]*\]", "", place)) != place:
        place = shorter
    return re.sub(r"(?<=[A-Za-z])_?\d+(?=\W|$|_[a-z]+\d+)", "", place).replace("..", ".")


def _without_call(message: str, calls: tuple[Call, ...]) -> str:
    """A condition's message ends with the call that shows it."""
    for function in {call.function for call in calls}:
        message = message.partition(f" [{function}(")[0]
    return message


_VALUE = "#"
_INSIDE_OUT = (
    (re.compile(r"'(?:[^'\\]|\\.)*'(?!\w)|\"(?:[^\"\\]|\\.)*\""), _VALUE),
    (re.compile(r"(?<=\w)[\[({][^][(){}]*[\])}]"), ""),
    (re.compile(r"[\[({][^][(){}]*[\])}]|<\w[^<>]*>"), _VALUE),
)
"""Quoted text; what stands in brackets, which is an index, or the contents of what is named before it; and a value alone."""
_HEX = r"[0-9a-f]{2}"
_ALONG = (
    (re.compile(rf"(?<!should )\b{_HEX}(?: (?:\| |\.\.\. )?{_HEX})+\b|\b{_HEX}(?=$| \|)"), _VALUE),
    (re.compile(r"\b(?:True|False|None)\b|\b(?=\w*\d)\w+\b"), _VALUE),
    (re.compile(r"-?#(?:(?:, and|,| and| or| \||\.\.|[.:/x×*-]| ?\+)? ?-?#)*"), _VALUE),
    (re.compile(r"(?<=# )(\w{3,}?)s\b"), r"\1"),
    (re.compile(r" = .*?, but should"), " = #, but should"),
)
"""Bytes; numbers, and names that have some; several of them; the plural, which depends on the number; and what was seen."""


def plain(message: str) -> str:
    """The first line of a message without what belongs to one input: numbers, ids, quoted text and lists of them."""
    text = message.partition("\n")[0]
    for pattern, instead in _INSIDE_OUT:
        while (shorter := pattern.sub(instead, text)) != text:
            text = shorter
    for pattern, instead in _ALONG:
        text = pattern.sub(instead, text)
    return text
