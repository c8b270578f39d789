"""Launches by the CUDA driver itself, as far as they can be seen without one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompilationError

from properties.harness.subject import load

bare: Any = import_module("impl.bare")
KERNELS = tuple(
    map(load("impl").resolve, ("postprocess_mamba_fused_kernel", "precopy_mamba_align_fused_kernel"))
)
FUNCTION, STREAM, GRID, THREADS, SHARED = 0x7F00_1234_5678, 0x55AA_0000_0001, (1188, 1, 1), 128, 64
CUDA_ERROR_INVALID_CONTEXT = 201
GPU = torch.device("cuda", 0)

SIGNATURE = (ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)
"""Of `cuLaunchKernel`, the result first."""


class Driver:
    """Stands for the driver: remembers what each launch was handed, which it reads as the driver does."""

    def __init__(self, parameters: int, answer: int = 0) -> None:
        self.seen: list[dict[str, Any]] = []
        self._parameters, self._answer = parameters, answer
        self.cuLaunchKernel = ctypes.CFUNCTYPE(*SIGNATURE)(self._launch)

    def _launch(self, function: int, *rest: Any) -> int:
        *sizes, stream, parameters, extra = rest
        slots = ctypes.cast(parameters, ctypes.POINTER(ctypes.c_void_p))
        values = [ctypes.c_int64.from_address(slots[i] or 0).value for i in range(self._parameters)]
        self.seen.append(
            {"function": function, "sizes": sizes, "stream": stream, "values": values, "extra": extra}
        )
        return self._answer


def launch(driver: Driver, values: Sequence[int], varying: Sequence[int], current: int = 0) -> Any:
    return bare.BareLaunch(
        function=FUNCTION,
        grid=GRID,
        threads=THREADS,
        shared_bytes=SHARED,
        device=GPU,
        values=values,
        varying=varying,
        launch=driver.cuLaunchKernel,
        current_device=lambda: current,
        current_stream=lambda _: STREAM,
    )


def test_the_driver_is_handed_the_kernel_its_sizes_the_stream_and_all_parameters() -> None:
    driver = Driver(4)
    assert launch(driver, [11, 22, -33, 0], [1, 0]).launched((2**62 + 1, 7))
    assert driver.seen == [
        {
            "function": FUNCTION,
            "sizes": [*GRID, THREADS, 1, 1, SHARED],
            "stream": STREAM,
            "values": [7, 2**62 + 1, -33, 0],
            "extra": None,
        }
    ]


def test_each_launch_is_handed_its_own_values() -> None:
    driver = Driver(2)
    one = launch(driver, [1, 2], [0])
    same = (5,)
    for values in ((3,), (4,), same, same, (3,)):
        assert one.launched(values)
    assert [seen["values"] for seen in driver.seen] == [[3, 2], [4, 2], [5, 2], [5, 2], [3, 2]]


def test_nothing_is_launched_while_another_device_is_the_current_one() -> None:
    driver = Driver(1)
    assert not launch(driver, [1], [0], current=1).launched((2,))
    assert driver.seen == []


def test_a_launch_that_the_driver_refuses_is_not_said_to_be_done() -> None:
    assert not launch(Driver(1, CUDA_ERROR_INVALID_CONTEXT), [1], [0]).launched((2,))


@pytest.mark.parametrize(
    ("header", "bits"),
    [
        (".visible .entry k(\n.param .u64 k_param_0,\n.param .u32 k_param_1\n)\n", [64, 32]),
        (
            ".visible .entry k(\n\t.param .u64 .ptr .global .align 1 k_param_0,\n\t.param .b32 k_param_1)",
            [64, 32],
        ),
        (".visible .entry k()", []),
        (".visible .entry k(\n.param .align 64 .b8 k_param_0[128],\n.param .f32 k_param_1\n)", [32]),
        ("", []),
    ],
)
def test_parameters_of_a_kernel_are_read_from_its_ptx(header: str, bits: list[int]) -> None:
    assert bare.entry_parameters(header) == bits


def compiled(kernel: Any, given: dict[str, Any]) -> Any:
    """The kernel as Triton compiles it for an H100 or H200, which needs none."""
    types = {torch.int32: "*i32", torch.int64: "*i64"}

    def type_of(name: str, value: Any) -> str:
        if name.isupper() or value is None:
            return "constexpr"
        if isinstance(value, torch.Tensor):
            return types[value.dtype]
        return "i64" if name == "block_table_stride_req" else "i32"

    signature = {name: type_of(name, value) for name, value in given.items()}
    constants = {name: given[name] for name, kind in signature.items() if kind == "constexpr"}
    source = ASTSource(kernel, signature, constants)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    return SimpleNamespace(src=made.src, metadata=made.metadata, asm=made.asm, function=FUNCTION)


def arguments(kernel: Any) -> dict[str, Any]:
    """All parameters, the tensors and numbers that a context hands over among them."""
    constant = {
        "COPY_BLOCK_SIZE": 4096,
        "CONV_STATE_DIM_FIRST": False,
        "HAS_IDX_MAPPING": True,
        "REQUESTS": 32,
    }
    numbers = {
        "block_table_stride_req": 5,
        "num_reqs": 3,
        "block_size": 16,
        "num_tiles": 2,
        "block_table_width": 5,
    }
    int64s = {"tiles_ptr": torch.zeros(2, 8, dtype=torch.int64)}
    int32s = {
        name: torch.zeros(8, dtype=torch.int32)
        for name in kernel.arg_names
        if name
        in ("num_accepted_tokens_ptr", "mamba_state_idx_ptr", "num_computed_tokens_ptr", "idx_mapping_ptr")
        or name in ("src_col_ptr", "token_bias_ptr", "counters_ptr")
    }
    given = constant | numbers | int64s | int32s | {"PRECOMPUTED_NEW_COMPUTED": True}
    return {name: given.get(name) for name in kernel.arg_names}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[Driver], None]:
    """As if there were one, whose driver is the one that is given."""

    def install(driver: Driver) -> None:
        active = SimpleNamespace(get_current_device=lambda: 0, get_current_stream=lambda _: STREAM)
        monkeypatch.setattr(bare, "_cuda_driver", lambda: driver)
        monkeypatch.setattr(bare, "driver", SimpleNamespace(active=active))

    return install


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_what_this_triton_compiles_is_launched_with_each_argument_in_its_place(
    kernel: Any, gpu: Callable[[Driver], None]
) -> None:
    given, made = arguments(kernel), compiled(kernel, arguments(kernel))
    handed = [name for name in given if made.src.signature[name] != "constexpr"]
    driver = Driver(len(handed) + 2)
    gpu(driver)
    one = bare.bare_launch(made, GPU, GRID, ["mamba_state_idx_ptr", "num_reqs"], given)
    assert one is not None
    assert one.launched((77, 2))
    expected = {
        name: value.data_ptr() if isinstance(value, torch.Tensor) else value for name, value in given.items()
    } | {"mamba_state_idx_ptr": 77, "num_reqs": 2}
    assert driver.seen[0]["values"] == [*[expected[name] for name in handed], 0, 0]


@pytest.mark.slow
def test_a_kernel_that_needs_more_than_its_arguments_is_left_to_triton(gpu: Callable[[Driver], None]) -> None:
    kernel = KERNELS[1]
    given, made = arguments(kernel), compiled(kernel, arguments(kernel))
    gpu(Driver(0))
    other = SimpleNamespace(**made.metadata._asdict() | {"global_scratch_size": 128})
    needs_memory = SimpleNamespace(src=made.src, metadata=other, asm=made.asm, function=FUNCTION)
    without_text = SimpleNamespace(src=made.src, metadata=made.metadata, asm={}, function=FUNCTION)
    assert bare.bare_launch(made, GPU, GRID, ["num_reqs"], given) is not None
    for one in (needs_memory, without_text):
        assert bare.bare_launch(one, GPU, GRID, ["num_reqs"], given) is None
    assert bare.bare_launch(made, torch.device("cpu"), GRID, ["num_reqs"], given) is None
    assert bare.bare_launch(made, GPU, GRID, ["HAS_IDX_MAPPING"], given) is None


def test_the_postprocess_by_slot_does_not_compile_without_counters() -> None:
    kernel = KERNELS[0]
    with pytest.raises(CompilationError, match="counters_ptr"):
        compiled(kernel, arguments(kernel) | {"counters_ptr": None})
