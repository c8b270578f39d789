"""Calls of the subject, each of which should return a result or raise a certain exception."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import Any

import torch

from properties.harness.report.repro.runtime.child import BEGUN, conclude, in_child, note
from properties.harness.report.repro.runtime.ending import cannot_try
from properties.harness.report.repro.runtime.results import findings
from properties.harness.text import visible

__all__ = ["FAILED", "attempt", "end", "expect_refusal", "wrong_in_child", "wrong_with"]

FAILED = object()
"""In place of the result of a call that raised."""
refused: list[BaseException] = []
"""What the subject's classes raised when arguments were built."""


class NotOffered(Exception):
    """The case cannot be tried here, which says nothing about the subject."""


def attempt(call: Callable[[], Any]) -> Any:
    try:
        return _invoke(call)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        _require_offered(error)
        findings.append(
            f"the call raised {type(error).__name__}: {_message(error)}{_where(error)}, but should return a result"
        )
        return FAILED


def expect_refusal(exception: str, argument: str, call: Callable[[], Any]) -> None:
    """Expect an exception of that type, whose message has the argument's name as a word."""
    wanted = f"{exception} that names {argument}" if argument else exception
    try:
        observed = _invoke(call)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        _require_offered(error)
        named = re.search(rf"(?<!\w){re.escape(argument)}(?!\w)", _message(error))
        if type(error).__name__ != exception or (argument and not named):
            findings.append(
                f"the call raised {type(error).__name__}: {_message(error)}{_where(error)}, but should raise {wanted}"
            )
    else:
        findings.append(f"the call returned {observed}, but should raise {wanted}")


def _invoke(call: Callable[[], Any]) -> Any:
    """What an argument's class raised counts as raised by the call that wanted the argument."""
    if refused:
        first = refused[0]
        refused.clear()
        raise first
    return call()


def _message(error: BaseException) -> str:
    """The message of an exception, as text that can be printed anywhere."""
    try:
        return str(error).encode("utf-8", "backslashreplace").decode()
    except BaseException as second:
        return f"<its message cannot be read: {type(second).__name__}>"


def _where(error: BaseException) -> str:
    """The innermost line of the subject's own code, such as " (port.py:3 in chunk_indices)"; "" where there is none."""
    libraries = sys.stdlib_module_names | {"hypothesis", "numpy", "torch", "triton"}
    for raised in (error, error.__cause__):
        trace, found = raised.__traceback__ if raised is not None else None, ""
        while trace is not None:
            module, code = str(trace.tb_frame.f_globals.get("__name__")), trace.tb_frame.f_code
            if code.co_filename != __file__ and module.partition(".")[0] not in libraries:
                path = code.co_filename.replace(os.sep, "/").split("/")[-1 - module.count(".") :]
                names = [name for name in code.co_qualname.split(".") if not name.startswith("<")]
                found = f" ({'/'.join(path)}:{trace.tb_lineno} in {(names or [code.co_name])[-1]})"
            trace = trace.tb_next
        if found:
            return found
    return ""


def _require_offered(error: BaseException) -> None:
    """End without a verdict where something is missing here, memory for example."""
    # By name: a port may have an exception of its own that means the same.
    not_offered = type(error).__name__ == NotOffered.__name__
    if not_offered or isinstance(error, (ImportError, MemoryError, torch.OutOfMemoryError)):
        cannot_try(f"it cannot be tried here: {_message(error)}")


def wrong_with(check: Callable[[], None], stated: str = "") -> list[str]:
    """Run the case; what is wrong, a sentence each.

    Args:
        check: the case.
        stated: what is wrong with outcomes of which each alone is as expected. It holds as long as they are these.
    """
    findings.clear()
    try:
        check()
    except Exception as error:
        _require_offered(error)
        findings.append(f"the result cannot be read as documented: {type(error).__name__}: {error}")
    found = ([] if findings else [stated]) if stated else findings
    return [visible(one) for one in found]


def wrong_in_child(check: Callable[[], None], stated: str = "") -> list[str]:
    """As `wrong_with`, in a child process, which the case may end or keep for ever."""
    ended = in_child()
    if ended is None:
        note(BEGUN)
        try:
            note("\n".join(["", *wrong_with(check, stated)]))
        except BaseException as error:
            note(f"untried\n{error}")
        finally:
            os._exit(0)
    told, how = ended
    first, _, rest = told.partition("\n")
    if first == "untried":
        cannot_try(rest)
    return [how] if first else rest.splitlines()


def end(check: Callable[[], None], stated: str = "", depends_on: str = "") -> None:
    """Print what is wrong with the case, and exit: with 1 if anything is, otherwise with 0.

    Args:
        depends_on: what else the failure takes, which is not in the script: without it, nothing is known where nothing is wrong.
    """
    note(BEGUN)
    wrong = wrong_with(check, stated)
    for finding in wrong:
        print(finding)
    if not wrong and depends_on:
        cannot_try(
            f"this script alone cannot decide it: nothing is wrong here, but the failure depends on {depends_on}"
        )
    print("the defect is there" if wrong else "the defect is gone")
    conclude(1 if wrong else 0)
