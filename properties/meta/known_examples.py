"""A subject with known defects, and worker processes that pretend to meet one. torch stays out, as in `broken`."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection
from pathlib import Path

from properties.harness.known_defects import Lift, pending_name
from properties.harness.worker import Finished, Progress, Setting, pending_path
from properties.meta.broken import _tasks as tasks
from properties.meta.broken import a_case
from properties.subjects import KnownDeviation, Symptom

LARGE = KnownDeviation(
    ("division_*", "ceiling_*"),
    "https://example.org/1",
    Symptom("value", "cdiv", "result"),
    id="large",
    title="Large numbers",
)
"""What the pretended workers meet."""

SUBJECT = """
import sys

from impl import *
from properties.subjects import KnownDeviation, Subject, Symptom


def divide(x, y):
    return 0


def cdiv(x, y):
    return -(-x // y) + (x > 50)


SUBJECT = Subject(
    __name__,
    sys.modules[__name__],
    (
        KnownDeviation(
            ("ceiling_*", "no_such_*"),
            "https://example.org/1",
            Symptom("value", "cdiv", "result"),
            id="large",
            title="Large numbers come out too large",
        ),
        KnownDeviation(
            "an_unknown_layout_is_refused",
            "https://example.org/2",
            Symptom("refusal", "get_conv_state_layout", "result"),
            id="layout",
        ),
        KnownDeviation(
            "no_such_property", "https://example.org/3", Symptom("value", "divide", "result"), id="never"
        ),
    ),
)
"""
"""A subject with a known defect, with one that is gone, and with a new one."""


def dies_of_reports(setting: Setting, pipe: Connection) -> None:
    """Meets the defect, and dies when it has something to report."""
    for task in tasks(pipe):
        if isinstance(task, Lift):
            _leave_case(setting, task)
            os._exit(7)
        _meet(task.property, pipe)


def never_ends_reports(setting: Setting, pipe: Connection) -> None:
    """Meets the defect, and never ends its report."""
    for task in tasks(pipe):
        if isinstance(task, Lift):
            _leave_case(setting, task)
            time.sleep(3600)
        _meet(task.property, pipe)


def _meet(name: str, pipe: Connection) -> None:
    pipe.send(Progress(name, 300))
    pipe.send(Finished(name, "passed", 0.1, known_failures=(LARGE.link,), shown={"large": 3}))


def _leave_case(setting: Setting, lift: Lift) -> None:
    case = a_case(property_name=lift.property, subject=setting.subject)
    case.save(pending_path(Path(setting.reports), pending_name(lift.known)))
