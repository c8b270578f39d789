"""Small tensors that are read together: each holds what it holds alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from statecheck.execution import in_process
from statecheck.execution.in_process import Describer, has_few_bytes, on_host, read_together
from statecheck.execution.memory import Scope

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16]


def numbered(dtype: torch.dtype, device: str, *shape: int) -> torch.Tensor:
    return (torch.arange(1, 1 + torch.Size(shape).numel(), device=device) % 7).to(dtype).reshape(shape)


def test_tensors_of_any_dtype_and_shape_are_read_with_their_own_elements(device: str) -> None:
    shapes: list[tuple[int, ...]] = [(), (1,), (3,), (2, 3)]
    tensors = [numbered(dtype, device, *shape) for shape in shapes for dtype in DTYPES]
    tensors += [numbered(torch.int32, device, 9)[2:5], torch.full((2,), torch.nan, device=device)]
    # One element is contiguous at any stride.
    tensors += [numbered(torch.int32, device, 4, 2)[:1, 1], numbered(torch.int64, device, 4)[::4]]
    read = read_together(tensors)
    assert sorted(map(id, tensors)) == sorted(id(original) for original, _ in read)
    for tensor, host in read:
        assert host.device.type == "cpu"
        torch.testing.assert_close(host, tensor.reshape(-1).cpu(), rtol=0, atol=0, equal_nan=True)


def shrunk(device: str) -> torch.Tensor:
    tensor = numbered(torch.int32, device, 8)
    view = tensor[4:]
    tensor.untyped_storage().resize_(16)
    return view


@pytest.mark.parametrize(
    "made",
    [
        lambda device: numbered(torch.int32, device, 4, 4).t(),
        lambda device: numbered(torch.int32, device, 0),
        lambda device: torch.zeros(64 << 10, dtype=torch.int16, device=device),
        lambda device: torch.ones(3, dtype=torch.complex64, device=device),
        lambda device: torch.ones(1, dtype=torch.complex64, device=device).conj().imag,
        lambda device: torch.ones(3, device=device).to_sparse(),
        shrunk,
    ],
    ids=["strided", "empty", "large", "complex", "negative", "sparse", "shrunk"],
)
def test_a_tensor_that_is_no_short_run_of_bytes_is_read_alone(
    made: Callable[[str], torch.Tensor], device: str
) -> None:
    assert not has_few_bytes(made(device))
    assert has_few_bytes(numbered(torch.int32, device, 4))


def test_only_tensors_of_a_gpu_are_read_together(device: str) -> None:
    class Own(torch.Tensor):
        pass

    some = [numbered(torch.int64, device, 2), numbered(torch.int32, device, 3)]
    read = on_host([*some, *some, torch.ones(2), torch.ones(2, device=device).as_subclass(Own), 5, None])
    assert [tensor.dtype for tensor, _ in read] == ([torch.int64, torch.int32] if device == "cuda" else [])
    # One alone is not read here: it would wait as often.
    assert on_host(some[:1]) == []


def test_a_result_says_the_same_whether_its_tensors_were_read_together(device: str) -> None:
    known = numbered(torch.int32, device, 2)
    parts = [numbered(dtype, device, 3) for dtype in DTYPES]
    result = {"parts": parts, "again": parts[0], "known": known, "host": torch.ones(2), "text": "x"}
    lines = []
    for alone in (False, True):
        describer = Describer(device)
        if alone:
            describer.read = lambda found: []  # type: ignore[method-assign]
        lines.append(describer.result(result, "result", Scope(paths={id(known): "x"})))
    assert lines[0] == lines[1]


def test_where_tensors_cannot_be_read_together_each_is_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(found: object) -> None:
        raise RuntimeError(f"cannot read {found}")

    monkeypatch.setattr(in_process, "on_host", refuse)
    assert Describer("cuda").read([torch.ones(2), torch.ones(3)]) == []
