"""An autotuned kernel runs once, with the first configuration that compiles."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl

from statecheck.kernels.launch_counts import LAUNCHES
from statecheck.kernels.private import Autotuner, CompiledKernel, OutOfResources

pytestmark = pytest.mark.usefixtures("executed")


@triton.autotune([triton.Config({"STEP": step}) for step in (3, 5, 7)], key=["size"], cache_results=True)
@triton.jit
def add_step_kernel(x_ptr, size, STEP: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.static_assert(STEP != 3)
    lanes = tl.arange(0, 8)
    tl.store(x_ptr + lanes, tl.load(x_ptr + lanes, lanes < size) + STEP, lanes < size)


def test_an_autotuned_kernel_runs_once_with_the_first_configuration_that_compiles() -> None:
    before = LAUNCHES.total()
    x = torch.zeros(8, dtype=torch.int32)
    add_step_kernel[(1,)](x, 6)
    assert x.tolist() == [5] * 6 + [0] * 2
    assert LAUNCHES.total() == before + 1


def test_an_autotuned_kernel_keeps_its_configuration_for_a_key() -> None:
    x = torch.zeros(8, dtype=torch.int32)
    add_step_kernel[(1,)](x, 7)
    add_step_kernel[(1,)](x, 7)
    assert x.tolist() == [10] * 7 + [0]


class _Compiled(CompiledKernel):
    """A kernel that a GPU has room for, or not."""

    def __init__(self, *, fits: bool) -> None:
        self.fits, self.module = fits, None

    def _init_handles(self) -> None:
        if not self.fits:
            raise OutOfResources(1, 0, "shared memory")


def test_a_configuration_that_the_device_has_no_room_for_is_left_out() -> None:
    compiled = {3: _Compiled(fits=False), 5: _Compiled(fits=True), 7: _Compiled(fits=True)}
    fn = SimpleNamespace(run=lambda **given: compiled[given["STEP"]])
    tuned = SimpleNamespace(nargs={}, fn=fn)
    times = [Autotuner._bench(tuned, config=triton.Config({"STEP": step})) for step in compiled]
    assert times == [[math.inf] * 3, [1.0] * 3, [math.inf] * 3]
