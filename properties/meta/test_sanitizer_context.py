"""What comes out of a launch, what is remembered of it, and that nothing else is left behind."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from properties.harness.schedules import program_schedule
from properties.sanitizer import Finding, OutsideView, Sanitizer, sanitize

pytestmark = pytest.mark.usefixtures("interpreted")

SCHEDULES = ("", "reversed", "shuffled:1", "interleaved:1", "interleaved:2")


@triton.jit
def copy_kernel(in_ptr, out_ptr, count, SIZE: tl.constexpr, MASKED: tl.constexpr):  # type: ignore[no-untyped-def]
    places = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    mask = places < count
    if MASKED:
        tl.store(out_ptr + places, tl.load(in_ptr + places, mask=mask), mask=mask)
    else:
        tl.store(out_ptr + places, tl.load(in_ptr + places))


@triton.jit
def poke_kernel(out_ptr, place):  # type: ignore[no-untyped-def]
    tl.store(out_ptr + place, 1)


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
    assert access.place == f"test_sanitizer_context.py:{line}"
    assert access.path == f"{__file__}:{line}"


def test_a_finding_survives_pickling() -> None:
    with sanitize(), pytest.raises(OutsideView) as caught:
        poke_kernel[(1,)](zeros(4), 7)
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - just written
    assert (type(copy), str(copy), copy.access) == (OutsideView, str(caught.value), caught.value.access)


def replaceable() -> list[dict[str, Any]]:
    interpreter = triton.runtime.interpreter
    owners = (
        interpreter,
        interpreter.GridExecutor,
        interpreter.ReduceScanOpInterface,
        interpreter.TensorDescHandle,
    )
    return [dict(vars(interpreter.interpreter_builder)), *(dict(vars(owner)) for owner in owners)]


@pytest.mark.parametrize("place", [0, 7])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_afterwards_the_interpreter_is_as_it_was(place: int, schedule: str) -> None:
    with sanitize():
        poke_kernel[(1,)](zeros(4), 0)
    before = replaceable()
    for record in (False, True):
        try:
            with program_schedule(schedule), sanitize(record=record):
                poke_kernel[(1,)](zeros(4), place)
        except Finding:
            assert place == 7
        assert [list(one) for one in replaceable()] == [list(one) for one in before]
        assert all(
            one[key] is value
            for one, old in zip(replaceable()[1:], before[1:], strict=True)
            for key, value in old.items()
        )


def test_launches_are_counted_and_a_context_goes_on_after_a_finding() -> None:
    with sanitize() as watch:
        poke_kernel[(1,)](zeros(4), 0)
        with pytest.raises(OutsideView) as caught:
            poke_kernel[(1,)](zeros(4), 7)
        poke_kernel[(1,)](zeros(4), 1)
    assert (caught.value.access.launch, watch.launches) == (2, 3)


def test_where_kernels_are_compiled_there_is_nothing_to_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("properties.sanitizer._interprets", lambda: False)
    with pytest.raises(ValueError, match=r"^TRITON_INTERPRET is unset, but should be"), sanitize():
        pass


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


def test_the_last_writer_is_known_only_where_writers_are_recorded() -> None:
    with pytest.raises(ValueError, match=r"^record = False, but should be True"):
        Sanitizer().last_writer(0)
