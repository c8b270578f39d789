"""What a launch leaves must not depend on the order of its programs, and what does is named exactly."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from statecheck.kernels import launch as launches
from statecheck.kernels.orders.dependence import ORDERS, OrderDependence, every_order
from statecheck.kernels.orders.schedule import program_schedule
from statecheck.kernels.source.ir import NotUnderstoodError
from statecheck.kernels.source.tiles import AssertionFailedError
from statecheck.sanitizer import OutsideView, RaceBetweenPrograms, sanitize

pytestmark = pytest.mark.usefixtures("executed")

ONE_BY_ONE = ("reversed", "shuffled:1")


@triton.jit
def slots_kernel(out_ptr, count_ptr):  # type: ignore[no-untyped-def]
    """Every program puts its number into the next slot: no race, but another slot in each order."""
    tl.store(out_ptr + tl.atomic_add(count_ptr, 1), tl.program_id(0))


@triton.jit
def own_kernel(in_ptr, out_ptr):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    tl.store(out_ptr + program, tl.load(in_ptr + program))


@triton.jit
def increment_kernel(in_ptr):  # type: ignore[no-untyped-def]
    """Right only if each run starts from the same memory."""
    program = tl.program_id(0)
    tl.store(in_ptr + program, tl.load(in_ptr + program) + 1)


@triton.jit
def total_kernel(in_ptr, total_ptr):  # type: ignore[no-untyped-def]
    tl.atomic_add(total_ptr, tl.load(in_ptr + tl.program_id(0)))


@triton.jit
def last_wins_kernel(out_ptr):  # type: ignore[no-untyped-def]
    tl.atomic_xchg(out_ptr, tl.program_id(0))


@triton.jit
def first_wins_kernel(out_ptr):  # type: ignore[no-untyped-def]
    tl.atomic_cas(out_ptr, 0, tl.program_id(0) + 1)


@triton.jit
def apart_kernel(count_ptr, out_ptr):  # type: ignore[no-untyped-def]
    """What a program draws twice is apart if another one draws between."""
    first = tl.atomic_add(count_ptr, 1)
    tl.store(out_ptr + tl.program_id(0), tl.atomic_add(count_ptr, 1) - first)


@triton.jit
def racing_kernel(out_ptr):  # type: ignore[no-untyped-def]
    tl.store(out_ptr, tl.program_id(0))


@triton.jit
def last_to_finish_kernel(in_ptr, total_ptr, ticket_ptr, out_ptr):  # type: ignore[no-untyped-def]
    """The last program to finish stores the sum, and leaves the ticket as it was."""
    tl.atomic_add(total_ptr, tl.load(in_ptr + tl.program_id(0)))
    if tl.atomic_add(ticket_ptr, 1) == tl.num_programs(0) - 1:
        tl.store(out_ptr, tl.load(total_ptr))
        tl.store(ticket_ptr, 0)


@triton.jit(debug=True)
def first_fails_kernel(count_ptr, wrong):  # type: ignore[no-untyped-def]
    """Fails if this program is the first to arrive."""
    first = tl.atomic_add(count_ptr, 1) == 0
    tl.device_assert((first & (tl.program_id(0) == wrong)) == 0, "came too early")


@triton.jit(debug=True)
def always_fails_kernel(out_ptr):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    tl.store(out_ptr + program, 1)
    tl.device_assert(program < 0, "a program below 0")


@triton.jit
def far_kernel(count_ptr, out_ptr):  # type: ignore[no-untyped-def]
    """The first program writes where it should not, unless it comes first."""
    late = tl.atomic_add(count_ptr, 1) > 0
    if late & (tl.program_id(0) == 0):
        tl.store(out_ptr + 4, 1)


@triton.jit
def through_a_table_kernel(table_ptr, count_ptr):  # type: ignore[no-untyped-def]
    slot = tl.atomic_add(count_ptr, 1)
    tl.store(tl.load(table_ptr).to(tl.pointer_type(tl.int16)) + slot, tl.program_id(0).to(tl.int16))


@triton.jit
def masked_kernel(out_ptr, count_ptr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Column 1 of a row alone depends on the order."""
    slot, columns = tl.atomic_add(count_ptr, 1), tl.arange(0, SIZE)
    values = tl.where(columns == 1, slot, columns)
    tl.store(out_ptr + tl.program_id(0) * SIZE + columns, values.to(tl.int32), mask=columns < SIZE - 1)


@triton.jit
def only_interpreted_kernel(out_ptr, count_ptr):  # type: ignore[no-untyped-def]
    tl.store(out_ptr + tl.atomic_add(count_ptr, 1), tl.program_id(0))


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


def launch(kernel: Any, *arguments: Any, orders: tuple[str, ...] = ORDERS, **constexprs: Any) -> None:
    with every_order(orders):
        kernel[(4,)](*arguments, **constexprs)


def dependence(kernel: Any, *arguments: Any, orders: tuple[str, ...] = ONE_BY_ONE) -> OrderDependence:
    with pytest.raises(OrderDependence) as caught:
        launch(kernel, *arguments, orders=orders)
    return caught.value


def test_a_slot_handed_out_by_an_atomic_depends_on_the_order() -> None:
    found = dependence(slots_kernel, zeros(4), zeros(1), orders=("reversed",))
    assert found.other is not None
    assert (found.access.tensor, found.access.index) == ("out_ptr", (0,))
    assert (found.access.program, found.other.program) == ((0, 0, 0), (3, 0, 0))
    assert found.access.place.startswith("test_dependence.py:")
    assert str(found) == (
        "element [0] of `out_ptr` depends on the order of programs: it is 0 in row-major order, where program "
        f"(0, 0, 0) of slots_kernel stores it last at {found.access.place}, and 3 in the order reversed, where "
        f"program (3, 0, 0) of slots_kernel stores it last at {found.access.place}"
    )


INT16 = torch.zeros(8, dtype=torch.int16)
DEPEND: dict[str, tuple[Any, Callable[[], tuple[Any, ...]], str, str]] = {
    "the last wins": (last_wins_kernel, lambda: (zeros(1),), "3", "0"),
    "the first wins": (first_wins_kernel, lambda: (zeros(1),), "1", "4"),
    "a sum of floats": (
        total_kernel, lambda: (torch.tensor([1.0, 2.0**24, -(2.0**24), 0.0]), torch.zeros(1)), "0.0", "1.0",
    ),
    "a race": (racing_kernel, lambda: (zeros(1),), "3", "0"),
    "slots of a strided view": (slots_kernel, lambda: (INT16[2:6], zeros(1)), "0", "3"),
}  # fmt: skip
"""What the first element is in row-major order, and in the reversed one."""


@pytest.mark.parametrize("name", DEPEND)
def test_what_depends_on_the_order_is_told_with_both_values(name: str) -> None:
    kernel, arguments, plain, reversed_ = DEPEND[name]
    found = dependence(kernel, *arguments(), orders=("reversed",))
    assert found.access.index == (0,)
    assert f"it is {plain} in row-major order" in str(found)
    assert f"{reversed_} in the order reversed" in str(found)


@pytest.mark.parametrize("order", [*ONE_BY_ONE, "interleaved:1", "interleaved:2"])
def test_one_order_is_enough_to_see_it(order: str) -> None:
    assert f"in the order {order}" in str(dependence(slots_kernel, zeros(4), zeros(1), orders=(order,)))


def test_what_a_few_interleavings_show_is_found_among_all_of_them() -> None:
    apart = zeros(2)
    words = r"it is 1 in row-major order, .*, and 3 in the order switches:1>1,"
    with pytest.raises(OrderDependence, match=words), every_order():
        apart_kernel[(2,)](zeros(1), apart)
    assert apart.tolist() == [1, 1]


def numbers(size: int = 4) -> torch.Tensor:
    return torch.arange(size, dtype=torch.int32)


RIGHT: dict[str, tuple[Any, Callable[[], tuple[Any, ...]], list[int]]] = {
    "its own elements": (own_kernel, lambda: (numbers(), zeros(4)), [0, 1, 2, 3]),
    "an update of its own": (increment_kernel, lambda: (numbers(6),), [1, 2, 3, 4, 4, 5]),
    "a sum of integers": (total_kernel, lambda: (numbers(), zeros(1)), [6]),
    "a sum by the last to finish": (
        last_to_finish_kernel, lambda: (numbers(), zeros(1), zeros(1), zeros(1)), [6],
    ),
}  # fmt: skip
"""What the last tensor holds after one launch."""


@pytest.mark.parametrize("contexts", [(), (sanitize, every_order), (every_order, sanitize)], ids=len)
@pytest.mark.parametrize("name", RIGHT)
def test_a_kernel_that_is_right_is_left_in_peace(name: str, contexts: tuple[Any, ...]) -> None:
    kernel, arguments, left = RIGHT[name]
    given = arguments()
    with contextlib.ExitStack() as stack:
        for context in contexts or (every_order,):
            stack.enter_context(context())
        kernel[(4,)](*given)
    assert given[-1].tolist() == left


def test_launches_that_follow_each_other_each_have_their_own_memory() -> None:
    updated = numbers()
    with every_order():
        for _ in range(3):
            increment_kernel[(4,)](updated)
    assert updated.tolist() == [3, 4, 5, 6]


def test_in_the_end_memory_holds_what_row_major_order_has_left() -> None:
    out, count = zeros(6), zeros(1)
    dependence(slots_kernel, out, count)
    assert (out.tolist(), count.tolist()) == ([0, 1, 2, 3, 0, 0], [4])


def test_the_element_is_named_and_not_its_neighbours() -> None:
    out = zeros(4, 4)
    with pytest.raises(OrderDependence) as caught:
        launch(masked_kernel, out, zeros(1), orders=("reversed",), SIZE=4)
    assert caught.value.access.index == (0, 1)
    assert out.tolist() == [[0, program, 2, 0] for program in range(4)]


def test_memory_reached_through_a_table_is_named_if_it_is_registered() -> None:
    state = torch.zeros(4, dtype=torch.int16)
    table = torch.tensor([state.data_ptr()])
    with sanitize() as watch, every_order(("reversed",), watch):
        watch.register(state, "state")
        with pytest.raises(OrderDependence, match=r"element \[0\] of `state` .* it is 0 .* and 3"):
            through_a_table_kernel[(4,)](table, zeros(1))


def test_memory_without_a_name_is_named_by_its_address() -> None:
    state = torch.zeros(4, dtype=torch.int16)
    found = dependence(through_a_table_kernel, torch.tensor([state.data_ptr()]), zeros(1))
    assert f"1 byte at address {state.data_ptr():#x} depends" in str(found)


def test_a_failure_in_one_order_only_is_a_dependence() -> None:
    found = dependence(first_fails_kernel, zeros(1), 3)
    assert "in the order reversed it fails at test_dependence.py:" in str(found)
    assert "in row-major order it does not" in str(found)
    assert found.access.program == (3, 0, 0)


def test_a_failure_in_row_major_order_only_is_a_dependence() -> None:
    count = zeros(1)
    found = dependence(first_fails_kernel, count, 0)
    assert "in row-major order it fails at" in str(found)
    assert count.tolist() == [1]


def test_a_failure_in_every_order_is_what_it_was() -> None:
    out = zeros(4)
    with pytest.raises(AssertionFailedError):
        launch(always_fails_kernel, out)
    assert out.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("contexts", [(sanitize, every_order), (every_order, sanitize)])
def test_a_race_comes_first_where_the_sanitizer_is_around_or_inside(contexts: tuple[Any, ...]) -> None:
    with pytest.raises(RaceBetweenPrograms), contexts[0](), contexts[1]():
        racing_kernel[(4,)](zeros(1))


def test_what_the_sanitizer_finds_in_another_order_stays_what_it_is() -> None:
    out, count = zeros(8), zeros(1)
    with pytest.raises(OutsideView) as caught, sanitize(), every_order():
        far_kernel[(4,)](count, out[:4])
    assert caught.value.__notes__ == ["In the order reversed; in row-major order nothing was found."]
    assert (count.tolist(), out.tolist()) == ([4], [0] * 8)


def test_a_single_program_runs_once() -> None:
    out, count = zeros(1), zeros(1)
    with every_order(("reversed",)):
        slots_kernel[(1,)](out, count)
    assert count.tolist() == [1]


@pytest.mark.parametrize("schedule", ["reversed", "shuffled:3", "interleaved:1"])
@pytest.mark.parametrize("around", [True, False])
def test_a_schedule_around_or_inside_changes_nothing(schedule: str, around: bool) -> None:
    contexts = [program_schedule(schedule), every_order()]
    with contextlib.ExitStack() as both:
        for context in contexts if around else contexts[::-1]:
            both.enter_context(context)
        out = zeros(20)
        own_kernel[(20,)](numbers(20), out)
        first_fails_kernel[(20,)](zeros(1), 20)
    assert out.tolist() == list(range(20))


@pytest.mark.parametrize("around", [True, False])
def test_row_major_order_is_that_whatever_schedule_is_around(around: bool) -> None:
    contexts = [program_schedule("reversed"), every_order(("shuffled:1",))]
    out = zeros(4)
    outer, inner = contexts if around else contexts[::-1]
    with outer, inner, pytest.raises(OrderDependence, match="it is 1 in row-major order"):
        slots_kernel[(4,)](out, zeros(1))
    assert out.tolist() == [0, 1, 2, 3]


def test_afterwards_launches_are_made_as_before() -> None:
    state = launches.STATE
    before = state.memory, state.runner, state.around
    dependence(slots_kernel, zeros(4), zeros(1))
    launch(own_kernel, zeros(4), zeros(4))
    assert (state.memory, state.runner, state.around) == before


def test_a_launch_that_is_interpreted_is_made_once_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise NotUnderstoodError("something new")

    monkeypatch.setattr(launches, "compiled", refuse)
    out, count = zeros(4), zeros(1)
    with pytest.warns(UserWarning, match=r"^only_interpreted_kernel ran in one order only: something new"):
        launch(only_interpreted_kernel, out, count, orders=("reversed",))
    assert (out.tolist(), count.tolist()) == ([0, 1, 2, 3], [4])


def test_hooks_before_a_run_are_called_once() -> None:
    called: list[int] = []
    hooks = own_kernel.pre_run_hooks
    own_kernel.add_pre_run_hook(lambda *_, **__: called.append(1))
    try:
        launch(own_kernel, zeros(4), zeros(4))
    finally:
        hooks.clear()
    assert called == [1]


def test_a_dependence_travels_between_processes() -> None:
    found = dependence(slots_kernel, zeros(4), zeros(1))
    again = pickle.loads(pickle.dumps(found))  # noqa: S301 # its own
    assert (str(again), again.access, again.other) == (str(found), found.access, found.other)


def test_an_unknown_order_is_refused() -> None:
    with (
        pytest.raises(ValueError, match=r"^schedule = 'sideways', but should be"),
        every_order(("sideways",)),
    ):
        pass
