"""`repro.py` and `test_repro.py`: run on a wrong implementation and on a right one they say so, and what cannot be tried is neither."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from statecheck.case import Case
from statecheck.case.failure import outcome_difference, stated
from statecheck.case.values import (
    DType,
    Let,
    Name,
    Overwrite,
    Raised,
    Returned,
    Tensor,
    View,
    call,
    int32,
    record,
)
from statecheck.diagnose.attribution import with_own_calls, with_own_calls_apart
from statecheck.execution.registry import load_properties
from statecheck.report.render import report_text, write_report
from statecheck.report.scripts.calls import plain_calls
from statecheck.report.scripts.script import repro_script, repro_test, subject_root
from statecheck.report.sections import ALONE, TEST
from statecheck.subject import Subject, load
from statecheck.util import limits
from tests.helpers.cases import a_case, in_order, subject_of
from tests.helpers.hunts import hunt
from tests.helpers.modules import ROOT, module
from tests.helpers.planted import broken_subject, defect_named
from tests.helpers.processes import run_python
from tests.unit.report.defects import DEFECTS, DefectiveModule, falsified, source

REPLAYED = {
    "record of another class",
    "layout not read",
    "argument written",
    "gap written",
    "field of a named record written",
}
"""Defects that plain calls do not show: the script replays the case."""
HALVES = "def halved(x):\n    return x // 2\n"
MENDED = "def halved(x):\n    return x // 2 + 1\n"
MOST_LINES, LINES_OF_TRITON = 75, 18
"""Of a script, and of what has Triton interpret kernels that a port may launch."""


def run(script: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    hidden = ("SUBJECT", "SUBJECT_PATH", "DEVICE", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return run_python(script, *arguments, env=kept | variables, cwd=Path("/"))


def body(lines: str) -> str:
    """A subject whose function does this."""
    return f"def halved(x):\n    {lines}\n"


def a_half(**changes: object) -> Case:
    """A case in which 4 halved is to be 3."""
    fields: dict[str, Any] = {
        "subject": "toy_halves",
        "steps": (call("halved", x=4),),
        "expected": (Returned(3),),
        "actual": (Returned(2),),
    }
    fields |= changes
    pairs = zip(fields["expected"], fields["actual"], strict=True)
    difference = next(filter(None, (outcome_difference(*pair, places=False) for pair in pairs)), None)
    return a_case(**{"message": f"{difference} [halved()]"} | fields)


def write(folder: Path, subject: str | None, case: Case) -> Path:
    """A script beside its subject."""
    script = folder / "repro.py"
    script.write_text(repro_script(case, folder, subject_of(case)), encoding="utf-8")
    if subject is not None:
        (folder / "toy_halves.py").write_text(subject, encoding="utf-8")
    return script


# On a wrong implementation, and on a right one.


def scripts_of(folder: Path, defect: DefectiveModule) -> tuple[Case, Path]:
    with module(folder, defect.module, source(defect)):
        case = falsified(defect.module, "cpu", *defect.steps)
        return case, write_report(case, folder / "reports", load(defect.module))


def codes(folder: Path) -> list[int]:
    """How the script ends on the subject that it was made of, and on `impl`."""
    found = [
        run(folder / "repro.py", PYTHONPATH=str(ROOT)),
        run(folder / "repro.py", SUBJECT="impl", SUBJECT_PATH=str(ROOT)),
    ]
    assert found[0].stdout.endswith("the defect is there\n"), found[0]
    assert found[1].stdout.endswith("the defect is gone\n"), found[1]
    return [done.returncode for done in found]


QUICK = {"element", "same object", "record refused", "stale result", "refusal of another argument"}


@pytest.mark.parametrize(
    "defect",
    [
        pytest.param(row, marks=() if row.name in QUICK else pytest.mark.slow, id=row.name)
        for row in DEFECTS
        if row.name not in REPLAYED
    ],
)
def test_a_script_of_plain_calls_is_short_and_exits_1_with_the_defect_and_0_without(
    tmp_path: Path, defect: DefectiveModule
) -> None:
    _, directory = scripts_of(tmp_path, defect)
    text = (directory / "repro.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    assert "statecheck" not in text
    assert codes(directory) == [1, 0]


@pytest.mark.parametrize(
    "defect",
    [
        pytest.param(row, marks=() if row.name == "gap written" else pytest.mark.slow, id=row.name)
        for row in DEFECTS
        if row.name in REPLAYED
    ],
)
def test_a_script_that_replays_exits_1_with_the_defect_and_0_without(
    tmp_path: Path, defect: DefectiveModule
) -> None:
    case, directory = scripts_of(tmp_path, defect)
    assert repro_test(case, subject_of(case)) == ""
    assert not (directory / TEST).exists()
    assert codes(directory) == [1, 0]


KERNEL = """
import triton
import triton.language as tl

@triton.jit
def fill_kernel(out, count):
    for index in range(tl.load(count)):
        tl.store(out + index, index + {more})
"""


def test_a_script_of_a_kernel_runs_it_without_a_gpu(tmp_path: Path) -> None:
    """The kernel counts up to a number that it has loaded, which Triton's interpreter does not do beside each NumPy."""
    launch = call(
        "harness.launch",
        kernel="fill_kernel",
        grid=(1,),
        arguments={"out": Name("out"), "count": Name("count")},
        constexprs={},
        observes=("out",),
    )
    steps = (Let("out", int32([9, 9, 9])), Let("count", int32([2])), launch)
    right, wrong = (Returned(None, after=(("out", int32([more, 1 + more, 9])),)) for more in (0, 1))
    case = a_half(
        steps=steps,
        expected=(right,),
        actual=(wrong,),
        message="out[0] = 1, but should be 0 [harness.launch()]",
    )
    script = write(tmp_path, None, case)
    ended = []
    for more in (1, 0):
        (tmp_path / "toy_halves.py").write_text(KERNEL.format(more=more), encoding="utf-8")
        ended.append(run(script).returncode)
    assert ended == [1, 0]
    assert "toy_halves.fill_kernel[(1,)](out=out, count=count)" in script.read_text(encoding="utf-8")


PROPERTIES = {
    "varlen_chunks": "varlen-chunks/ends",
    "chunk_offsets": "fla-chunks/offsets",
    "split_batch": "split/partition",
    "page_size": "page-size/all-states",
    "gather_block_table": "block-table/align-columns",
}
"""By function of the protocol: a property that calls it. The last one takes and returns tensors."""
WRONG_PORT = """
from examples.numpy_port import *
from examples import numpy_port
STATECHECK_PROTOCOL = 2

def changed(value):
    if isinstance(value, (list, tuple)) and value:
        return type(value)([changed(value[0]), *value[1:]])
    return value + 1 if isinstance(value, int) or hasattr(value, "dtype") else value

def {name}(*args, **arguments):
    return changed(numpy_port.{name}(*args, **arguments))

{name}.__wrapped__ = numpy_port.{name}
"""


def failing(id_: str, subject: Subject) -> Case:
    tested = load_properties()[id_]
    caught = hunt(tested, subject, shrink=True)
    assert caught is not None
    return with_own_calls(caught.case, subject)


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_script_of_a_port_needs_the_port_alone(name: str, tmp_path: Path) -> None:
    with module(tmp_path, "toy_wrong_port", WRONG_PORT.format(name=name)):
        subject = load("toy_wrong_port")
        case = failing(PROPERTIES[name], subject)
        text = repro_script(case, tmp_path, subject_of(case))
    assert f"toy_wrong_port.{name}(" in text
    assert "statecheck" not in text
    assert ("import torch" in text) == (name == "gather_block_table")
    assert len(text.splitlines()) <= MOST_LINES
    script = tmp_path / "repro.py"
    script.write_text(text, encoding="utf-8")
    subjects: tuple[dict[str, str], ...] = ({}, {"SUBJECT": "examples.numpy_port"}, {"SUBJECT": "no_port"})
    assert [run(script, PYTHONPATH=str(ROOT), **variables).returncode for variables in subjects] == [1, 0, 2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "a boundary that the sampled token reaches is not stored",
        "padding counts as rows without prior state",
        "half of the rows is uploaded",
        "counts of requests that moved are kept",
    ],
)
def test_a_script_of_a_planted_defect_makes_the_context_or_the_builder(name: str, tmp_path: Path) -> None:
    """The defect is in a kernel of align mode, in a builder, in buffers of a context, and in lists of copies."""
    defect = defect_named(name)
    with broken_subject(defect.variant, tmp_path) as subject:
        text = repro_script(failing(defect.found_by[0], subject), tmp_path, subject)
    assert "statecheck" not in text
    assert len(text.splitlines()) <= 100
    script = tmp_path / "repro.py"
    script.write_text(text, encoding="utf-8")
    assert run(script).returncode == 1
    assert run(script, SUBJECT="impl", SUBJECT_PATH=str(ROOT)).returncode == 0


WRITERS = {"postprocess_by_slot": "v2-postprocess/boundary", "copy_runs": "copy-meta/memmove"}
"""By function of the protocol that writes states, given as views or by addresses: a property that calls it."""
PORT_THAT_WRITES_NOTHING = """
from examples.numpy_port import *
STATECHECK_PROTOCOL = 2

def {name}(*args, **arguments):
    pass
"""


@pytest.mark.parametrize("name", WRITERS)
def test_a_script_of_a_port_that_writes_states_makes_their_memory(name: str, tmp_path: Path) -> None:
    with module(tmp_path, "toy_idle_port", PORT_THAT_WRITES_NOTHING.format(name=name)):
        subject = load("toy_idle_port")
        text = repro_script(failing(WRITERS[name], subject), tmp_path, subject)
    assert "statecheck" not in text
    assert len(text.splitlines()) <= MOST_LINES + LINES_OF_TRITON
    script = tmp_path / "repro.py"
    script.write_text(text, encoding="utf-8")
    subjects: tuple[dict[str, str], ...] = ({}, {"SUBJECT": "examples.numpy_port"}, {"SUBJECT": "no_port"})
    assert [run(script, PYTHONPATH=str(ROOT), **variables).returncode for variables in subjects] == [1, 0, 2]


TENSORS = {
    "int32[0, 5]": "torch.tensor([0, 5], dtype=torch.int32)",
    "int64[7]": "torch.tensor([7], dtype=torch.int64)",
    "bool[]": "torch.tensor([], dtype=torch.bool)",
    "int32[[1, 2], [3, 4]]": "torch.tensor([[1, 2], [3, 4]], dtype=torch.int32)",
    "int32[[1, 2]]": "torch.tensor([[1, 2]], dtype=torch.int32)",
    "int8[1, 2, 1] [5, 6]": "torch.tensor([5, 6], dtype=torch.int8).reshape((1, 2, 1))",
}


@pytest.mark.parametrize(("shown", "source"), TENSORS.items(), ids=TENSORS)
def test_a_tensor_that_a_port_was_called_with_is_written_as_python(shown: str, source: str) -> None:
    case = a_half(own_calls=(f"halved(x={shown}, rows=[{shown}])",))
    assert plain_calls(case, None).lines[0] == f"result = toy_halves.halved(x={source}, rows=[{source}])"


def test_the_calls_of_a_port_are_found_for_a_case_that_no_worker_reported(tmp_path: Path) -> None:
    """The budget of its campaign ended first."""
    with module(tmp_path, "toy_late_port", WRONG_PORT.format(name="chunk_offsets")):
        subject = load("toy_late_port")
        asked = call("prepare_chunk_offsets", cu_seqlens=int32([0, 5]), chunk_size=4)
        found = with_own_calls_apart(a_case(subject="toy_late_port", steps=(asked,)), subject)
    assert found.own_calls == ("chunk_offsets(cu_seqlens=[0, 5], chunk_size=4)",)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "ends"), [("fault", "__import__('os').abort()"), ("hang", "__import__('time').sleep(1000)")]
)
def test_the_calls_of_a_port_are_found_for_a_case_that_ends_or_keeps_its_process(
    kind: Literal["fault", "hang"], ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls before the fault and the faulting call are noted before they are made."""
    # A busy machine takes its time until the port is loaded.
    monkeypatch.setattr(limits, "REPEATED_HANG", 30.0)
    port = f"STATECHECK_PROTOCOL = 2\ndef chunk_offsets(cu_seqlens, chunk_size):\n    return [0, 2] if chunk_size == 4 else {ends}\n"
    steps = [call("prepare_chunk_offsets", cu_seqlens=int32([0, 5]), chunk_size=size) for size in (4, 8)]
    with module(tmp_path, "toy_ending_port", port):
        subject = load("toy_ending_port")
        raised = Raised("it ended", "signal 6", kind=kind)
        right = Returned(int32([0, 2]))
        case = a_case(
            subject="toy_ending_port", steps=tuple(steps), expected=(right, right), actual=(right, raised)
        )
        found = with_own_calls_apart(case, subject)
    assert found.own_calls == tuple(f"chunk_offsets(cu_seqlens=[0, 5], chunk_size={size})" for size in (4, 8))


# How a script ends.


@pytest.mark.parametrize(
    ("code", "output", "subject"),
    [
        (1, "AssertionError: result = 2, but should be 3\nthe defect is there\n", HALVES),
        (0, "the defect is gone\n", MENDED),
        (1, "Traceback (most recent call last):", body("raise RuntimeError('lost')")),
        (1, "Traceback (most recent call last):", body("import sys; sys.exit(0)")),
        (2, "it cannot be tried here: ModuleNotFoundError: No module named 'toy_halves'\n", None),
        (2, "it cannot be tried here: SyntaxError: ", "def halved(x:\n"),
        (2, "it cannot be tried here: SystemExit: 1\n", "import sys\nsys.exit(1)\n"),
        (2, "it cannot be tried here: BaseException: no GPU\n", "raise BaseException('no GPU')\n"),
        (2, "it cannot be tried here: AttributeError: module 'toy_halves' has no attribute 'halved'\n", ""),
        (2, "it cannot be tried here: full\n", body("raise MemoryError('full')")),
    ],
)
def test_a_script_ends_with_a_code_and_says_why(
    tmp_path: Path, code: int, output: str, subject: str | None
) -> None:
    script = write(tmp_path, subject, a_half())
    done = run(script)
    assert (done.returncode, done.stdout[: len(output)]) == (code, output), done
    assert code == 0 or "gone" not in done.stdout
    assert run(script, "--bisect").returncode == (125 if code == 2 else code)


ENDED = a_half(actual=(Raised("the process ended", "signal 11", kind="fault"),))


@pytest.mark.parametrize(
    ("code", "subject"),
    [
        (1, body("import os; os._exit(0)")),
        (1, body("import os; os.kill(os.getpid(), 11)")),
        (1, body("import time; time.sleep(1000)")),
        (0, MENDED),
        (2, "import sys\nsys.exit(0)\n"),
    ],
)
def test_a_script_of_a_crash_or_a_hang_says_whether_it_is_still_there(
    tmp_path: Path, code: int, subject: str
) -> None:
    assert repro_test(ENDED, subject_of(ENDED)) == ""
    script = write(tmp_path, subject, ENDED)
    done = run(script, TIME_LIMIT="1")
    assert done.returncode == code, done


DEPENDENT = a_half(steps=(call("cdiv", x=5, y=2),), depends_on="chance")


def of_cdiv(subject: str) -> str:
    return subject.replace("halved(x)", "cdiv(x, y)")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "output", "subject"),
    [
        (1, "result = 2, but should be 3\nthe defect is there\n", of_cdiv(HALVES)),
        (2, "nothing failed, but the failure depends on chance", of_cdiv(MENDED)),
        (2, "it cannot be tried here: subject = 'toy_halves', but should be", None),
        (2, "toy_halves has no cdiv\nit cannot be tried here\n", ""),
        (1, "the call = ", of_cdiv(body("import os; os._exit(0)"))),
        (1, "the call = hang", of_cdiv(body("import time; time.sleep(1000)"))),
    ],
)
def test_a_script_that_replays_ends_with_a_code_and_says_why(
    tmp_path: Path, code: int, output: str, subject: str | None
) -> None:
    done = run(write(tmp_path, subject, DEPENDENT), TIME_LIMIT="2")
    assert (done.returncode, done.stdout[: len(output)]) == (code, output), done


@pytest.mark.slow
def test_a_script_that_replays_carries_its_modules_and_needs_no_hypothesis(tmp_path: Path) -> None:
    script = write(tmp_path, of_cdiv(HALVES), DEPENDENT)
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['hypothesis'] = None\n", encoding="utf-8"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    line = [sys.executable, str(script)]
    done = subprocess.run(
        line,
        env=environment | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert run(script, "--extract", str(tmp_path / "files")).returncode == 0
    carried = sorted((tmp_path / "files/statecheck").rglob("*.py"))
    assert len(carried) > 50
    for path in carried:
        assert path.read_bytes() == (ROOT / path.relative_to(tmp_path / "files")).read_bytes()
    assert Case.load(tmp_path / "files/case.json") == DEPENDENT


# Which cases are plain calls, and how they are written.


REFUSED = {
    "a condition on several calls": (
        a_half(expected=(Returned(2),), failure=stated("2 is even")),
        "no single call",
    ),
    "the sanitizer's finding": (
        a_half(actual=(Raised("OutsideView", "x", kind="memory"),)),
        "no single call",
    ),
    "an order of programs": (in_order(a_half(), "reversed"), "it takes statecheck"),
    "variables that change": (
        a_half(
            steps=(
                call("get_conv_state_layout", environment={"VLLM_SSM_CONV_STATE_LAYOUT": "DS"}),
                call("get_conv_state_layout"),
            )
        ),
        "it takes variables that change",
    ),
    "chance": (DEPENDENT, "the failure depends on chance"),
    "an engine": (a_half(steps=(call("LiveEngine", settings=1),)), "a forward of statecheck's own"),
    "a function of the harness": (
        a_half(steps=(call("harness.owned_fields", owner=1, result=2),)),
        "harness.owned_fields is statecheck's own",
    ),
    "a call of the port that is code": (
        a_half(own_calls=("halved(__import__('os').getpid(), x=4)",)),
        "values that are no numbers, lists and tensors",
    ),
    "a kernel that is code": (
        a_half(
            steps=(call("harness.launch", kernel="k; import os", grid=(1,), arguments={}, constexprs={}),)
        ),
        "'k; import os' is no name",
    ),
    "an argument of a kernel that is code": (
        a_half(
            steps=(call("harness.launch", kernel="k", grid=(1,), arguments={"a=1, b": 2}, constexprs={}),)
        ),
        "an argument of the kernel has no name",
    ),
}


@pytest.mark.parametrize(("case", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_failure_that_plain_calls_do_not_show_is_refused_with_the_reason(case: Case, reason: str) -> None:
    with pytest.raises(ValueError, match=f"but should be one that a plain call shows: .*{reason}"):
        plain_calls(case, None)


POOL = Tensor("uint8", (16,), bytes(16))
LINES = {
    "a place": (a_half(), 'str(Path(__file__).resolve().parent / "../..")'),
    "a device": (
        a_half(device="cuda", steps=(call("halved", x=int32([1])),)),
        "x = torch.tensor([1], dtype=torch.int32, device='cuda')",
    ),
    "a long run": (
        a_half(steps=(call("halved", x=int32([1, 2] + [7] * 5000)),)),
        "x = torch.tensor([1, 2] + [7] * 5000, dtype=torch.int32)",
    ),
    "a view": (
        a_half(
            steps=(
                Let("pool", POOL),
                Let("state", View("pool", "float32", (2,), None, 1)),
                call("halved", x=Name("state")),
            )
        ),
        "state = pool.view(torch.float32).as_strided((2,), (1,), 1)",
    ),
    "memory that is written": (
        a_half(steps=(Let("x", int32([1])), Overwrite("x", (2,)), call("halved", x=Name("x")))),
        "x.copy_(torch.tensor([2], dtype=torch.int32))",
    ),
    "a type": (a_half(steps=(call("halved", x=DType("int8")),)), "halved(torch.int8)"),
    "a result of another type": (
        a_half(actual=(Returned(True),), expected=(Returned(1),)),
        "assert type(result).__name__ == expected",
    ),
    "a result in another dtype": (
        a_half(
            actual=(Returned(([], Tensor("int64", (0,), ()))),), expected=(Returned((int32([]), int32([]))),)
        ),
        "assert str(result[1].dtype) == expected",
    ),
}


@pytest.mark.parametrize(("case", "line"), LINES.values(), ids=LINES)
def test_a_script_writes_values_so(case: Case, line: str, tmp_path: Path) -> None:
    with module(tmp_path, "toy_halves", HALVES):
        text = repro_script(case, tmp_path / "reports" / "one", load("toy_halves"))
    ast.parse(text)
    assert line in text


def test_a_class_that_the_subject_lacks_is_a_plain_object(tmp_path: Path) -> None:
    with module(tmp_path, "toy_halves", HALVES):
        case = a_half(steps=(call("halved", x=record("Config", size=4)),))
        text = repro_script(case, tmp_path, subject_of(case))
    assert "halved(SimpleNamespace(size=4))" in text
    assert "from types import SimpleNamespace\n" in text


@pytest.mark.parametrize("sentence", ['ends with a quote"', '"""', "a \\ backslash", "two\nlines"])
def test_any_sentence_leaves_the_script_well_formed(sentence: str) -> None:
    for case in (a_half(sentence=sentence), replace(DEPENDENT, sentence=sentence)):
        ast.parse(repro_script(case, Path(), subject_of(case)))


ENGINE = "def divide(x, y):\n    return x // y + 1\n"
ADAPTER = """
import sys
from subjects import Subject
from toy_engine import divide

def adapted(x, y):
    return divide(x, y)

SUBJECT = Subject("toy_adapter", sys.modules[__name__], release="1.2", is_adapter=True)
"""


def test_a_script_calls_the_project_behind_an_adapter(tmp_path: Path) -> None:
    with module(tmp_path, "toy_engine", ENGINE), module(tmp_path, "toy_adapter", ADAPTER):
        case = a_half(subject="toy_adapter", steps=(call("divide", x=6, y=2),), actual=(Returned(4),))
        texts = [
            repro_script(case, tmp_path, subject_of(case)),
            repro_test(case, subject_of(case)),
            report_text(case, subject_of(case)),
        ]
    assert [("toy_engine.divide(6, 2)" in text, "import toy_adapter" in text) for text in texts[:2]] == [
        (True, False)
    ] * 2
    assert [text.count("toy_adapter 1.2: divide: ") for text in (texts[0], texts[2])] == [1, 1]
    (tmp_path / "repro.py").write_text(texts[0], encoding="utf-8")
    ended = [run(tmp_path / "repro.py", SUBJECT_PATH=str(tmp_path)).returncode]
    (tmp_path / "toy_engine.py").write_text(ENGINE.replace(" + 1", ""), encoding="utf-8")
    ended.append(run(tmp_path / "repro.py", SUBJECT_PATH=str(tmp_path)).returncode)
    assert ended == [1, 0]


def test_an_adapter_that_wraps_a_function_stands_between(tmp_path: Path) -> None:
    wrapped = (
        ADAPTER.replace("from toy_engine import divide", "import functools, toy_engine")
        .replace("def adapted", "@functools.wraps(toy_engine.divide)\ndef divide")
        .replace("    return divide(x, y)", "    return toy_engine.divide(x, y)")
    )
    with module(tmp_path, "toy_engine", ENGINE), module(tmp_path, "toy_adapter", wrapped):
        case = a_half(subject="toy_adapter", steps=(call("divide", x=6, y=2),), actual=(Returned(4),))
        with pytest.raises(ValueError, match="an adapter stands between divide"):
            plain_calls(case, load("toy_adapter"))


def test_the_root_of_a_subject_is_the_folder_to_import_it_from(tmp_path: Path) -> None:
    with module(tmp_path, "toy_rooted", "") as name:
        roots = [subject_root(subject) for subject in (load("impl"), load(name), load("pytest"))]
    assert roots == [ROOT, tmp_path.resolve(), None]


# As a test of the project.


def test_the_test_fails_with_the_defect_and_passes_without(tmp_path: Path) -> None:
    ended = []
    for name, subject in (("wrong", HALVES), ("right", MENDED)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "toy_halves.py").write_text(subject, encoding="utf-8")
        (folder / TEST).write_text(repro_test(a_half(), None), encoding="utf-8")
        line = [sys.executable, *ALONE, "-p", "no:cacheprovider", "-q", TEST]
        environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": ""}
        done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        ended.append(done.stdout.splitlines()[-1].partition(" in ")[0])
    assert ended == ["1 failed", "1 passed"]


def test_a_report_has_the_test_and_the_command_that_runs_it(tmp_path: Path) -> None:
    with module(tmp_path, "toy_halves", HALVES):
        folder = write_report(a_half(), tmp_path / "reports", load("toy_halves"))
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert (folder / TEST).is_file()
    assert f"`python {' '.join(ALONE)} {TEST}`" in text
    assert "it needs the project alone." in text


def test_a_test_of_memory_compares_what_was_written(tmp_path: Path) -> None:
    """Of a long pool, in the places alone where it changes."""
    pool = Tensor("uint8", (100,), bytes(100))
    after = [Tensor("uint8", (100,), bytes([*range(4), *[0] * 96])), pool]
    right, wrong = (Returned(None, after=(("pool", pool_after),)) for pool_after in after)
    step = call("filled", pool=Name("pool"), observes=("pool",))
    case = a_half(steps=(Let("pool", pool), step), expected=(right,), actual=(wrong,))
    (tmp_path / "toy_halves.py").write_text(
        "def filled(pool):\n    pool[:4] = __import__('torch').arange(4)\n"
    )
    text = repro_script(case, tmp_path, subject_of(case))
    assert "wanted[1:4] = torch.tensor([1, 2, 3], dtype=wanted.dtype)" in text
    (tmp_path / "repro.py").write_text(text, encoding="utf-8")
    assert run(tmp_path / "repro.py").returncode == 0
    (tmp_path / "toy_halves.py").write_text("def filled(pool):\n    pool[:5] = 1\n")
    done = run(tmp_path / "repro.py")
    assert (done.returncode, "pool differs from what it should hold at [0, 2, 3, 4]" in done.stdout) == (
        1,
        True,
    )
