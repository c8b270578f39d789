"""How kernels run in a process: executed on a CPU, or compiled."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from statecheck.execution.example import ExecutionContext
from statecheck.kernels import triton_mode
from tests.helpers.processes import run_python


def test_kernels_are_executed_on_the_cpu_and_nowhere_else(trial: ExecutionContext) -> None:
    assert triton_mode.executes() is (trial.port.device == "cpu")
    triton_mode.prepare(trial.port.device)


def test_a_process_that_is_prepared_is_settled(trial: ExecutionContext) -> None:
    other = "cuda" if trial.port.device == "cpu" else "cpu"
    words = rf"^device = '{other}', but should be '{trial.port.device}' in a process that"
    with pytest.raises(ValueError, match=words):
        triton_mode.prepare(other)


def in_a_process(source: str, **variables: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name != triton_mode.INTERPRET}
    done = run_python("-c", f"from statecheck.kernels.triton_mode import *\n{source}", env=clean | variables)
    return (done.stdout + done.stderr).strip().splitlines()[-1]


KIND = "import triton.language as tl; print(type(tl.cdiv).__name__, executes())"
INTERPRETED = {triton_mode.INTERPRET: "1"}
AFTER_A_GPU = "from triton.runtime import driver; driver.set_active(object()); prepare('cpu')"


@pytest.mark.parametrize(
    ("source", "variables", "last"),
    [
        (f"prepare('cpu'); {KIND}", {}, "JITFunction True"),
        (f"prepare('cuda'); {KIND}", {}, "JITFunction False"),
        ("print(executes(), interprets())", {}, "False False"),
        (f"import statecheck.suite.options; prepare('cpu'); {KIND}", INTERPRETED, "JITFunction True"),
        (
            "import triton.language; print(interprets()); prepare('cpu')",
            INTERPRETED,
            "ValueError: TRITON_INTERPRET was 1 when Triton was imported",
        ),
        (AFTER_A_GPU, {}, "ValueError: kernels have been compiled in this process"),
        ("prepare('cuda')", INTERPRETED, "ValueError: TRITON_INTERPRET = '1', but should be unset on cuda"),
    ],
)
def test_a_fresh_process_runs_kernels_as_its_device_and_variables_say(
    source: str, variables: dict[str, str], last: str
) -> None:
    assert in_a_process(source, **variables).startswith(last)


KERNEL = """
import os, sys
import torch, triton, triton.language as tl

@triton.jit
def early_kernel(out_ptr):
    tl.store(out_ptr, tl.load(out_ptr) + 1)

prepare("cpu")
os.environ["TRITON_INTERPRET"] = "1"

@triton.jit
def late_kernel(out_ptr):
    tl.store(out_ptr, tl.load(out_ptr) + 1)

out = torch.zeros(1, dtype=torch.int32)
early_kernel[(1,)](out)
late_kernel[(1,)](out)
print(out.item(), type(early_kernel).__name__, type(late_kernel).__name__)
"""


def test_kernels_are_executed_whenever_they_are_decorated(tmp_path: Path) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(f"from statecheck.kernels.triton_mode import *\n{KERNEL}")
    last = in_a_process(f"import runpy; runpy.run_path({str(path)!r})")
    assert last == "2 JITFunction JITFunction"
