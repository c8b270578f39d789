"""`pytest -p statecheck.sanitize` on suites of a project: no fixture, every launch watched, a table at the end."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.unit.kernels.sanitizer.test_script import KERNELS, child

SUITE = """
import pytest


@triton.jit
def waiting_kernel(out_ptr):
    tl.inline_asm_elementwise("bar.sync 0; // $0", "=r", [], tl.int32, False, 1)


def copied(size, programs):
    copy_kernel[(programs,)](zeros(size), zeros(8), SIZE=2)


def test_right():
    copied(8, 4)


def test_caught():
    with pytest.raises(Exception):
        copied(6, 4)


def test_unknown():
    waiting_kernel[(1,)](zeros(1))


@torch.compile(fullgraph=True)
def doubled(x):
    return x * 2


def test_compiled():
    assert torch.equal(doubled(torch.ones(8)), torch.full((8,), 2.0))


def test_poisoned():
    copy_kernel[(4,)](torch.empty(8).fill_(float("nan")), torch.zeros(8), SIZE=2)
"""
FAILING = """
def test_unwritten():
    copy_kernel[(4,)](torch.empty(8), torch.zeros(8), SIZE=2)
"""
CUDA = """
DEVICE = torch.device("cuda", 0)


def test_tensors_that_ask_for_cuda_are_watched():
    assert torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)
    x = torch.arange(8.0).cuda()
    out = torch.empty(8, device="cuda:0", pin_memory=False)
    copy_kernel[(4,)](x, out, SIZE=2)
    assert out.is_cuda
    torch.cuda.synchronize()
    assert torch.equal(out.cpu(), torch.arange(8.0))


def test_copies_of_a_device_are_copies():
    x = torch.zeros(4, device=DEVICE)
    before = x.cpu(), x.to("cpu"), x.to(DEVICE)
    x += 1
    assert [each.tolist() for each in before] == [[0.0] * 4] * 3


def test_a_leaf_stays_one():
    x = torch.zeros(4, device="cuda", requires_grad=True)
    x.to(DEVICE).sum().backward()
    assert x.grad is not None


def test_a_default_device_is_the_cpu():
    with torch.device("cuda"):
        assert torch.zeros(1).device.type == "cpu"


def test_random_numbers_repeat_by_their_generator():
    first, second = (torch.randn(4, device="cuda", generator=torch.Generator("cuda").manual_seed(1)) for _ in range(2))
    assert torch.equal(first, second)


def test_other_devices_stay():
    assert torch.zeros(1, device="meta").device.type == "meta"


def test_a_gpu_is_found_by_whatever_looks_for_it():
    import ctypes

    nvml, count, major, minor = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_uint(), ctypes.c_int(), ctypes.c_int()
    assert nvml.nvmlInitWithFlags(0) == nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
    assert nvml.nvmlDeviceGetCudaComputeCapability(None, ctypes.byref(major), ctypes.byref(minor)) == 0
    assert (count.value, (major.value, minor.value)) == (1, torch.cuda.get_device_capability())
    assert nvml.nvmlDeviceGetFanSpeed(None) != 0
    torch.accelerator.synchronize()
    assert torch.accelerator.current_device_index() == 0
    assert torch.version.cuda
    assert ctypes.CDLL(None).abs(-1) == 1
"""

TABLE = """
import pytest


@triton.jit
def table_kernel(table_ptr, out_ptr, SIZE: tl.constexpr):
    block = tl.load(table_ptr + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + tl.program_id(0) * SIZE + tl.arange(0, SIZE), tl.load(block + tl.arange(0, SIZE)))


@pytest.mark.parametrize("rows", [2, 1])
def test_a_table_of_addresses(rows):
    blocks, out = [torch.ones(rows, 4), torch.ones(2, 4)], torch.empty(2, 8)
    table = torch.tensor([block.data_ptr() for block in blocks])
    table_kernel[(2,)](table, out, SIZE=8)
    assert out.sum() == 16
"""


def suite(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_kernels.py").write_text(KERNELS + text)
    plugin = ("-p", "statecheck.sanitize", "-p", "no:cacheprovider", "-rs")
    return child(folder, "-m", "pytest", "-q", *plugin, *arguments, "test_kernels.py")


def test_a_session_with_a_finding_that_its_test_catches_fails_and_lists_it(tmp_path: Path) -> None:
    done = suite(tmp_path, SUITE)
    assert "\n4 passed, 1 skipped" in done.stdout
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "2 kernels seen, 1 executed and 1 not; 3 launches, 3 of them watched" in done.stdout
    assert (
        "test_kernels.py::test_caught: OutsideView: program (3, 0, 0) of copy_kernel loads 4 bytes"
        in done.stdout
    )
    assert "waiting_kernel is not executed: inline assembly with bar.sync (1 launch, " in done.stdout


@pytest.mark.slow
def test_processes_of_xdist_add_up_their_kernels(tmp_path: Path) -> None:
    done = suite(tmp_path, SUITE + FAILING, "-n", "2")
    assert "1 failed, 4 passed, 1 skipped" in done.stdout
    assert "2 kernels seen, 1 executed and 1 not; 4 launches, 4 of them watched" in done.stdout
    assert "test_unwritten: UnwrittenRead: program (0, 0, 0) of copy_kernel loads element [0]" in done.stdout


def test_a_suite_for_cuda_runs_on_the_cpu_if_it_is_asked_to(tmp_path: Path) -> None:
    done = suite(tmp_path, CUDA, "--cuda-on-cpu")
    assert done.returncode == 0, done.stdout
    assert "7 passed" in done.stdout


def test_what_a_test_takes_the_address_of_is_known_to_kernels(tmp_path: Path) -> None:
    done = suite(tmp_path, TABLE)
    assert "1 failed, 1 passed" in done.stdout
    assert "right behind the end of `data_ptr() at test_kernels.py:" in done.stdout


def test_a_suite_for_cuda_fails_without_the_switch(tmp_path: Path) -> None:
    done = suite(tmp_path, CUDA, "-k", "default_device")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
