"""The runtime of scripts: what it does, and that it needs nothing else of statecheck."""

from __future__ import annotations

import ast
import builtins
import dis
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, SimpleNamespace

import pytest
import torch

from statecheck.case.failure import stated
from statecheck.case.values import Raised, Returned, call
from statecheck.execution.objects.fakes import fake_tensor
from statecheck.execution.objects.own import OWN_FUNCTIONS
from statecheck.report.repro.embed import BEFORE_TORCH, WITH_TORCH, runtime_names, text_of
from statecheck.report.repro.runtime import checks, subject
from statecheck.report.repro.script import repro_script, repro_test
from tests.helpers.cases import a_case
from tests.helpers.modules import ROOT
from tests.helpers.processes import run_python

ORDERED = call("harness.launch", kernel="k", grid=(2,), arguments={}, constexprs={}, schedule="reversed")
STATED = {"expected": (Returned(2),), "actual": (Returned(2),), "failure": stated("2 is even")}
SCRIPTS = {
    "a call": repro_script(a_case(), Path(), None),
    "an order": repro_script(a_case(steps=(ORDERED,)), Path(), None),
    "the sanitizer": repro_script(a_case(actual=(Raised("OutsideView", "x", kind="memory"),)), Path(), None),
    "vllm": repro_script(a_case(subject="vllm"), Path(), None),
    "a test": repro_test(a_case(), Path(), None),
    "a test of a condition": repro_test(a_case(**STATED), Path(), None),
}


@pytest.fixture(autouse=True)
def findings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is wrong, of this test alone."""
    wrong: list[str] = []
    for module in (checks, subject):
        monkeypatch.setattr(module, "findings", wrong)
    monkeypatch.setattr(checks, "guards", {})
    monkeypatch.setattr(subject, "refused", [])
    return wrong


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The subject of a script."""
    tried = SimpleNamespace()
    monkeypatch.setattr(subject, "subject", tried)
    return tried


def test_modules_of_the_runtime_import_only_each_other_and_define_each_name_once() -> None:
    modules = (*BEFORE_TORCH, *WITH_TORCH)
    defined: Counter[str] = Counter()
    for module in modules:
        for node in ast.parse(text_of(module)).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                defined[node.name] += 1
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                defined.update(name.id for name in targets if isinstance(name, ast.Name))
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("statecheck"):
                assert node.module in modules
    assert [name for name, times in defined.items() if times > 1] == []


COUNTS_TO_A_LOADED_NUMBER = """
from __future__ import annotations
import sys
from statecheck.report.repro.runtime.process import checked_device, require_torch

checked_device("cpu")
require_torch()
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

plain = interpreter._patch_lang_tensor

def none_made(tensor, *scope):
    plain(tensor, *scope)
    tensor.__index__ = lambda scalar: scalar.handle.data.no_int_is_made_of_it

interpreter._patch_lang_tensor = none_made

@triton.jit
def count_kernel(data_ptr):
    for _ in range(tl.load(data_ptr)):
        tl.store(data_ptr + 1, tl.load(data_ptr + 1) + 1)

data = torch.tensor([3, 0], dtype=torch.int32)
count_kernel[(1,)](data)
print(data.tolist())
"""


def test_kernels_of_a_script_count_up_to_a_number_that_they_have_loaded(
    tmp_path: Path,
) -> None:
    script = tmp_path / "count.py"
    script.write_text(COUNTS_TO_A_LOADED_NUMBER, encoding="utf-8")
    ran = run_python(script, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert (ran.returncode, ran.stdout) == (0, "[3, 3]\n"), ran.stderr


def test_scripts_have_every_function_of_the_harness_that_a_case_can_call() -> None:
    assert {"launch", *OWN_FUNCTIONS} <= runtime_names()


@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS)
def test_every_name_that_a_script_uses_is_defined_in_it(text: str) -> None:
    tree = ast.parse(text)
    defined = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    defined |= {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            defined |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    known = (
        defined | set(vars(builtins)) | {"__file__", "__doc__", "__name__", "__annotations__", "__module__"}
    )
    assert set(_globals(compile(text, "repro.py", "exec"))) - known - {"__qualname__"} == set()


def _globals(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals(constant)


def test_a_script_shows_its_case_first_and_the_runtime_below() -> None:
    script, test = (ast.parse(SCRIPTS[name]) for name in ("a call", "a test"))
    functions = [
        [node.name for node in tree.body if isinstance(node, ast.FunctionDef)] for tree in (script, test)
    ]
    assert [names[0] for names in functions] == ["check", "check"]
    assert functions[0][1:] == functions[1][2:]
    assert "torch" not in SCRIPTS["the sanitizer"].partition('"""\n')[2]


def test_bytes_are_compared_where_elements_are_floats(findings: list[str]) -> None:
    nan = torch.tensor([float("nan")])
    checks.expect_elements("t", nan, list(nan.view(torch.uint8).tolist()))
    checks.expect_elements("t", nan, [0, 0, 193, 127])
    assert findings == ["t[2] = 192, but should be 193"]


@pytest.mark.parametrize(
    ("place", "finding"),
    [
        (checks.GUARD - 7, "byte 7 before t = 0x00, but should be 0xa5"),
        (checks.GUARD + 8 + 1, "byte 2 behind t = 0x00, but should be 0xa5"),
    ],
)
def test_a_write_beside_a_guarded_tensor_is_found(findings: list[str], place: int, finding: str) -> None:
    moved = checks.guarded(torch.tensor([1, 2], dtype=torch.int32))
    checks.expect_storage("t", moved, [1, 2])
    assert findings == []
    checks.memory(moved)[place] = 0
    checks.expect_storage("t", moved, [1, 2])
    assert findings == [finding]


def test_a_fake_tensor_and_its_slices_say_where_they_lie() -> None:
    fake = fake_tensor(torch.int32, (4, 4), (4, 1), 2**40, "cpu")
    assert (fake.data_ptr(), fake[1].data_ptr(), fake.device.type) == (2**40, 2**40 + 16, "cpu")
    assert fake_tensor(torch.int8, (4,), (1,), 2**64 - 1, "cpu")[2:].data_ptr() == 1


def without_line(finding: str) -> str:
    """The finding without the line of the subject that raised."""
    return re.sub(r" \([\w/]+\.py:\d+ in [^)]+\)", "", finding)


def test_a_call_that_raises_is_a_finding(findings: list[str]) -> None:
    assert subject.attempt(lambda: 1 // 0) is subject.FAILED
    (finding,) = findings
    raised = "the call raised ZeroDivisionError: integer division or modulo by zero"
    assert without_line(finding) == f"{raised}, but should return a result"
    assert finding.startswith(f"{raised} (tests/unit/report/test_repro_runtime.py:")


def test_what_an_argument_s_class_raises_is_raised_by_the_call(
    tried: SimpleNamespace, findings: list[str]
) -> None:
    class Config:
        def __init__(self, size: int) -> None:
            raise ValueError(f"size = {size}, but should be 1")

    tried.Config = Config
    config = subject.build("Config", size=3)
    subject.expect_refusal("ValueError", "size", lambda: config)
    assert findings == []


def test_a_class_that_the_subject_lacks_or_only_imports_is_a_plain_object(tried: SimpleNamespace) -> None:
    tried.Path = Path
    assert type(subject.build("Path", x=1)) is SimpleNamespace
    assert subject.build("Batch", x=1).x == 1


def test_a_result_that_cannot_be_read_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        subject.end(lambda: checks.expect("result.x", object().x, 1))  # type: ignore[attr-defined]
    assert ended.value.code == 1
    assert "the result cannot be read as documented: AttributeError" in capsys.readouterr().out
