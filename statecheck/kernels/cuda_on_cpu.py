"""Suites that were written for a GPU, on a CPU: tensors that ask for the device "cuda" land on the CPU.

A copy between the two devices is a copy here, too, so that what a kernel changes later does not change it. Of `torch.cuda`, the functions
that a test asks about its device are answered for one GPU of the capability that kernels are lowered for; so are those of NVML, NVIDIA's library by
which vLLM looks for a GPU, and `torch.version.cuda`, by which SGLang does. `Tensor.is_cuda` is true of
every tensor, and `Tensor.device` is what it is: the CPU. Streams run what they are handed at once. Graphs cannot be captured.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

from statecheck.kernels.source.compile import TARGET

_CAPABILITY = divmod(int(TARGET.arch), 10)
_PROPERTIES = SimpleNamespace(
    name="NVIDIA H100 (executed on a CPU)",
    major=_CAPABILITY[0],
    minor=_CAPABILITY[1],
    multi_processor_count=132,
    total_memory=80 << 30,
    shared_memory_per_block=48 << 10,
    shared_memory_per_block_optin=227 << 10,
    warp_size=TARGET.warp_size,
)


class _Stream:
    """What it is handed has been run when the call returns."""

    cuda_stream = 0
    device = torch.device("cpu")

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: object) -> float:
        return 0.0

    def record_event(self, event: Any = None) -> Any:
        return event or _Stream()

    def synchronize(self, *_: Any) -> None: ...

    record = wait = wait_event = wait_stream = synchronize


def _returns(value: Any) -> Any:
    return lambda *_, **__: value


_ANSWERS: dict[str, Any] = {
    "is_available": _returns(True),
    "is_initialized": _returns(True),
    "device_count": _returns(1),
    "current_device": _returns(0),
    "get_device_capability": _returns(_CAPABILITY),
    "get_device_name": _returns(_PROPERTIES.name),
    "get_device_properties": _returns(_PROPERTIES),
    "is_bf16_supported": _returns(True),
    "is_current_stream_capturing": _returns(False),
    "mem_get_info": _returns((_PROPERTIES.total_memory, _PROPERTIES.total_memory)),
    **dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved"), _returns(0)),
    **dict.fromkeys(("init", "set_device", "synchronize", "empty_cache", "ipc_collect"), _returns(None)),
    **dict.fromkeys(("reset_peak_memory_stats", "manual_seed", "manual_seed_all"), _returns(None)),
    **dict.fromkeys(("Stream", "ExternalStream", "Event"), _Stream),
    **dict.fromkeys(("current_stream", "default_stream"), _returns(_Stream())),
    **dict.fromkeys(("stream", "device", "device_of"), lambda *_, **__: nullcontext()),
}


_ACCELERATOR: dict[str, Any] = {
    "is_available": _returns(True),
    "device_count": _returns(1),
    "current_device_index": _returns(0),
    "current_accelerator": _returns(torch.device("cuda")),
    "current_stream": _returns(_Stream()),
    "get_memory_info": _returns((_PROPERTIES.total_memory, _PROPERTIES.total_memory)),
    "device_index": lambda *_: nullcontext(),
    **dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved"), _returns(0)),
    **dict.fromkeys(("set_device_index", "set_stream", "synchronize"), _returns(None)),
    **dict.fromkeys(("empty_cache", "empty_host_cache", "reset_peak_memory_stats"), _returns(None)),
}
"""Of `torch.accelerator`, which names the device that a machine has."""


def _fills(*values: Any, at: int = 1) -> Any:
    """A function of NVML: it writes these values to its arguments from a place on, and succeeds."""

    def answer(*arguments: Any) -> int:
        for argument, value in zip(arguments[at:], values, strict=False):
            getattr(argument, "_obj", argument).value = value
        return 0

    return answer


def _memory_info(_: Any, memory: Any) -> int:
    memory._obj.total = memory._obj.free = _PROPERTIES.total_memory
    return 0


_NVML: dict[str, Any] = {
    **dict.fromkeys(("nvmlInitWithFlags", "nvmlInit_v2", "nvmlShutdown"), _fills()),
    "nvmlDeviceGetCount_v2": _fills(1, at=0),
    "nvmlDeviceGetHandleByIndex_v2": _fills(),
    "nvmlDeviceGetCudaComputeCapability": _fills(*_CAPABILITY),
    "nvmlDeviceGetName": _fills(_PROPERTIES.name.encode()),
    "nvmlDeviceGetUUID": _fills(b"GPU-00000000-0000-0000-0000-000000000000"),
    "nvmlDeviceGetMemoryInfo": _memory_info,
}
_NOT_FOUND = 13


class _Nvml:
    """The functions of NVML that programs ask for a GPU, called as `pynvml` calls them. Each other function is not found."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("nvml"):
            return _NVML.get(name, _returns(_NOT_FOUND))
        raise AttributeError(name)


class _Library(ctypes.CDLL):
    """A library of the system, or the stand-in for NVML."""

    def __new__(cls, name: Any = None, *_: Any, **__: Any) -> Any:
        return _Nvml() if "libnvidia-ml" in str(name) else super().__new__(cls)


class _Generator(torch.Generator):
    """Of random numbers, for any device."""

    def __new__(cls, device: Any = "cpu") -> Self:
        return super().__new__(cls, _on_cpu(device))  # type: ignore[call-arg]


def install() -> None:
    """Do so in this process from now on."""
    # It looks at the classes of torch.cuda as it is imported, which torch does when it needs it.
    import torch._dynamo

    for name, answer in _ANSWERS.items():
        setattr(torch.cuda, name, answer)
    torch.Generator = _Generator  # type: ignore[misc]
    for name, answer in _ACCELERATOR.items():
        setattr(torch.accelerator, name, answer)
    torch.version.cuda = torch.version.cuda or "12.8"
    ctypes.CDLL = _Library  # type: ignore[misc]
    # Of torch.cpu, what libraries expect of any device's module.
    vars(torch.cpu).setdefault("device", _ANSWERS["device"])
    # Its mode adds the device behind ours.
    plain = DeviceContext.__init__
    DeviceContext.__init__ = lambda self, device: plain(self, _on_cpu(torch.device(device)))  # type: ignore[method-assign]
    _CudaOnCpu().__enter__()


class _CudaOnCpu(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func == torch.Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return True
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        keywords = dict(kwargs or {})
        if func in (torch.Tensor.cuda, torch.Tensor.cpu):
            return _copied(args[0], to_cuda=func is torch.Tensor.cuda)
        if func is torch.Tensor.pin_memory:
            return args[0]
        device = keywords.get("device", args[1] if func is torch.Tensor.to and len(args) > 1 else None)
        keywords.pop("pin_memory", None)
        if "device" in keywords:
            keywords["device"] = _on_cpu(keywords["device"])
        result = func(*(_on_cpu(argument) for argument in args), **keywords)
        if func is torch.Tensor.to and result is args[0] and _device_type(device) is not None:
            return _copied(result, to_cuda=_device_type(device) == "cuda")
        return result


def _copied(tensor: Any, *, to_cuda: bool) -> Any:
    # A leaf that has a gradient is on the GPU already, and stays itself.
    return tensor if to_cuda and tensor.requires_grad else tensor.clone()


def _on_cpu(argument: Any) -> Any:
    return torch.device("cpu") if _device_type(argument) == "cuda" else argument


def _device_type(argument: Any) -> str | None:
    """Of an argument that names a device."""
    if isinstance(argument, torch.device):
        return argument.type
    if isinstance(argument, str) and argument.partition(":")[0] in ("cuda", "cpu"):
        return argument.partition(":")[0]
    return None
