"""Attribution: cases of kernels with known defects are explained by program and line, and their scripts show them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest

from statecheck import rooms
from statecheck.case import Case
from statecheck.case.failure import WrongBytes
from statecheck.case.values import Raised, Returned
from statecheck.diagnose.attribution import explain_case, explained
from statecheck.diagnose.replay import replay_file
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.executors import ordinary_port
from statecheck.execution.in_process import InProcess
from statecheck.execution.registry import load_properties
from statecheck.report.render import write_report
from statecheck.util import limits
from subjects import Subject, load
from tests.helpers.cases import a_case
from tests.helpers.modules import ROOT
from tests.helpers.planted import Variant, broken_subject
from tests.helpers.processes import alive, gone, run_python

pytestmark = pytest.mark.usefixtures("executed")

STORED = "v1-postprocess/boundary"
TWICE = "v1-postprocess/idempotent"
SCENARIOS = "lifecycle/v1-provenance"
POSTPROCESS = "align/kernels/postprocess.py"
BEHIND = Variant(
    "one_column_behind", POSTPROCESS, "run, accepted, blocks - 1, bias", "run, accepted, blocks, bias"
)
IN_PLACE = Variant(
    "counts_in_place",
    POSTPROCESS,
    "counts_out = num_accepted_tokens_out_ptr",
    "counts_out = num_accepted_tokens_ptr",
)
UNMASKED = Variant(
    "load_without_mask",
    POSTPROCESS,
    "tl.load(values.num_draft_tokens + slots, mask=mask, other=0)",
    "tl.load(values.num_draft_tokens + slots)",
)
BLOCK_BEFORE = Variant(
    "the_block_before",
    "align/kernels/states.py",
    "block_id(table, dst_col, table_width)\n",
    "block_id(table, dst_col, table_width) - 1\n",
)


@dataclass(frozen=True)
class Found:
    """A counterexample, explained; the subject is gone from this process, but its folder is not."""

    case: Case
    folder: Path

    @property
    def subject(self) -> str:
        return self.case.subject


def search(variant: Variant, name: str, folder: Path, *, sanitized: bool, examples: int = 300) -> Found:
    """The failure that a property finds in a broken copy of the implementation."""
    with broken_subject(variant, folder) as subject:
        context = ExecutionContext(subject, InProcess(subject, "cpu", sanitized=sanitized), seed=1)
        with pytest.raises(Falsified) as falsified:
            # Without the written examples: in the first of these that fails, what is wrong was written by no kernel.
            load_properties()[name].explore(context, seed=1, max_examples=examples, simplest=False)
        return Found(explained(falsified.value.case, subject), folder)


def script_says(found: Found, folder: Path, subject: str = "", path: Path | None = None) -> int:
    """The exit code of the case's `repro.py` in `folder`, about the broken copy or another subject."""
    directory = write_report(found.case, folder, load("impl"))
    variables = os.environ | {"SUBJECT": subject or found.subject, "SUBJECT_PATH": str(path or found.folder)}
    return run_python(directory / "repro.py", env=variables).returncode


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return search(BEHIND, STORED, tmp_path_factory.mktemp("behind"), sanitized=False)


@pytest.fixture(scope="module")
def in_place(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return search(IN_PLACE, TWICE, tmp_path_factory.mktemp("in_place"), sanitized=True)


@pytest.fixture(scope="module")
def unmasked(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return search(UNMASKED, STORED, tmp_path_factory.mktemp("unmasked"), sanitized=True)


def test_a_wrong_byte_is_traced_to_the_program_the_call_and_the_line_that_wrote_it(behind: Found) -> None:
    assert re.fullmatch(
        r"`pool0\[\d+\]` was written last by program \(0, 0, 0\) of postprocess_mamba_fused_kernel in call 3 "
        r"\(`MambaSpecDecodeGPUContext.run_fused_postprocess`\) at copies\.py:\d+\.",
        behind.case.finding,
    )


def test_a_race_is_told_with_both_programs_and_lines(in_place: Found) -> None:
    assert re.search(
        r"In call \d \(`\S+`\), program \(\d, 0, 0\) of postprocess_mamba_fused_kernel stores element \[0\] of "
        r"`num_accepted_tokens_gpu` at postprocess\.py:\d+; program \(\d, 0, 0\) loads it at postprocess\.py:\d+",
        in_place.case.finding,
    )


@pytest.mark.slow
def test_a_race_is_shown_by_a_script_that_has_statecheck_replay_it(in_place: Found, tmp_path: Path) -> None:
    assert script_says(in_place, tmp_path) == 1
    assert script_says(in_place, tmp_path, "impl", ROOT) == 0


def test_a_replay_is_watched_too(unmasked: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(unmasked.folder))
    path = unmasked.case.save(tmp_path / "case.json")
    found = replay_file(path, unmasked.subject, "cpu")
    assert (found.verdict, "OutsideView: program (0, 0, 0)" in found.message) == ("FAILED", True)
    assert replay_file(path, "impl", "cpu").verdict == "FIXED"


def test_a_saved_case_is_explained_on_another_subject_too(
    behind: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(behind.folder))
    path = behind.case.save(tmp_path / "case.json")
    assert explain_case(path) == behind.case.finding
    assert explain_case(path, "impl") == ""


@pytest.mark.parametrize("variant", [BLOCK_BEFORE, BEHIND], ids=lambda variant: variant.package)
@pytest.mark.slow
def test_a_wrong_state_of_a_scenario_is_told_with_its_owner_and_its_writer(
    variant: Variant, tmp_path: Path
) -> None:
    owner = r"Block \d (is free|belongs to r\d, because it stands in column \d of r\d)\. "
    written = (
        r"Byte \d+ of `pool0` was written last by program \(\d, \d, 0\) of \w+_fused_kernel "
        r"in step \d, call \d+ \(`\w+`\) at copies\.py:\d+\."
    )
    unwritten = (
        r"No kernel of these calls has written byte \d+ of `pool0`: it holds what the host left there\."
    )
    finding = search(variant, SCENARIOS, tmp_path, sanitized=False, examples=60).case.finding
    assert re.fullmatch(f"{owner}({written}|{unwritten})", finding), finding


def suspected(case: Case, subject: Subject, name: str, first: int) -> str:
    """The finding about a byte, whether or not it is wrong."""
    wrong_bytes = WrongBytes(
        name, first, belongs="block 1 belongs to r0", steps=tuple(range(len(case.calls)))
    )
    return explained(replace(case, wrong_bytes=wrong_bytes, finding=""), subject).finding


def test_the_step_of_an_engine_is_told_with_the_call(behind: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(behind.folder))
    case, subject = behind.case, load(behind.subject)
    messages = [suspected(case, subject, "pool0", byte) for byte in range(5)]
    stored = [message for message in messages if "in step 2, call 3 (`" in message]
    kept = [message for message in messages if message.endswith("it holds what the host left there.")]
    assert stored
    assert kept
    assert len(stored) + len(kept) == 5
    assert all(message.startswith("Block 1 belongs to r0. ") for message in messages)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ("ctypes.string_at(0)", "fault", "On a CPU it ends the process as well, at faulting_subject.py:5."),
        ("while True: pass", "hang", "On a CPU it does not end within 6 s either, at faulting_subject.py:5."),
        ("return x // y", "fault", ""),
        ("print('a line of the subject'); return x // y", "fault", ""),
    ],
    ids=["faults there too", "does not end there either", "the device's own", "prints"],
)
def test_a_case_that_ended_its_process_is_tried_on_a_cpu_and_told_with_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, kind: Literal["fault", "hang"], message: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(limits, "REPEATED_HANG", 6.0)
    (tmp_path / "faulting_subject.py").write_text(f"import ctypes\n\n\ndef divide(x, y):\n    {body}\n")
    actual = (Raised("illegal access", "in words", kind=kind),)
    case = a_case(subject="faulting_subject", expected=(Returned(2),), actual=actual)
    assert explained(case, load("impl")).finding == message


ENDLESS = """
import torch
import triton
import triton.language as tl


@triton.jit
def chain_kernel(next_ptr):
    block = tl.load(next_ptr)
    while block >= 0:
        block = tl.load(next_ptr + block)
    tl.store(next_ptr, block)


def divide(x, y):
    chain_kernel[(1,)](torch.zeros(2, dtype=torch.int32))
"""


@pytest.mark.slow
def test_a_kernel_that_does_not_end_is_told_with_its_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "endless_subject.py").write_text(ENDLESS)
    actual = (Raised("hang", "in words", kind="hang"),)
    case = a_case(subject="endless_subject", expected=(Returned(2),), actual=actual)
    message = ""
    for seconds in (12.0, 90.0):
        monkeypatch.setattr(limits, "REPEATED_HANG", seconds)
        message = explained(case, load("impl")).finding
        # A busy machine may still compile the kernel, at the line of the launch, or be at the line before the loop.
        if not message.endswith((":16.", ":9.")):
            break
    # Of the loop, one line or the other: it is looked at once.
    assert re.fullmatch(
        r"On a CPU it does not end within \d+ s either, at endless_subject\.py:1[01]\.", message
    )


def test_a_case_that_launches_nothing_stays_as_it_is() -> None:
    assert explained(a_case(), load("impl")) == a_case()


def test_a_failure_under_the_sanitizer_does_not_cost_the_report(behind: Found) -> None:
    case = replace(behind.case, finding="")
    message = explained(case, Subject("nothing", ModuleType("nothing"))).finding
    assert message.startswith("It could not be tried under the sanitizer: ") or not message


def test_on_a_cpu_kernels_are_watched_unless_one_asks_for_less() -> None:
    subject = load("impl")
    watching, plain = ordinary_port(subject, "cpu"), ordinary_port(subject, "cpu", sanitized=False)
    assert isinstance(watching, InProcess)
    assert isinstance(plain, InProcess)
    assert watching.watched is not None
    assert plain.watched is None


def test_compiled_kernels_cannot_be_watched() -> None:
    with pytest.raises(ValueError, match=r"^sanitized = True, but should be False on cuda"):
        InProcess(load("impl"), "cuda", sanitized=True)


@pytest.mark.slow
def test_an_attribution_ends_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "sleeping.py").write_text(
        "import time\nfrom pathlib import Path\n\nPath('started').touch()\ntime.sleep(600)\n"
    )
    case = a_case(subject="sleeping").save(tmp_path / "case.json")
    written = (str(case), str(tmp_path / "finding.txt"), "600")
    command = (sys.executable, "-m", "statecheck.diagnose.attribution", *written)
    starts = f"import subprocess; p = subprocess.Popen({command!r}); print(p.pid, flush=True); p.wait()"
    variables = os.environ | rooms.variables()
    variables["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(ROOT)])
    with subprocess.Popen(
        [sys.executable, "-c", starts], cwd=tmp_path, env=variables, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        while alive(child) and not (tmp_path / "started").exists():
            time.sleep(0.05)
        assert alive(child)
        parent.kill()
        assert gone([child], seconds=60.0)
