"""Ports that do something to their process: findings stay where they were announced, and the campaign goes on."""

from __future__ import annotations

import os
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from statecheck.campaign.record import FILE, CampaignRecord
from statecheck.case import Case
from statecheck.case.values import int32
from tests.helpers.modules import ROOT
from tests.helpers.processes import COMMANDS, run_python

_PORT = """\
import os, signal, sys, tempfile
import torch
STATECHECK_PROTOCOL = 2
assert os.environ["CUDA_VISIBLE_DEVICES"] == ""  # on a CPU
def effect():{effects}def chunk_offsets(cu_seqlens, chunk_size):
    effect()
    counts = [-(-(b - a) // chunk_size) for a, b in zip(cu_seqlens, cu_seqlens[1:])]
    sums = [sum(counts[:n]) for n in range(len(counts) + 1)]
    return [*sums[:-1], sums[-1] + ({wrong} and len(sums) > 3)]
effect()
"""


_EFFECTS = """
    torch.set_default_device("meta")
    torch.set_default_dtype(torch.float16)
    os.environ["PORT"] = os.urandom(4).hex()
    sys.path.clear()
    os.write(1, b"CLEAN\\x1b[2J\\n")
    os.write(2, b"::error::no\\n")
    if os.fork() == 0:
        os.write(1, b"CLEAN\\n")
        os._exit(0)
    os.wait()
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)
    for number in (signal.SIGALRM, signal.SIGPROF, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
"""


def nightly(folder: Path, *options: str, wrong: bool) -> CompletedProcess[str]:
    """A short campaign with the default folders, on a port with these effects when it is imported and in each call."""
    return nightly_on(_PORT.format(effects=_EFFECTS, wrong=wrong), folder, *options)


def nightly_on(port: str, folder: Path, *options: str) -> CompletedProcess[str]:
    return run_on(port, folder, "nightly", "--workers", "1", "--examples", "60", *options)


def run_on(port: str, folder: Path, command: str, *options: str) -> CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    (folder / "port.py").write_text(port, encoding="utf-8")
    arguments = ("--subject", "port", "--only", "fla-chunks/offsets", "--device", "cpu", *options)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(folder)))}
    return run_python("-m", "statecheck", command, *arguments, cwd=folder, env=environment, like=COMMANDS)


def record_of(folder: Path) -> CampaignRecord:
    return CampaignRecord.load(folder / "reports" / FILE)


@pytest.mark.slow
def test_effects_of_a_port_on_its_process_are_no_failures(tmp_path: Path) -> None:
    done = nightly(tmp_path / "project", wrong=False)
    assert done.returncode == 0, done.stdout + done.stderr
    record = record_of(tmp_path / "project")
    assert [row.status for row in record.properties] == ["passed"]
    assert record.warnings == []
    assert "\x1b" not in done.stdout + done.stderr
    assert "::error" not in done.stderr
    assert done.stdout.count("\nCLEAN\n") == 1


@pytest.mark.slow
def test_effects_of_a_port_on_its_process_lose_no_finding(tmp_path: Path) -> None:
    folder = tmp_path / "a \u00fcml\u00e4ut project"
    done = nightly(folder, wrong=True)
    assert done.returncode == 1, done.stdout + done.stderr
    (bucket,) = record_of(folder).buckets
    assert Path(bucket.corpus).parent == folder / "corpus"
    assert Case.load(Path(bucket.corpus)).property_id == bucket.property
    assert (Path(bucket.report) / "report.md").is_file()
    assert f"reports/{Path(bucket.report).name}/report.md" in done.stdout
    assert "CLEAN\n" not in done.stdout.replace("NOT CLEAN\n", "")


_CLOSES = """\
import os
STATECHECK_PROTOCOL = 2
def chunk_offsets(cu_seqlens, chunk_size):
    os.closerange(3, 200)
    counts = [-(-(b - a) // chunk_size) for a, b in zip(cu_seqlens, cu_seqlens[1:])]
    return [sum(counts[:n]) for n in range(len(counts) + 1)]
"""


def test_a_port_that_closes_the_pipe_of_its_worker_is_never_clean(tmp_path: Path) -> None:
    done = nightly_on(_CLOSES, tmp_path / "project", "--examples", "5")
    assert done.returncode in (1, 2), done.stdout + done.stderr
    (row,) = record_of(tmp_path / "project").properties
    assert row.status in ("FALSIFIED", "ERROR")
    assert "worker died" in row.detail


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import os; os._exit(0)", "ended with exit code 0"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("raise SystemExit(0)", "SystemExit: 0"),
    ],
)
def test_an_import_that_ends_its_process_is_refused(tmp_path: Path, source: str, reason: str) -> None:
    done = nightly_on(source, tmp_path / "project")
    assert done.returncode == 3, done.stdout + done.stderr
    assert done.stderr.startswith("error: subject = 'port', but should be ")
    assert reason in done.stderr


_REMOVES = """\
import os, shutil
STATECHECK_PROTOCOL = 2
def chunk_offsets(cu_seqlens, chunk_size):
    for folder in ("reports", "corpus"):
        shutil.rmtree({folder!r} + "/" + folder, ignore_errors=True)
    {then}
    return [1] * len(cu_seqlens)
"""


@pytest.mark.parametrize("then", ["", "os._exit(0)"], ids=["", "and ends the process"])
@pytest.mark.slow
def test_a_case_is_kept_though_every_call_removes_the_reports(tmp_path: Path, then: str) -> None:
    folder = tmp_path / "project"
    done = nightly_on(_REMOVES.format(folder=str(folder), then=then), folder)
    assert done.returncode == 1, done.stdout + done.stderr
    (bucket,) = record_of(folder).buckets
    assert Case.load(Path(bucket.corpus)).property_id == bucket.property
    assert (Path(bucket.report) / "report.md").is_file()


_FAULTS = """\
import ctypes, os, time
STATECHECK_PROTOCOL = 2
CALLS = []
def chunk_offsets(cu_seqlens, chunk_size):
    CALLS.append(time.monotonic())
    if {when}:
        {fault}
    counts = [-(-(b - a) // chunk_size) for a, b in zip(cu_seqlens, cu_seqlens[1:])]
    return [sum(counts[:n]) for n in range(len(counts) + 1)]
"""
_CRASH, _HANG = "ctypes.string_at(0)", "ctypes.PyDLL(None).sleep(3600)"
"""A segmentation fault, and a call that holds the interpreter's lock."""


def fuzz_faulty(folder: Path, *options: str, when: str, fault: str) -> CompletedProcess[str]:
    """Fuzz a port whose call crashes or hangs under a condition, with a time limit of one second."""
    port = _FAULTS.format(when=when, fault=fault)
    return run_on(port, folder, "fuzz", "--workers", "1", "--seed", "3", "--time-limit", "1s", *options)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        pytest.param(_CRASH, "fault", id="crash"),
        # Each attempt to shrink a hang takes its time limit.
        pytest.param(_HANG, "hang", id="hang", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_a_crash_or_hang_is_found_shrunk_and_confirmed(tmp_path: Path, fault: str, kind: str) -> None:
    # A failing input is shrunk for a twelfth of the budget at most.
    options = "--budget", "20m", "--exitfirst"
    done = fuzz_faulty(tmp_path / "project", *options, when="cu_seqlens[-1] > 2", fault=fault)
    assert done.returncode == 1, done.stdout + done.stderr
    (bucket,) = record_of(tmp_path / "project").buckets
    case = Case.load(Path(bucket.corpus))
    assert case.failure is not None
    assert (case.failure.kind, case.calls[-1].named["cu_seqlens"]) == (kind, int32([0, 3]))
    assert "Repeated in 3 of 3 fresh workers." in bucket.note
    # A process of its own replays the saved case: no worker of the campaign is lost.
    again = fuzz_faulty(tmp_path / "project", *options, when="cu_seqlens[-1] > 2", fault=fault)
    assert "warning" not in again.stdout + again.stderr
    assert [entry.verdict for entry in record_of(tmp_path / "project").corpus] == ["FAILED"]


@pytest.mark.parametrize(
    ("fault", "why", "where"),
    [
        (_CRASH, "a worker died with exit code -11 (seed ", "Fatal Python error: Segmentation fault"),
        pytest.param(
            _HANG, "no answer within 1.2 s (seed ", "Stack (most recent call first):", marks=pytest.mark.slow
        ),
    ],
    ids=["crash", "hang"],
)
def test_a_fault_that_does_not_repeat_is_an_error_with_seed_and_traceback(
    tmp_path: Path, fault: str, why: str, where: str
) -> None:
    mark = tmp_path / "mark"
    once = f"not os.path.exists({str(mark)!r}) and not os.close(os.open({str(mark)!r}, os.O_CREAT))"
    # On a slow machine five seconds may not be enough for a second try with the seed.
    for budget in ("5s", "15s", "45s"):
        mark.unlink(missing_ok=True)
        project = tmp_path / budget
        done = fuzz_faulty(project, "--budget", budget, when=once, fault=fault)
        (row,) = record_of(project).properties
        if mark.exists() and row.status != "not finished":
            break
    assert done.returncode == 2, done.stdout + done.stderr
    assert row.status == "ERROR"
    assert row.detail.startswith(f"not again with this seed: {why}")
    assert where in row.detail
    assert f'File "{project / "port.py"}", line 7 in chunk_offsets' in row.detail
    assert "line 7 in chunk_offsets" in done.stdout


def test_a_hang_late_in_the_budget_is_never_clean(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    late = f"time.monotonic() - CALLS[0] > 1.5 and not os.close(os.open({str(mark)!r}, os.O_CREAT))"
    # On a slow machine the first call may come too late for a hang within the budget, or no example may end before the hang.
    for budget in ("4s", "8s", "16s"):
        mark.unlink(missing_ok=True)
        project = tmp_path / budget
        done = fuzz_faulty(project, "--budget", budget, when=late, fault=_HANG)
        (row,) = record_of(project).properties
        if mark.exists() and row.compared:
            break
    assert mark.exists(), done.stdout + done.stderr
    assert done.returncode in (1, 2), done.stdout + done.stderr
    assert "\nCLEAN\n" not in done.stdout
    assert row.compared > 0
    # With a longer budget there is time to repeat the hang.
    assert row.status in ("not finished", "ERROR", "FALSIFIED")
    assert row.status == "FALSIFIED" or "line 7 in chunk_offsets" in row.detail
