"""Launches on a GPU: written down before they are made, and made again on a CPU."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import pickle
import struct
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from statecheck.case import Case
from statecheck.execution.registry import load_properties
from statecheck.kernels import private
from statecheck.kernels.gpu_launch import CannotLaunch, GpuLaunch, launch_again
from statecheck.kernels.sanitizer.cells import CellSanitizer
from statecheck.workers.compute_sanitizer import replay
from statecheck.workers.compute_sanitizer.record import LaunchRecorder
from statecheck.workers.global_sanitizer import controls, memory
from statecheck.workers.global_sanitizer.judge import Opinion, ask
from subjects import load

PROPERTY = "the_kernel_that_stores_states_may_be_launched_as_documented"
KERNEL = "postprocess_mamba_fused_kernel"
FILE = "/opt/it/align.py"
WAW, RAW, WAR = (
    f"{one} race detected" for one in ("Write after write", "Read after write", "Write after read")
)


def assertion(message: str, line: int = 88, function: str = "", block: int = 3) -> str:
    """As CUDA prints it; the sanitizer names no function."""
    place = f"{FILE}:{line}: {function}: block: [{block},0,0], thread: [0,0,0]"
    return f"{place} Assertion `{message}` failed."


def log(*lines: str, case: str = "/a.json", kernel: str = KERNEL) -> str:
    return "\n".join([f"CASE 0 {case}", f"LAUNCH {kernel} /out/0.pickle", *lines])


@lru_cache
def recorded() -> Case:
    return LaunchRecorder(load("impl"), "cuda", 3).record(load_properties()[PROPERTY], 1).cases[0]


# Launches, written down and made again on a CPU.

AT = 0x100000000000
"""An address at which no process has anything."""


@triton.jit
def through_a_table_kernel(table_ptr, COUNT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Every program stores a byte where the table says, which one launch in a process finds in memory alone."""
    for at in range(COUNT):
        address = tl.load(table_ptr + at) + tl.program_id(0)
        tl.store(address.to(tl.pointer_type(tl.int8)), 1)


def written(
    kernel: Any, programs: int, signature: Mapping[str, str], content: bytes, **constants: int
) -> GpuLaunch:
    """A launch whose only argument beside constants is the address of `content`."""
    return GpuLaunch(
        kernel.fn.__module__,
        kernel.fn.__qualname__,
        signature,
        {(list(signature).index(name),): value for name, value in constants.items()},
        {},
        (programs, 1, 1),
        [AT if kind != "constexpr" else None for kind in signature.values()],
        [(AT, content)],
    )


def read(path: Path) -> Any:
    return pickle.loads(path.read_bytes())  # noqa: S301 - the test has written it


def opinion_on(launch: GpuLaunch | str, folder: Path) -> Opinion:
    path = folder / "0.pickle"
    path.write_bytes(pickle.dumps(launch))
    return ask("impl", str(path))


@pytest.mark.slow
def test_a_second_opinion_is_on_the_very_launch(tmp_path: Path) -> None:
    words, racing = controls.shared_word_control, controls.write_write_control
    said = opinion_on(written(words, 64, {"out_ptr": "*i8"}, bytes(64)), tmp_path)
    assert (said.reason, list(said.races), len(said.shared)) == ("", [], 1)
    said = opinion_on(written(racing, 64, {"out_ptr": "*i32"}, bytes(4)), tmp_path)
    assert [one.kernel for one in said.races] == ["write_write_control"]
    assert opinion_on(written(words, 1, {"out_ptr": "*i8"}, bytes(64)), tmp_path) == Opinion([], [])


@pytest.mark.slow
@pytest.mark.parametrize(("apart", "races"), [(4, 0), (1, 1)])
def test_addresses_in_memory_keep_their_meaning(tmp_path: Path, apart: int, races: int) -> None:
    """Two programs store bytes 0 and 1 behind each address: behind addresses that lie next to each other they meet."""
    table = struct.pack("<2q", AT + 64, AT + 64 + apart) + bytes(112)
    signature = {"table_ptr": "*i64", "COUNT": "constexpr"}
    said = opinion_on(written(through_a_table_kernel, 2, signature, table, COUNT=2), tmp_path)
    assert (said.reason, len(said.races)) == ("", races)


@pytest.mark.slow
def test_a_launch_that_was_not_written_down_has_no_second_opinion(tmp_path: Path) -> None:
    said = opinion_on("RuntimeError: no memory", tmp_path)
    assert said == Opinion([], [], "it was not written down: RuntimeError: no memory")


@pytest.mark.usefixtures("executed")
def test_a_launch_at_addresses_that_are_taken_is_not_made() -> None:
    taken = ctypes.create_string_buffer(64)
    launch = written(controls.shared_word_control, 64, {"out_ptr": "*i8"}, bytes(64))
    launch = replace(launch, memory=[(ctypes.addressof(taken), bytes(64))])
    with pytest.raises(CannotLaunch, match="are taken in a process on this CPU"):
        launch_again(launch, CellSanitizer(4))


@pytest.mark.usefixtures("executed")
def test_what_is_no_kernel_is_not_launched() -> None:
    launch = replace(written(controls.shared_word_control, 1, {}, b""), function="main")
    with pytest.raises(CannotLaunch, match="main is no kernel"):
        launch_again(launch, CellSanitizer(4))


def test_a_launch_is_written_down_with_addresses_for_tensors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kernel, tensor = controls.ordered_control, torch.zeros(1)
    kinds = {"parts_ptr": "*i32", "arrived_ptr": "*i32", "out_ptr": "*i32", "PROGRAMS": "constexpr"}
    source = argparse.Namespace(fn=kernel, signature=kinds, constants={(3,): 64}, attrs={})
    monkeypatch.setattr(memory, "_allocated", lambda: [(8, b"x")])
    assert memory.write_down(tmp_path / "x", (64, 1, 1), source, (tensor, 7, None, 64))
    found = read(tmp_path / "x")
    assert (found.function, found.constants) == ("ordered_control", {(3,): 64})
    assert (found.arguments, found.memory) == ([tensor.data_ptr(), 7, None, None], [(8, b"x")])


def test_a_launch_that_cannot_be_written_down_leaves_the_reason(tmp_path: Path) -> None:
    source = argparse.Namespace(
        fn=controls.shared_word_control, signature={"out_ptr": "*i8"}, constants={}, attrs={}
    )
    assert not memory.write_down(tmp_path / "x", (1, 1, 1), source, (object(),))
    assert read(tmp_path / "x") == "TypeError: an argument is of type object"


def test_only_the_launch_that_may_be_reported_next_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readable = iter([True, True, False])

    def write_down(path: Path, *_: object) -> bool:
        path.write_bytes(b"")
        return next(readable)

    monkeypatch.setattr(replay, "tell_launches", lambda tell: None)
    monkeypatch.setattr(replay, "write_down", write_down)
    launches = replay._Launches(tmp_path)
    with launches.of_case(5):
        for _ in range(3):
            launches._tell("kernel", (1, 1, 1), None, ())
        # The report was of the second launch, after which the memory could be read no more.
        assert sorted(path.name for path in tmp_path.iterdir()) == ["5-1.pickle", "5-2.pickle"]
        assert capsys.readouterr().out.splitlines()[1] == f"LAUNCH kernel {tmp_path / '5-1.pickle'}"
    assert list(tmp_path.iterdir()) == []


# Launches, announced.


def test_each_launch_is_told_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    seen_launches: list[object] = []

    class Launcher:
        def __init__(self, source: Any, metadata: Any) -> None:
            pass

        def __call__(self, *arguments: Any) -> None:
            seen_launches.append(arguments)

    monkeypatch.setattr(private, "CudaLauncher", Launcher)
    memory.tell_launches(
        lambda kernel, grid, source, arguments: seen_launches.append((kernel, grid, arguments))
    )
    source = argparse.Namespace(fn=argparse.Namespace(fn=recorded))
    before = ("stream", "function", "packed", None, None, None)
    Launcher(source, argparse.Namespace(name="mangled"))(3, 2, 1, *before, 7, 8)
    Launcher(object(), argparse.Namespace(name="plain"))(1, 1, 1, *before)
    assert seen_launches == [
        ("recorded", (3, 2, 1), (7, 8)),
        (3, 2, 1, *before, 7, 8),
        ("plain", (1, 1, 1), ()),
        (1, 1, 1, *before),
    ]


@pytest.mark.usefixtures("on_cpu")
def test_a_case_that_captures_graphs_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replay, "own_memory", contextlib.nullcontext)
    monkeypatch.setattr(replay, "tell_launches", lambda tell: None)
    launches = tmp_path / "launches"
    monkeypatch.setattr(replay, "NEED_CUDA", {one.function for one in recorded().calls})
    path = recorded().save(tmp_path / "case.json", durable=False)
    replay.main(["--device", "cpu", "--launches", str(launches), str(path)])
    assert "SKIPPED 0 it captures graphs" in capsys.readouterr().out
