"""The outcome of a watched launch, the memory of it, and nothing else left behind."""

from __future__ import annotations

import os
import pickle
from copy import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from statecheck.kernels import launch, triton_mode
from statecheck.kernels.launch import STATE
from statecheck.kernels.orders import program_schedule
from statecheck.kernels.source.ir import NotUnderstoodError
from statecheck.sanitizer import Finding, NotExecuted, OutsideView, sanitize
from tests.helpers.modules import ROOT
from tests.helpers.processes import run_python
from tests.helpers.toy_kernels import copy_kernel, poke_kernel

pytestmark = pytest.mark.usefixtures("executed")

SCHEDULES = ("", "reversed", "switches:0>2,3>0", "switches:1>1,1>0,2>2", "switches:2>1,1>2,1>0")


@triton.jit
def poke(out_ptr, place):  # type: ignore[no-untyped-def]
    tl.store(out_ptr + place, 1)


@triton.jit
def nested_kernel(out_ptr, place):  # type: ignore[no-untyped-def]
    poke(out_ptr, place)


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


def test_a_finding_of_a_device_function_is_not_wrapped_and_names_its_line() -> None:
    with sanitize(), pytest.raises(OutsideView) as caught:
        nested_kernel[(1,)](zeros(4), 7)
    access = caught.value.access
    assert (access.kind, access.kernel, access.tensor, access.index) == (
        "store",
        "nested_kernel",
        "out_ptr",
        (7,),
    )
    line = poke.fn.__code__.co_firstlineno + 2
    assert access.place == f"test_context.py:{line}"
    assert access.path == f"{__file__}:{line}"


def test_a_finding_survives_pickling() -> None:
    with sanitize(), pytest.raises(OutsideView) as caught:
        poke_kernel[(1,)](zeros(4), 7)
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - just written
    assert (type(copy), str(copy), copy.access) == (OutsideView, str(caught.value), caught.value.access)


@pytest.mark.parametrize("place", [0, 7])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_afterwards_launches_are_made_as_before(place: int, schedule: str) -> None:
    before = STATE.memory, STATE.runner, STATE.around
    for record in (False, True):
        try:
            with program_schedule(schedule), sanitize(record=record):
                poke_kernel[(1,)](zeros(4), place)
        except Finding:
            assert place == 7
        assert (STATE.memory, STATE.runner, STATE.around) == before


def test_a_launch_that_the_executor_does_not_know_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise NotUnderstoodError("something new")

    monkeypatch.setattr(launch, "compiled", refuse)
    monkeypatch.setattr(poke_kernel, "device_caches", copy(poke_kernel.device_caches))
    poke_kernel.device_caches.clear()
    memory = zeros(4)
    words = "^poke_kernel is not executed on a CPU: the executor does not know something new$"
    with sanitize(), pytest.raises(NotExecuted, match=words):
        poke_kernel[(1,)](memory, 1)
    assert memory.tolist() == [0, 0, 0, 0]


def test_launches_are_counted_and_a_context_goes_on_after_a_finding() -> None:
    with sanitize() as watch:
        poke_kernel[(1,)](zeros(4), 0)
        with pytest.raises(OutsideView) as caught:
            poke_kernel[(1,)](zeros(4), 7)
        poke_kernel[(1,)](zeros(4), 1)
    assert (caught.value.access.launch, watch.launches) == (2, 3)


def test_where_kernels_are_compiled_there_is_nothing_to_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_mode._Settled, "compiles", "cuda")
    with pytest.raises(ValueError, match=r"^device = 'cpu', but should be 'cuda'"), sanitize():
        pass


@triton.jit
def library_kernel(in_ptr, out_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    numbers = tl.load(in_ptr + tl.arange(0, SIZE))
    both = tl.sum(numbers) + tl.max(numbers)
    first = poke_first(out_ptr, tl.zeros((SIZE,), tl.int32) + both)
    tl.store(out_ptr, first)


@triton.jit
def poke_first(out_ptr, values):  # type: ignore[no-untyped-def]
    tl.store(out_ptr + 4 + tl.arange(0, 4), values)
    return tl.min(values)


def test_the_line_is_that_of_the_function_that_the_kernel_calls() -> None:
    with sanitize(), pytest.raises(OutsideView) as caught:
        library_kernel[(1,)](zeros(4), zeros(4), SIZE=4)
    line = poke_first.fn.__code__.co_firstlineno + 2
    assert caught.value.access.place == f"test_context.py:{line}"


OWN_SCRIPT = """
import os, sys
for one in sys.argv[1:]:
    os.environ["TRITON_INTERPRET"] = one
import torch, triton, triton.language as tl
from statecheck.sanitizer import sanitize

@triton.jit
def poke_kernel(out_ptr, place):
    tl.store(out_ptr + place, 1)

with sanitize() as watch:
    poke_kernel[(1,)](torch.zeros(4), 3)
    try:
        poke_kernel[(1,)](torch.zeros(4), 4)
    except Exception as error:
        print(watch.launches, type(error).__name__)
"""


def own_script(folder: Path, *interpret: str) -> tuple[str, str]:
    path = folder / "script.py"
    path.write_text(OWN_SCRIPT)
    clean = {name: value for name, value in os.environ.items() if name != triton_mode.INTERPRET}
    done = run_python(path, *interpret, env=clean | {"PYTHONPATH": str(ROOT)})
    return done.stdout, done.stderr


@pytest.mark.slow
def test_a_script_needs_nothing_but_the_context(tmp_path: Path) -> None:
    assert own_script(tmp_path) == ("2 OutsideView\n", "")


def test_where_triton_interprets_all_kernels_there_is_nothing_to_watch(tmp_path: Path) -> None:
    out, error = own_script(tmp_path, "1")
    assert out == ""
    assert "ValueError: TRITON_INTERPRET was 1 when Triton was imported, but should be unset" in error


def test_the_last_writer_of_a_byte_is_remembered() -> None:
    memory = zeros(8)
    with sanitize(record=True) as watch:
        copy_kernel[(2,)](zeros(8), memory, 8, SIZE=4, MASKED=True)
        poke_kernel[(1,)](memory, 3)
        writers = [watch.last_writer(memory.data_ptr() + byte) for byte in (0, 12, 19, 31)]
    assert [writer and (writer.kernel, writer.program[0], writer.index) for writer in writers] == [
        ("copy_kernel", 0, (0,)),
        ("poke_kernel", 0, (3,)),
        ("copy_kernel", 1, (4,)),
        ("copy_kernel", 1, (7,)),
    ]
