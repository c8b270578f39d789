"""What make makes of variables and of exit codes."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.helpers.modules import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*words: str, dry: bool = True) -> subprocess.CompletedProcess[str]:
    command = ["make", *(["-n"] if dry else []), f"PYTHON={sys.executable}", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("BUDGETT", "BUDGET"),
        ("BUGDET", "BUDGET"),
        ("SUBJET", "SUBJECT"),
        ("budget", "BUDGET"),
        ("DEVCIE", "DEVICE"),
        ("SED", "SEED"),
        ("GPU", "GPUS"),
        ("CASES", "CASE"),
        ("FUZZARGS", "FUZZ_ARGS"),
        ("VLLMPATH", "VLLM_PATH"),
        ("SHARDS", "SHARD"),
    ],
)
def test_a_variable_that_is_close_to_one_is_refused_and_the_close_one_named(given: str, meant: str) -> None:
    found = make("fuzz", f"{given}=1")
    assert found.returncode == 2
    assert f"{given} is no variable of this Makefile: did you mean {meant}?" in found.stderr
    assert found.stdout == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fuzz", "BUDGET=5", "minutes"), "minutes is no target; write BUDGET=5m;"),
        (("nightly", "BUDGET=8", "h"), "h is no target; write BUDGET=8h;"),
        (("fuzz", "BUDGET=20", "seconds"), "seconds is no target; write BUDGET=20s;"),
        (("fuzz", "minutes"), "minutes is no target;"),
        (("fuz",), "fuz is no target;"),
    ],
)
def test_a_word_that_is_no_target_is_refused_before_anything_runs(
    words: tuple[str, ...], message: str
) -> None:
    found = make(*words, dry=False)
    assert (found.returncode, found.stdout) == (2, "")
    assert message in found.stderr


@pytest.mark.parametrize("given", ["BUDGET", "PYTHONPATH", "SHARD", "CAMPAIGN", "CFLAGS", "TMPDIR"])
def test_other_variables_are_handed_on(given: str) -> None:
    assert make("fuzz", f"{given}=1").returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("replay", "CASE=no/such.json"), "exit 3: it cannot be run as given"),
        (("fuzz", "SEED=x"), "exit 3: it cannot be run as given"),
        (("table",), ""),
    ],
)
def test_the_exit_code_of_a_command_that_fails_is_printed(words: tuple[str, ...], message: str) -> None:
    found = make(*words, dry=False) if message else make(*words)
    assert (found.returncode, "exit" in found.stderr) == ((2, True) if message else (0, False))
    assert message in found.stderr


@pytest.mark.parametrize("target", [("nightly",), ("replay-trace", "TRACE=requests.jsonl")])
@pytest.mark.parametrize(
    ("given", "subject", "release"),
    [
        (("VLLM=0.33.0",), "--subject 'vllm'", "VLLM='0.33.0'"),
        (("VLLM_PATH=src/vllm",), "--subject 'vllm'", "VLLM_PATH='src/vllm'"),
        (("VLLM=0.33.0", "SUBJECT=vllm.own"), "--subject 'vllm.own'", "VLLM='0.33.0'"),
        ((), "--subject 'impl'", ""),
    ],
)
def test_a_release_that_is_named_is_the_subject_where_no_other_one_is(
    target: tuple[str, ...], given: tuple[str, ...], subject: str, release: str
) -> None:
    found = make(*target, *given)
    assert (found.returncode, found.stderr) == (0, "")
    assert subject in found.stdout
    assert release in found.stdout
