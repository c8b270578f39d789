"""Subjects that are wrong on purpose, and cases about them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from oracle.profile import Profile
from statecheck.case import Case
from statecheck.case.compare import outcome_difference
from statecheck.case.failure import Failure, failure_of, raised_instead, stated
from statecheck.case.faults import DEVICE_FAULT
from statecheck.case.findings import FINDINGS
from statecheck.case.values import Call, DType, Expected, Outcome, Raised, Refusal, Step, call, record
from subjects import KnownDeviation, Subject

if TYPE_CHECKING:
    from statecheck.execution.registry import Property

ROOT = Path(__file__).resolve().parents[2]


def toy(*deviations: KnownDeviation, **names: Any) -> Subject:
    """A subject that has nothing but `names`."""
    module = ModuleType("toy")
    vars(module).update(names)
    return Subject("toy", module, deviations)


PAGES = call(
    "MambaSpec.max_memory_usage_bytes",
    self=record(
        "MambaSpec",
        block_size=4,
        shapes=((1,),),
        dtypes=(DType("int8"),),
        mamba_cache_mode="all",
        num_speculative_blocks=2,
    ),
    vllm_config=record("VllmConfig", model_config=record("ModelConfig", max_model_len=10)),
)
"""Three pages by the documents, and five in a release that keeps pages of drafts."""


def toy_of_pages(pages: int, profile: Profile) -> Subject:
    """A subject whose requests take so many pages, of a release with that profile."""
    subject = toy(MambaSpec=SimpleNamespace(max_memory_usage_bytes=lambda self, vllm_config: pages))
    subject.profile = profile
    return subject


def a_property(body: Callable[..., None] = lambda trial: None, **changes: Any) -> Property:
    """A property that no campaign knows."""
    from statecheck.execution.registry import Property

    fields: dict[str, Any] = {
        "name": "toys_divide",
        "sentence": "Toys divide.",
        "kind": "agreement",
        "functions": ("divide",),
        "body": body,
        "strategies": {},
        "module": __name__,
    }
    return Property(**fields | changes)


@dataclass
class Pipe:
    """The coordinator's end, as a list of what was sent; `on_send` looks at the world at that moment."""

    sent: list[Any] = field(default_factory=list)

    def send(self, message: Any) -> None:
        self.sent.append(message)


def case_of(subject: Subject, device: str, *steps: Step) -> Case:
    """What a trial hands on about `steps`, whether or not the subject answers them by the rules."""
    from statecheck.execution.example import Bench, Falsified
    from statecheck.execution.port import InProcess

    trial = Bench(subject, InProcess(subject, device)).begin(a_property())
    trial.run(*steps)
    try:
        trial.holds(False, "made for a test", "should not be")
    except Falsified as falsified:
        return falsified.case
    raise AssertionError("a condition that is false held")


def failure_in(
    message: str, calls: Sequence[Call], expected: Sequence[Expected], actual: Sequence[Outcome], device: str
) -> Failure:
    """The failure that a message describes, with the fields that the outcomes of the calls give it."""
    places = device != "cpu"
    functions = dict.fromkeys(call.function for call in calls)
    function = next((name for name in functions if f" [{name}(" in message), "")
    sentence, _, shown = message.partition(f" [{function}(") if function else (message, "", "")
    shown = f"{function}({shown.removesuffix(']')}" if function else ""
    for number, (asked, wanted, seen) in enumerate(zip(calls, expected, actual, strict=False)):
        difference = outcome_difference(wanted, seen, places=places)
        fatal = isinstance(seen, Raised) and (seen.exception == DEVICE_FAULT or seen.exception in FINDINGS)
        if difference is not None and (fatal or message.startswith(f"{difference} [")):
            return failure_of(difference, wanted, seen, function=asked.function, call=number, shown=shown)
    last = actual[-1] if actual else None
    if isinstance(last, Raised) and message.startswith(f"the call = {last.exception}: {last.message}"):
        return raised_instead(last, function=calls[-1].function, call=len(calls) - 1, shown=shown)
    observed, _, rest = sentence.partition(", but ")
    return stated(observed, rest, function=function, shown=shown)


def a_case(**changes: Any) -> Case:
    """A case about `divide(x=5, y=2)`, made without running anything."""
    fields: dict[str, Any] = {
        "property_name": "toys_divide",
        "sentence": "Toys divide.",
        "subject": "toy",
        "steps": (call("divide", x=5, y=2),),
        "expected": (Refusal("x"),),
        "actual": (Raised("ValueError", "out of order"),),
        "message": "the call = ValueError: out of order, but should be ValueError that names x",
    }
    fields |= changes
    message = fields.pop("message")
    calls = [one for one in fields["steps"] if isinstance(one, Call)]
    values = (calls, fields["expected"], fields["actual"], fields.get("device", "cpu"))
    fields.setdefault("failure", failure_in(message, *values))
    return Case(**fields)


def in_order(case: Case, schedule: str) -> Case:
    """The same, with the programs of every launch in that order, where a call does not name another one."""
    steps = (
        replace(step, schedule=step.schedule or schedule) if isinstance(step, Call) else step
        for step in case.steps
    )
    return replace(case, steps=tuple(steps))


@contextmanager
def module(folder: Path, name: str, source: str) -> Iterator[str]:
    """An importable module `name`; gone from this process afterwards."""
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    sys.path.insert(0, str(folder))
    try:
        yield name
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(name, None)


_RUN_SCRIPTS = """
import contextlib, io, json, os, runpy, sys, traceback

jobs = json.load(open(sys.argv.pop(), encoding="utf-8"))
# In this process: a child's output would not be collected.
sys.argv.append("--here")
results, path = [], list(sys.path)
for script, variables in jobs:
    before, output = dict(os.environ), io.StringIO()
    os.environ.update(variables)
    with contextlib.redirect_stdout(output):
        try:
            runpy.run_path(script, run_name="__main__")
            code = "no exit"
        except SystemExit as end:
            code = end.code
        except BaseException:
            code = traceback.format_exc()
    os.environ.clear()
    os.environ.update(before)
    sys.path[:] = path
    results.append((code, output.getvalue()))
print(json.dumps({"results": results, "modules": sorted(sys.modules)}))
"""


@dataclass(frozen=True)
class BreakageVerdict:
    """How a script ended: its exit code, or the traceback it died of, and what it printed."""

    code: int | str
    output: str


def run_scripts(
    folder: Path, jobs: list[tuple[Path, dict[str, str]]]
) -> tuple[list[BreakageVerdict], set[str]]:
    """Run scripts one after the other in one process, which imports torch once; also its modules at the end.

    Args:
        folder: a place for the runner.
        jobs: scripts with the environment variables to add.
    """
    (folder / "run_scripts.py").write_text(_RUN_SCRIPTS, encoding="utf-8")
    (folder / "jobs.json").write_text(json.dumps([(str(script), added) for script, added in jobs]))
    clean = {
        name: value for name, value in os.environ.items() if name not in ("SUBJECT", "SUBJECT_PATH", "DEVICE")
    }
    command = [sys.executable, str(folder / "run_scripts.py"), str(folder / "jobs.json")]
    done = subprocess.run(
        command, env=clean | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return [BreakageVerdict(code, output) for code, output in found["results"]], set(found["modules"])


FAULTY = """
import ctypes
import os
import time
from types import SimpleNamespace

import torch
import triton
import triton.language as tl
from triton import knobs


def add_one(x):
    return x + 1


def remember(x, known=[]):
    known.append(x)
    return known


def complain(x):
    raise ValueError(f"x = {x}, but should be 0 [complain]")


def leave(code):
    os._exit(code)


def be_killed(signal):
    os.kill(os.getpid(), signal)


def sleep(seconds):
    time.sleep(seconds)


def touch_nothing(device):
    if device.type == "cpu":
        ctypes.string_at(0)
    _store_far_away[(1,)](torch.zeros(1, dtype=torch.int32, device=device), 1 << 42)


def never_end(device):
    if device.type == "cpu":
        while True:
            pass
    torch.cuda._sleep(1 << 60)


def wait(device):
    return torch.zeros(1, dtype=torch.int32, device=device).item()


def compile_slowly(seconds):
    knobs.runtime.jit_cache_hook()
    time.sleep(seconds)
    _compiled()
    return 1


def compile_and_sleep(seconds):
    knobs.runtime.jit_cache_hook()
    _compiled()
    time.sleep(seconds)


def _compiled():
    compiled = {"signature": {"x": "i32"}, "constants": None}
    knobs.runtime.jit_post_compile_hook(compile=compiled, fn=SimpleNamespace(name="toy.kernel"))


@triton.jit
def _store_far_away(pointer, distance):
    tl.store(pointer + distance.to(tl.int64), 1)
"""
"""A subject that harms its process in every way, on the device that a call names."""

DEVIANT = """

def cdiv(x, y):
    os._exit(9)


class MambaSpec:
    def __init__(self, **fields):
        vars(self).update(fields)

    @property
    def page_size_bytes(self):
        return -1


del get_temporal_copy_spec

SUBJECT = Subject(
    __name__,
    sys.modules[__name__],
    (
        KnownDeviation(
            "a_padded_page_is_as_large_as_its_padding_says",
            "https://example.org/1",
            Symptom("value", "MambaSpec.page_size_bytes.fget", "result"),
        ),
        KnownDeviation(
            "an_unknown_layout_is_refused",
            "https://example.org/2",
            Symptom("refusal", "get_conv_state_layout", "result"),
        ),
    ),
)
"""
"""The rest of a subject that kills its worker, lacks a function, and deviates as it declares and not as it declares."""

EXACT, ROUNDS_UP = "division_is_exact_or_refused", "ceiling_division_rounds_up_for_either_sign"
PADDED, UNKNOWN = "a_padded_page_is_as_large_as_its_padding_says", "an_unknown_layout_is_refused"
TEMPORAL = "a_temporal_copy_is_the_block_of_the_last_accepted_token"
FATES = {
    EXACT: "FALSIFIED",
    ROUNDS_UP: "FALSIFIED",
    PADDED: "known",
    TEMPORAL: "not applicable",
}
"""What becomes of properties on such a subject."""
