"""How kernels run in a process, executed on a CPU or compiled, and what is counted of their compilations."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from rich.console import Console

from statecheck.campaign.launched import KernelRecord, LaunchRecord
from statecheck.campaign.ledger import Ledger
from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.terminal.display import kernels
from statecheck.campaign.workers.tasks import Explored
from statecheck.execution.example import Bench
from statecheck.kernels import compilations, triton_mode
from statecheck.kernels.compilations import Compilation, added, count, take
from tests.breakages.broken import a_property
from tests.processes import run_python

HOOK = "jit_post_compile_hook"


@pytest.fixture(autouse=True)
def _what_was_compiled_so_far_is_kept() -> Iterator[None]:
    before = dict(compilations._compiled)
    compilations._compiled.clear()
    yield
    compilations._compiled.clear()
    compilations._compiled.update(before)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Triton's hook after a listener of ours has been added to that of somebody else, who writes down what is told."""
    heard: list[str] = []

    def listen(**told: Any) -> str:
        heard.append(told["fn"].name)
        return "theirs"

    monkeypatch.setattr(triton.knobs.runtime, HOOK, listen)
    count()
    return SimpleNamespace(tell=triton.knobs.runtime.jit_post_compile_hook, heard=heard)


def told(name: str = "f", signature: str = "*i32", constant: int = 4) -> dict[str, Any]:
    """What Triton tells a hook about a compilation."""
    return {
        "key": "",
        "repr": "",
        "fn": SimpleNamespace(module="impl", name=name),
        "compile": {"signature": {"x_ptr": signature}, "constants": {(1,): constant}},
        "is_manual_warmup": False,
        "already_compiled": False,
    }


def test_variants_are_types_and_constants_and_everything_is_a_compilation(hook: Any) -> None:
    for compiled in (told(), told(), told(signature="*i64"), told(constant=8), told(name="module.g")):
        hook.tell(**compiled)
    found = take()
    assert {name: (len(one.variants), one.compilations) for name, one in found.items()} == {
        "f": (3, 4),
        "g": (1, 1),
    }
    assert ("x_ptr: *i32", "(1,): 4") in found["f"].variants


def test_a_compilation_is_told_once(hook: Any) -> None:
    hook.tell(**told())
    assert (list(take()), take()) == (["f"], {})


def test_who_else_listens_is_still_told_and_answers(hook: Any) -> None:
    assert hook.tell(**told()) == "theirs"
    assert hook.heard == ["f"]


def test_counting_twice_counts_once(hook: Any) -> None:
    count()
    triton.knobs.runtime.jit_post_compile_hook(**told())
    assert (take()["f"].compilations, hook.heard) == (1, ["f"])


def test_counts_of_two_processes_add_up() -> None:
    one = {"f": Compilation(frozenset({("a", "1"), ("b", "1")}), 3)}
    other = {"f": Compilation(frozenset({("a", "1")}), 1), "e": Compilation(frozenset({("c", "")}), 1)}
    assert added(one, other) == {"e": other["e"], "f": Compilation(frozenset({("a", "1"), ("b", "1")}), 4)}


def finished(device: str, *counted: dict[str, Compilation]) -> CampaignRecord:
    """A campaign of one property, after a task for each of the counts."""
    ledger = Ledger([a_property()], {}, [], {})
    for compiled in counted:
        ledger.explored(Explored("toys_divide", "passed", 0.5, compiled=compiled), at=1.0)
    return ledger.fill(CampaignRecord("night", "impl", device, ""))


COUNTED = (
    {"copy_kernel": Compilation(frozenset({("a", "1")}), 2)},
    {
        "copy_kernel": Compilation(frozenset({("a", "2")}), 1),
        "add_kernel": Compilation(frozenset({("", "")}), 1),
    },
)


def shown(campaign: CampaignRecord) -> list[list[str]]:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(kernels(campaign))
    lines = console.export_text().splitlines()
    return [re.findall(r"[\w:,]+", line) for line in lines if re.search(r"\w", line)]


def test_a_campaign_shows_what_all_its_workers_compiled() -> None:
    assert shown(finished("cuda", *COUNTED)) == [
        ["kernels", "compiled", "variants", "compilations"],
        ["add_kernel", "1", "1"],
        ["copy_kernel", "2", "3"],
    ]


def test_a_campaign_without_compilations_says_so() -> None:
    assert shown(finished("cuda", {})) == [["kernels:", "none", "compiled"]]


def test_a_campaign_on_a_cpu_says_how_kernels_were_run_that_were_launched() -> None:
    record = CampaignRecord("night", "impl", "cpu", "")
    assert kernels(record) == ""
    executed, interpreted = LaunchRecord("executed", "", 12_345), LaunchRecord("interpreted", "tt.new", 1)
    record.launched = [KernelRecord("copy", "", [executed]), KernelRecord("move", "", [interpreted])]
    assert kernels(record) == (
        "kernels: 1 executed from their IR (12,345 launches); "
        "1 in Triton's interpreter, unwatched: move (tt.new), 1 launch"
    )


def test_a_campaign_is_saved_with_its_kernels(tmp_path: Path) -> None:
    record = finished("cuda", *COUNTED)
    record.save(tmp_path / "new" / "campaign.json")
    saved = CampaignRecord.load(tmp_path / "new" / "campaign.json")
    assert saved == record
    assert {name: (len(one.variants), one.compilations) for name, one in saved.kernels.items()} == {
        "add_kernel": (1, 1),
        "copy_kernel": (2, 3),
    }


def test_kernels_are_executed_on_the_cpu_and_nowhere_else(trial: Bench) -> None:
    assert triton_mode.executes() is (trial.port.device == "cpu")
    triton_mode.prepare(trial.port.device)


def test_a_process_that_is_prepared_is_settled(trial: Bench) -> None:
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


@pytest.mark.parametrize(("device", "executed"), [("cpu", True), ("cuda", False)])
def test_a_fresh_process_runs_kernels_as_its_device_wants(device: str, executed: bool) -> None:
    assert in_a_process(f"prepare({device!r}); {KIND}") == f"JITFunction {executed}"


def test_nothing_is_executed_before_it_is_asked_for() -> None:
    assert in_a_process("print(executes(), interprets())") == "False False"


def test_a_run_on_the_cpu_needs_no_variable_and_minds_none() -> None:
    assert (
        in_a_process(f"import statecheck.suite.options; prepare('cpu'); {KIND}", **INTERPRETED)
        == "JITFunction True"
    )


def test_a_process_whose_triton_interprets_is_refused() -> None:
    refused = in_a_process("import triton.language; print(interprets()); prepare('cpu')", **INTERPRETED)
    assert refused.startswith("ValueError: TRITON_INTERPRET was 1 when Triton was imported")


AFTER_A_GPU = """
from triton.runtime import driver
driver.set_active(object())
prepare("cpu")
"""


def test_a_process_that_has_used_a_gpu_is_refused() -> None:
    assert in_a_process(AFTER_A_GPU).startswith("ValueError: kernels have been compiled in this process")


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
    told = in_a_process(f"import runpy; runpy.run_path({str(path)!r})")
    assert told == "2 JITFunction JITFunction"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({triton_mode.INTERPRET: "1"}, "TRITON_INTERPRET = '1', but should be unset on cuda"),
        ({triton_mode.NUM_WARPS: "3"}, "STATECHECK_NUM_WARPS = '3', but should be a power of two"),
    ],
    ids=["interpret", "warps"],
)
def test_variables_that_cannot_be_are_refused(variables: dict[str, str], message: str) -> None:
    assert f"ValueError: {message}" in in_a_process("prepare('cuda')", **variables)


def test_every_launch_has_the_warps_that_the_variable_says() -> None:
    source = """
from triton.runtime.jit import JITFunction
JITFunction.run = lambda self, *arguments, **keywords: print(arguments, keywords)
prepare("cuda")
prepare("cuda")
JITFunction.run("kernel", 1, grid=(2,), warmup=False, num_warps=4)
"""
    wanted = "(1,) {'grid': (2,), 'warmup': False, 'num_warps': 8}"
    assert in_a_process(source, STATECHECK_NUM_WARPS="8") == wanted


def test_without_the_variable_launches_are_the_subject_s_own() -> None:
    source = (
        "from triton.runtime.jit import JITFunction as J; run = J.run; prepare('cuda'); print(J.run is run)"
    )
    assert in_a_process(source) == "True"


@triton.jit
def doubling_kernel(x_ptr, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + places, tl.load(x_ptr + places, mask=places < size) * 2, mask=places < size)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="kernels are compiled on a GPU only")
def test_compilations_of_real_kernels_are_counted(trial: Bench) -> None:
    if trial.port.device != "cuda":
        pytest.skip("this run executes kernels on the CPU")
    take()
    numbers = torch.ones(64, dtype=torch.int32, device="cuda")
    for tensor, size, block in (
        (numbers, 64, 16),
        (numbers, 48, 16),
        (numbers, 3, 16),
        (numbers.long(), 64, 32),
    ):
        doubling_kernel[(1,)](tensor, size, BLOCK=block)
    counted = take()["doubling_kernel"]
    assert (len(counted.variants), counted.compilations) == (2, 3)
