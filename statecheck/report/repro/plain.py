"""Writes `repro.py` and `test_repro.py` of a port's plain call: a screen of lines that need the port alone."""

from __future__ import annotations

from pathlib import Path
from textwrap import shorten

from statecheck.case import Case
from statecheck.case.cause import first_wrong_call
from statecheck.case.values import Returned
from statecheck.report.filled import filled
from statecheck.report.law import should_hold
from statecheck.report.repro.upstream import AS_LISTS, as_lists, failing_call, own_call, upstream_test
from statecheck.subject import Subject
from statecheck.util.text import visible

_TEMPLATE = Path(__file__).parents[1] / "templates/plain.py.j2"
_LONGEST = 400


def plain_script(case: Case, subject: Subject | None, root: str) -> str:
    """The script's text; "" where a plain call does not show what the case shows.

    Args:
        root: the folder to import the port from, relative to the script's.
    """
    if subject is None or not is_plain(case, subject):
        return ""
    call, expected = failing_call(case)
    assert isinstance(expected, Returned)
    name = subject.own_name(call.function)
    return filled(
        _TEMPLATE,
        {"in_docstring": _in_docstring},
        case=case,
        should_hold=should_hold(case),
        message=shorten(case.message, _LONGEST),
        root=root,
        function=name,
        arguments=own_call(case, name).removeprefix(name),
        expected=repr(as_lists(expected.value)),
        as_lists=AS_LISTS,
    )


def plain_test(case: Case, subject: Subject | None) -> str:
    """The same as a test for pytest, or ""."""
    if subject is None or not is_plain(case, subject):
        return ""
    return upstream_test(case, subject)


def is_plain(case: Case, subject: Subject) -> bool:
    """Whether one call of a port's function with numbers and lists shows the failure by what it returns.

    The documents' form of the result and the port's own are the same as lists then, and so is what differs.
    """
    if not subject.functions or case.depends_on or case.failure is None:
        return False
    try:
        call, expected = failing_call(case)
        # Calls before it may leave something behind.
        if case.failure.call != 0 or first_wrong_call(case) != 0:
            return False
        actual = case.actual[0]
        upstream_test(case, subject)
        own_call(case, subject.own_name(call.function))
        return (
            isinstance(expected, Returned)
            and isinstance(actual, Returned)
            and as_lists(expected.value) != as_lists(actual.value)
        )
    except ValueError:
        return False


def _in_docstring(text: str) -> str:
    return visible(text).replace("\\", "").replace('"""', "'''")
