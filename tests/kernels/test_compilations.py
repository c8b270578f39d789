"""How kernels run in a process, executed on a CPU or compiled, and what is counted of their compilations."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from statecheck.campaign.ledger import Ledger
from statecheck.campaign.processes.tasks import Explored
from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.terminal.display import kernels
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
    """Triton's hook where ours is added, twice, to another one, which notes its calls."""
    called: list[str] = []

    def other(**event: Any) -> str:
        called.append(event["fn"].name)
        return "theirs"

    monkeypatch.setattr(triton.knobs.runtime, HOOK, other)
    count()
    count()
    return SimpleNamespace(call=triton.knobs.runtime.jit_post_compile_hook, called=called)


def event(name: str = "f", signature: str = "*i32", constant: int = 4) -> dict[str, Any]:
    """What Triton calls a hook with after a compilation."""
    compiled = {"signature": {"x_ptr": signature}, "constants": {(1,): constant}}
    return {"key": "", "fn": SimpleNamespace(module="impl", name=name), "compile": compiled}


def test_variants_are_types_and_constants_and_everything_is_a_compilation(hook: Any) -> None:
    for one in (event(), event(), event(signature="*i64"), event(constant=8), event(name="module.g")):
        assert hook.call(**one) == "theirs"
    found = take()
    assert hook.called == ["f"] * 4 + ["module.g"]
    assert {name: (len(one.variants), one.compilations) for name, one in found.items()} == {
        "f": (3, 4),
        "g": (1, 1),
    }
    assert ("x_ptr: *i32", "(1,): 4") in found["f"].variants
    assert take() == {}


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


def test_a_campaign_says_what_all_its_workers_compiled() -> None:
    assert kernels(finished("cuda", {})) == "kernels: 0 compiled, 0 times in all workers together"
    assert kernels(finished("cuda", *COUNTED)) == "kernels: 2 compiled, 4 times in all workers together"


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
AFTER_A_GPU = "from triton.runtime import driver; driver.set_active(object()); prepare('cpu')"


@pytest.mark.parametrize(
    ("source", "variables", "last"),
    [
        (f"prepare('cpu'); {KIND}", {}, "JITFunction True"),
        (f"prepare('cuda'); {KIND}", {}, "JITFunction False"),
        ("print(executes(), interprets())", {}, "False False"),
        (
            f"import statecheck.suite.options; prepare('cpu'); {KIND}",
            INTERPRETED,
            "JITFunction True",
        ),
        (
            "import triton.language; print(interprets()); prepare('cpu')",
            INTERPRETED,
            "ValueError: TRITON_INTERPRET was 1 when Triton was imported",
        ),
        (AFTER_A_GPU, {}, "ValueError: kernels have been compiled in this process"),
        (
            "prepare('cuda')",
            INTERPRETED,
            "ValueError: TRITON_INTERPRET = '1', but should be unset on cuda",
        ),
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
