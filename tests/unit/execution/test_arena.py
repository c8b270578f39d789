"""Tensors that lie in one piece of memory: everything is seen that is where each has memory of its own."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from statecheck.case.values import (
    Let,
    Name,
    Outcome,
    Overwrite,
    Returned,
    Step,
    Tensor,
    View,
    boolean,
    call,
    int32,
    int64,
    record,
)
from statecheck.execution.in_process import InProcess
from statecheck.execution.memory import LARGEST, Arena
from subjects import Subject
from tests.helpers.cases import toy

STRAY = 7


@dataclass
class MambaCopySpec:
    """Its address is described relative to the arguments."""

    start_addr: int


def poke(x: torch.Tensor, distance: int, *others: Any) -> None:  # noqa: ARG001
    ctypes.memset(x.data_ptr() + distance, STRAY, 1)


def poke_and_raise(x: torch.Tensor, distance: int) -> None:
    poke(x, distance)
    raise ValueError("x = poked, but should not be")


def add(x: torch.Tensor, amount: Any) -> torch.Tensor:
    x += amount
    return x


def total(*tensors: torch.Tensor) -> int:
    return sum(int(tensor.sum().item()) for tensor in tensors)


def parts(x: torch.Tensor) -> dict[str, Any]:
    return {
        "same": x,
        "tail": x[1:],
        "copy": x.clone(),
        "none": x[:0],
        "spec": MambaCopySpec(x[1:].data_ptr()),
    }


def second(x: torch.Tensor) -> MambaCopySpec:
    return MambaCopySpec(x[1:].data_ptr())


class Holder:
    """An object that keeps what it was made of."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x
        x += 1


def subject() -> Subject:
    functions = (poke, poke_and_raise, add, total, parts, second, Holder)
    return toy(**{function.__name__: function for function in functions})


def a_port(arena: Arena | bool) -> InProcess:
    port = InProcess(subject(), "cpu", arena=bool(arena))
    if isinstance(arena, Arena):
        port.allocator.arena = arena
    return port


def outcomes(port: InProcess, *steps: Step) -> list[Outcome | None]:
    port.begin()
    return [port.execute(step) for step in steps]


POOL = Let("pool", Tensor("uint8", (16,), bytes(range(16))))
WORD = Let("word", View("pool", "int32", (2,), strides=(2,), offset=1))
X, Y = Let("x", int32([1, 2])), Let("y", int32([3, 4]))
SEEN: dict[str, tuple[Step, ...]] = {
    "read": (X, Y, call("total", x=Name("x"), y=Name("y"))),
    "observed write": (X, call("add", x=Name("x"), amount=5, observes=("x",))),
    "two writes": (
        X,
        call("add", x=Name("x"), amount=5, observes=("x",)),
        call("add", x=Name("x"), amount=6, observes=("x",)),
        call("total", x=Name("x")),
    ),
    "unobserved write": (X, Y, call("add", x=Name("x"), amount=Name("y"), observes=("y",))),
    "nothing written": (X, call("add", x=Name("x"), amount=0)),
    "write and raise": (X, call("poke_and_raise", x=Name("x"), distance=0)),
    "write of an argument without a name": (call("poke", x=int64([1, 2]), distance=3),),
    "view": (POOL, WORD, call("add", x=Name("word"), amount=5, observes=("word",))),
    "view seen in its pool": (POOL, WORD, call("add", x=Name("word"), amount=5, observes=("pool",))),
    "beside the view": (POOL, WORD, call("poke", x=Name("word"), distance=4, observes=("word",))),
    "view overwritten": (
        POOL,
        WORD,
        Overwrite("word", (-1, -2)),
        call("total", x=Name("word"), observes=("word", "pool")),
    ),
    "pool overwritten": (
        POOL,
        WORD,
        Overwrite("pool", (9,) * 16),
        call("total", x=Name("word"), observes=("word",)),
    ),
    "overwritten after a write": (
        POOL,
        WORD,
        call("add", x=Name("pool"), amount=1, observes=("pool",)),
        Overwrite("word", (-1, -2)),
        call("total", x=Name("pool"), observes=("pool",)),
    ),
    "overwritten with bytes": (X, Overwrite("x", b"abcdefgh"), call("total", x=Name("x"), observes=("x",))),
    "allocated after a write": (
        X,
        call("add", x=Name("x"), amount=5, observes=("x",)),
        Y,
        call("total", x=Name("x"), y=Name("y"), observes=("x", "y")),
    ),
    "results": (X, call("parts", x=Name("x"))),
    "object": (
        Let("made", record("Holder", x=int32([1, 2]))),
        call("total", x=Name("made"), observes=("made.x",)),
    ),
    "constructed": (call("Holder", x=int32([1, 2]), bind="made"),),
    "strides and an offset": (
        call("total", x=Tensor("int32", (2, 2), tuple(range(9)), (3, 2), 1), y=int64([5])),
    ),
    "dtypes": (
        Let("flags", boolean([True, False])),
        POOL,
        Let("small", View("pool", "float16", (2,), offset=3)),
        call("total", x=Name("flags"), y=Name("small"), observes=("flags", "small", "pool")),
    ),
    "no contents": (Let("free", Tensor("uint8", (100,), None)), call("poke", x=Name("free"), distance=50)),
    "before no contents": (
        Let("free", Tensor("uint8", (100,), None)),
        call("poke", x=Name("free"), distance=-1),
    ),
    "empty": (call("total", x=int32([]), y=int32([1])),),
    "large": (
        Let("large", Tensor("uint8", (LARGEST,), bytes(LARGEST))),
        X,
        call("poke", x=Name("large"), distance=LARGEST - 1),
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_outcomes_are_those_of_tensors_with_memory_of_their_own(name: str) -> None:
    assert outcomes(a_port(True), *SEEN[name]) == outcomes(a_port(False), *SEEN[name])


@pytest.mark.parametrize("name", SEEN)
def test_a_tensor_that_does_not_fit_has_memory_of_its_own(name: str) -> None:
    """The first tensor of an example fits, and no other one."""
    assert outcomes(a_port(Arena("cpu", 512)), *SEEN[name]) == outcomes(a_port(False), *SEEN[name])


@pytest.mark.parametrize("distance", [-64, -1, 8, 71])
def test_a_write_next_to_a_tensor_is_seen_and_of_an_observed_one_with_the_bytes(distance: int) -> None:
    beside = (X, Y, call("poke", x=Name("x"), distance=distance, y=Name("y"), observes=("y",)))
    assert outcomes(a_port(True), *beside)[-1] == Returned(None, ("x",), (("y", int32([3, 4])),))
    steps = (X, call("poke", x=Name("x"), distance=distance, observes=("x",)))
    found = outcomes(a_port(True), *steps)
    assert found == outcomes(a_port(False), *steps)
    assert isinstance(found[-1], Returned)
    damaged = found[-1].after[0][1]
    assert damaged.type == "Damaged"
    assert (damaged["before"] + damaged["after"]).count(bytes([STRAY])) == 1


@pytest.mark.parametrize("distance", [512 - 64, 512, 512 + 7, 512 + 8])
def test_a_write_that_reaches_the_next_tensor_is_seen_there(distance: int) -> None:
    steps = (X, Y, call("poke", x=Name("x"), distance=distance, y=Name("y"), observes=("x",)))
    (found,) = filter(None, outcomes(a_port(True), *steps))
    assert found == Returned(None, ("y",), (("x", int32([1, 2])),))


def test_a_write_into_a_named_tensor_that_a_later_call_is_handed_is_seen_then() -> None:
    steps = (X, Y, call("poke", x=Name("x"), distance=512), call("total", y=Name("y")))
    *_, first, later = outcomes(a_port(True), *steps)
    assert isinstance(first, Returned)
    assert isinstance(later, Returned)
    assert (first.changed, later.changed) == ((), ("y",))


def test_memory_damaged_by_an_example_is_whole_in_the_next_example() -> None:
    port = a_port(True)
    outcomes(port, X, Y, call("poke", x=Name("x"), distance=-1, y=Name("y")))
    (found,) = filter(None, outcomes(port, X, Y, call("total", x=Name("x"), y=Name("y"))))
    assert found == Returned(10)


def test_tensors_of_the_host_stay_outside() -> None:
    port = a_port(True)
    outcomes(port, Let("x", int32([1, 2]).on_host()), call("total", x=Name("x")))
    arena = port.allocator.arena
    assert arena is not None
    assert arena._used == 0


def test_memory_is_handed_out_once_an_example() -> None:
    arena = Arena("cpu", 4096)
    spans = [arena.reserve(nbytes) for nbytes in (1, 512, 513, 128)]
    assert spans == [0, 512, 1024, 2048]
    arena.begin()
    assert arena.reserve(4096) == 0


@pytest.mark.parametrize(("nbytes", "room"), [(LARGEST + 1, 4 * LARGEST), (513, 512), (LARGEST, LARGEST - 1)])
def test_a_tensor_that_is_too_large_gets_no_memory_of_the_arena(nbytes: int, room: int) -> None:
    arena = Arena("cpu", room)
    assert arena.reserve(nbytes) is None
    assert arena.reserve(8) == 0


def test_an_image_is_fetched_once_with_the_wait_for_a_call_or_when_it_is_read() -> None:
    arena = Arena("cpu", 1024)
    assert arena.reserve(16) == 0
    memory, (image, _) = arena.memory(0, 16), arena.image_at(0, 16)
    arena.flush()
    memory[5] = 9
    shown = arena.imaged(memory[4:6])
    assert shown is not None
    assert shown.tolist() == [0, 9]
    arena.flush()
    memory[5] = 8
    with arena.fetching():
        assert image[5] == 8
    # Nothing has run since, so that nothing has to be fetched again.
    memory[5] = 7
    arena.pull()
    assert image[5] == 8


def test_a_tensor_that_the_arena_did_not_make_has_no_image() -> None:
    arena = Arena("cpu", 1024)
    assert arena.reserve(16) == 0
    assert arena.imaged(torch.zeros(4)) is None
