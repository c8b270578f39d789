"""The execution port: memory around tensors, names, identities, addresses, placement and errors."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from statecheck.case.values import (
    CANARY,
    Address,
    Attribute,
    BufferMaker,
    Call,
    Device,
    DType,
    Fake,
    Function,
    Let,
    Name,
    NumPy,
    Outcome,
    Overwrite,
    Raised,
    Record,
    Returned,
    Rows,
    SameAs,
    Step,
    Tensor,
    Value,
    View,
    call,
    int32,
    int64,
    record,
)
from statecheck.execution.executors import choose_device
from statecheck.execution.in_process import InProcess
from statecheck.execution.memory import GUARD_BYTES
from statecheck.kernels import triton_mode
from subjects import LAYOUT_VARIABLE
from tests.helpers.cases import toy

GAPS = Tensor("int32", (3,), (9, 1, 9, 2, 9, 3, 9), strides=(2,), offset=1)


@dataclass
class MambaCopySpec:
    """Has the name and the fields of the documents' class, whose `start_addr` is an address."""

    start_addr: Any
    num_elements: int


@dataclass
class Batch:
    """A class of the subject, as records name it."""

    lens: Any
    rows: int = 0


@pytest.fixture
def run(device: str) -> Callable[..., Outcome]:
    """Runs steps on a toy subject with the given functions; the outcome of the last step."""

    def on_toy(*steps: Step, **names: Any) -> Outcome:
        port = InProcess(toy(**names), device)
        port.begin()
        outcomes = [port.execute(step) for step in steps]
        assert outcomes[-1] is not None
        return outcomes[-1]

    return on_toy


Run = Callable[..., Outcome]


def around(x: torch.Tensor, elements: int) -> torch.Tensor:
    """The element that lies `elements` before or after the first one of `x`."""
    return x.as_strided((1,), (1,), x.storage_offset() + elements)


def ones(dtype: str, **changes: Any) -> Tensor:
    return Tensor(dtype, (3,), (1, 1, 1), **changes)


def zero(*tensors: torch.Tensor) -> None:
    for tensor in tensors:
        tensor.zero_()


def beside(where: int) -> Callable[[torch.Tensor], None]:
    return lambda x: zero(around(x, where))


FREE = Tensor("uint8", (3,), None)
PAGE = Let("pool", Tensor("uint8", (12,), None)), Let("page", View("pool", "uint8", (12,)))
BATCH = record("Batch", lens=int32([1, 2]))
FAR_END = GUARD_BYTES // 4
RAW = bytes(range(12))
POOL = Let("pool", Tensor("uint8", (12,), RAW))
OBSERVED = Let("a", int32([1])), call("f", x=Name("a"), observes=("a",))
Write = tuple[tuple[Step, ...], Callable[..., None], tuple[str, ...]]
WRITES: dict[str, Write] = {
    **{
        f"{where} of {dtype}": ((call("f", x=ones(dtype)),), beside(where), ("x",))
        for dtype in ("bool", "int8", "int32", "int64")
        for where in (-1, 3)
    },
    **{
        f"{where} of a tensor, {tensor}": ((call("f", x=tensor),), beside(where), ("x",))
        for tensor, places in (
            (ones("int32"), (-FAR_END, 3 + FAR_END - 1)),
            (FREE, (-GUARD_BYTES, -1, 3, 3 + GUARD_BYTES - 1)),
            (GAPS, (-1, 1, 3, 5)),
        )
        for where in places
    },
    "before a pool": ((*PAGE, call("f", x=Name("page"))), beside(-1), ("x",)),
    "behind a pool": ((*PAGE, call("f", x=Name("page"))), beside(12), ("x",)),
    "memory without contents": ((call("f", x=FREE),), zero, ()),
    "the tensor": ((call("f", x=GAPS, y=GAPS),), lambda x, y: zero(y), ("y",)),
    "nothing": ((call("f", x=GAPS, y=ones("bool")),), lambda x, y: None, ()),
    "a field": ((call("f", batch=BATCH),), lambda batch: zero(batch.lens), ("batch.lens",)),
    "a field of a named record": (
        (Let("b", BATCH), call("f", batch=Name("b"))),
        lambda batch: zero(batch.lens),
        ("batch.lens",),
    ),
    "a named tensor": ((Let("a", int32([1])), call("f", x=Name("a"))), zero, ("x",)),
    "an item of a dict": ((call("f", x={"a": int32([1])}),), lambda x: zero(x["a"]), ("x['a']",)),
    "by an earlier call": (
        (Let("a", int32([1])), call("f", x=Name("a")), call("g", x=Name("a"))), zero, ("x",),
    ),
    "through a view": (
        (POOL, call("f", x=[View("pool", "int8", (1,)), View("pool", "int8", (1,), offset=1)])),
        lambda x: zero(x[1]), ("x[0]",),
    ),
    "after an overwriting": (
        (POOL, Let("v", View("pool", "int8", (1,))), Overwrite("v", (5,)), call("f", x=Name("pool"))),
        lambda x: zero(x[1:2]), ("x",),
    ),
    "what is not observed": (
        (Let("a", int32([1])), Let("b", int32([1])), call("f", x=Name("a"), y=Name("b"), observes=("a",))),
        zero, ("y",),
    ),
    "what was observed": ((*OBSERVED, call("g", x=Name("a"))), zero, ()),
    "what was observed, again": ((*OBSERVED, call("h", x=Name("a"))), zero, ("x",)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_caught_under_the_argument_that_it_is_beside(run: Run, name: str) -> None:
    steps, f, changed = WRITES[name]
    assert run(*steps, f=f, g=lambda x: None, h=lambda x: x.add_(1) and None).changed == changed


@pytest.mark.parametrize(
    "tensor",
    [
        int32([]),
        GAPS,
        int64([[1, 2], [3, 4]]),
        Tensor("bool", (2,), (0, 1)),
        Tensor("int64", (), (2**62,)),
        Tensor("int32", (2, 2), (1, 2, 3, 4), strides=(1, 2)),
        Tensor("int32", (0, 3), (), strides=(5, 1)),
    ],
    ids=repr,
)
def test_a_tensor_reaches_the_subject_as_it_is_described(run: Run, tensor: Tensor) -> None:
    outcome = run(call("f", x=tensor), f=lambda x: (x.clone(), x.stride()))
    strides = tensor.strides or tensor.contiguous_strides
    assert outcome == Returned((tensor.dense(), strides))


def test_dtypes_devices_containers_and_records_reach_the_subject_as_what_they_are(
    run: Run, device: str
) -> None:
    def f(dtype: Any, where: Any, many: Any, batch: Any) -> Any:
        return dtype is torch.int8, where == torch.device(device), many, isinstance(batch, Batch), batch.rows

    step = call("f", dtype=DType("int8"), where=Device(), many=[(1, None)], batch=record("Batch", lens=0))
    assert run(step, f=f, Batch=Batch) == Returned((True, True, [(1, None)], True, 0))


def test_overwriting_changes_the_very_object_in_place(run: Run) -> None:
    seen: list[torch.Tensor] = []

    def f(x: torch.Tensor) -> list[int]:
        seen.append(x)
        return x.tolist()

    steps = Let("a", int32([1, 2])), call("f", x=Name("a")), Overwrite("a", (3, 4)), call("f", x=Name("a"))
    assert run(*steps, f=f) == Returned([3, 4])
    assert seen[0] is seen[1]


def test_the_next_example_knows_no_names(device: str) -> None:
    port = InProcess(toy(f=lambda x: x), device)
    port.execute(Let("a", int32([1])))
    port.begin()
    with pytest.raises(KeyError, match="a"):
        port.execute(call("f", x=Name("a")))


def pair() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([1]), torch.tensor([2])


@pytest.mark.parametrize(("argument", "path"), [("batch", "batch.lens"), ("self", "lens")])
def test_a_result_that_is_a_field_of_an_argument_is_told_by_the_field(
    run: Run, argument: str, path: str
) -> None:
    named = Let("b", record("Batch", lens=int32([1])))
    direct = Call("f", ((argument, record("Batch", lens=int32([1]))),))
    through_name = Call("f", ((argument, Name("b")),))
    outcomes = [run(named, step, f=lambda batch: batch.lens) for step in (direct, through_name)]
    assert outcomes == [Returned(SameAs(path))] * 2


def test_a_tensor_that_is_returned_twice_is_told_by_its_first_place(run: Run) -> None:
    def f() -> Any:
        batch_ptr, other = pair()
        return {8: {"batch_ptr": batch_ptr, "n": 1}}, batch_ptr, [other, Batch(other)]

    outcome = run(call("f"), f=f)
    assert isinstance(outcome, Returned)
    assert outcome.value[1:] == (
        SameAs("result[0][8]['batch_ptr']"),
        [outcome.value[2][0], record("Batch", lens=SameAs("result[2][0]"), rows=0)],
    )


@pytest.mark.parametrize(
    ("state", "element"),
    [(Tensor("float32", (4, 3), None), 7), (Tensor("int8", (2, 3), None, strides=(2**20, 1)), 2**20 + 1)],
    ids=["dense", "strided"],
)
def test_an_address_is_told_relative_to_the_argument_that_it_points_into(
    run: Run, state: Tensor, element: int
) -> None:
    def f(_: torch.Tensor, state: torch.Tensor) -> MambaCopySpec:
        return MambaCopySpec(state.data_ptr() + element * state.element_size(), 2)

    outcome = run(call("f", other=state, state=state), f=f)
    size = 4 if state.dtype == "float32" else 1
    address = Address("state", element * size)
    assert outcome == Returned(record("MambaCopySpec", start_addr=address, num_elements=2))


def test_host_tensors_stay_on_the_host_and_the_others_are_on_the_device(run: Run, device: str) -> None:
    step = call("f", x=int32([1]), y=int32([1]).on_host())
    assert run(step, f=lambda x, y: (x.device.type, y.device.type)) == Returned((device, "cpu"))


def test_the_place_of_a_result_is_told_where_host_and_device_differ(run: Run, device: str) -> None:
    outcome = run(call("f"), f=lambda: torch.tensor([1]))
    assert isinstance(outcome, Returned)
    assert outcome.value.on == ("device" if device == "cpu" else "host")


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (call("f", x=Name("unbound")), KeyError),
        (call("f", x=Tensor("int33", (1,), (1,))), AttributeError),
        (call("f", x=Tensor("int32", (2,), (1,), strides=(999,))), RuntimeError),
        (call("missing"), AttributeError),
        (Overwrite("unbound", (1,)), KeyError),
    ],
    ids=repr,
)
def test_an_error_of_the_harness_is_not_taken_for_one_of_the_subject(
    run: Run, step: Step, error: type[Exception]
) -> None:
    with pytest.raises(error):
        run(step, f=lambda x: None)


def layout_of_the_environment() -> dict[str, Any]:
    """A subject that remembers the layout as the documents' function does."""

    @lru_cache
    def get_conv_state_layout() -> str:
        return os.environ.get(LAYOUT_VARIABLE, "SD")

    return {"get_conv_state_layout": get_conv_state_layout, "shell": lambda: os.environ.get("SHELL_OF_TOYS")}


def layout_call(layout: str | None) -> Call:
    return call("get_conv_state_layout", environment={LAYOUT_VARIABLE: layout} if layout else {})


@pytest.fixture
def unset_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the variable back afterwards: a subject leaves it as the last call wanted it."""
    monkeypatch.setenv(LAYOUT_VARIABLE, "SD")


@pytest.mark.usefixtures("unset_layout")
def test_the_environment_switches_the_layout_and_forgets_the_remembered_one(device: str) -> None:
    port = InProcess(toy(**layout_of_the_environment()), device)
    wanted = [None, "DS", "DS", None, "DS", "SD", "DS"]
    found = [port.execute(layout_call(layout)) for layout in wanted]
    assert found == [Returned(layout or "SD") for layout in wanted]


@pytest.mark.usefixtures("unset_layout")
def test_two_subjects_in_one_process_have_the_environment_of_their_calls(device: str) -> None:
    def variable() -> str | None:
        return os.environ.get(LAYOUT_VARIABLE)

    first, other = (InProcess(toy(variable=variable), device) for _ in range(2))
    turns = [(first, "DS"), (other, "DS"), (other, None), (first, "DS"), (other, None), (first, None)]
    for port, layout in turns:
        step = call("variable", environment={LAYOUT_VARIABLE: layout} if layout else {})
        assert port.execute(step) == Returned(layout)


def test_waiting_for_the_device_is_an_exception_only_where_it_is_refused(device: str) -> None:
    port = InProcess(toy(f=lambda x: x.item()), device)
    step = call("f", x=int32([4]))
    with port.waiting_refused():
        refused = port.execute(step)
    assert isinstance(refused, Raised) is (device == "cuda")
    assert port.execute(step) == Returned(4)


@pytest.mark.parametrize(
    ("there", "executes", "device"), [(True, False, "cuda"), (True, True, "cpu"), (False, True, "cpu")]
)
def test_auto_is_the_gpu_where_there_is_one_and_kernels_are_not_executed(
    monkeypatch: pytest.MonkeyPatch, there: bool, executes: bool, device: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(triton_mode, "executes", lambda: executes)
    assert choose_device("auto") == device


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_is_refused_where_there_is_no_gpu() -> None:
    with pytest.raises(ValueError, match=r"^device = 'cuda', but should be cpu or auto"):
        choose_device("cuda")


HUGE = Tensor("uint8", (2**33,), None)
FAR = View("huge", "int32", (2,), offset=2**30)


def observe(
    run: Run, *lets: Step, f: Callable[..., Any] = lambda *_: None, **arguments: Value
) -> dict[str, Value]:
    """The observed contents of everything that a `Let` binds, after a call of `f`."""
    names = [step.name for step in lets if isinstance(step, Let)]
    outcome = run(*lets, call("f", observes=names, **arguments), f=f)
    assert not outcome.changed
    return dict(outcome.after)


def raw(data: bytes) -> Tensor:
    return Tensor("uint8", (len(data),), data)


@pytest.mark.parametrize("offset", [3, -1])
def test_a_view_that_leaves_its_storage_is_an_error_of_the_case(run: Run, offset: int) -> None:
    with pytest.raises((ValueError, RuntimeError)):
        run(POOL, Let("v", View("pool", "int32", (1,), offset=offset)), f=lambda: None)


@pytest.mark.parametrize("elements", [(-2, 7), b"\xfe\xff\x07\x00"], ids=["integers", "bytes"])
def test_overwriting_a_view_leaves_everything_else(run: Run, elements: tuple[int, ...] | bytes) -> None:
    view = Let("v", View("pool", "int16", (2,), strides=(2,), offset=1))
    after = observe(run, POOL, view, Overwrite("v", elements))
    assert after == {
        "pool": raw(b"\0\1\xfe\xff\4\5\7\0\x08\x09\x0a\x0b"),
        "v": Tensor("int16", (2,), (-2, 7)),
    }


def test_overwriting_a_view_of_floats_writes_their_bytes(run: Run) -> None:
    # A signalling NaN: a conversion anywhere would make it a quiet one.
    view, nan = Let("v", View("pool", "float32", (1,))), b"\1\0\x80\x7f"
    assert observe(run, POOL, view, Overwrite("v", nan)) == {"pool": raw(nan + RAW[4:]), "v": raw(nan)}


def test_overwriting_with_too_few_elements_is_an_error_of_the_case(run: Run) -> None:
    with pytest.raises(AssertionError, match="size"):
        run(POOL, Overwrite("pool", (1,)), f=lambda: None)


def test_observed_memory_may_be_written_to_and_is_told_whole(run: Run) -> None:
    def f(x: torch.Tensor, d: dict[str, int], items: list[int], host: torch.Tensor) -> None:
        x.zero_()
        d["b"] = 2
        items.clear()
        host[0] = 8

    lets = Let("x", GAPS), Let("d", {"a": 1}), Let("items", [1]), Let("host", int32([1, 2]).on_host())
    after = observe(run, *lets, f=f, **{name: Name(name) for name in ("x", "d", "items", "host")})
    assert after["x"] == int32([9, 0, 9, 0, 9, 0, 9])
    assert (after["d"], after["items"], after["host"].elements) == ({"a": 1, "b": 2}, [], (8, 2))


@pytest.mark.parametrize(
    ("where", "side", "at"), [(-2, "before", -2), (3, "after", 0)], ids=["before", "behind"]
)
def test_damage_around_observed_memory_is_told(run: Run, where: int, side: str, at: int) -> None:
    steps = Let("a", ones("uint8")), call("f", x=Name("a"), observes=("a",))
    outcome = run(*steps, f=lambda x: around(x, where).zero_() and None)
    ((name, damage),) = outcome.after
    assert (name, damage.type, damage["inside"], outcome.changed) == ("a", "Damaged", raw(b"\1\1\1"), ())
    guard = bytearray([CANARY] * GUARD_BYTES)
    guard[at] = 0
    assert damage[side] == bytes(guard)
    assert damage["after" if side == "before" else "before"] == bytes([CANARY] * GUARD_BYTES)


class Context:
    """Has everything that an object can hold."""

    def __init__(self, device: str) -> None:
        self.offset = 3
        self.ids = [1, 2]
        self.out = torch.tensor([[1, 2], [3, 4]], dtype=torch.int32, device=device)
        self.buffer = Batch(torch.tensor([1, 2]), 4)
        self.addresses = torch.tensor([-1, 2]).numpy()


@pytest.mark.parametrize(
    ("path", "contents"),
    [
        ("ctx.offset", 3),
        ("ctx.ids", [1, 2]),
        ("ctx.out", int32([[1, 2], [3, 4]])),
        ("ctx.buffer.rows", 4),
        ("ctx.buffer.nothing", record("Missing")),
        ("ctx.nothing.below", record("Missing")),
        ("nowhere.offset", record("Missing")),
        ("nowhere", record("Missing")),
    ],
)
def test_attributes_of_an_object_are_observed_by_their_path(
    run: Run, device: str, path: str, contents: Value
) -> None:
    steps = call("make", bind="ctx"), call("f", observes=(path,))
    outcome = run(*steps, make=lambda: Context(device), f=lambda: None)
    assert outcome.after == ((path, contents),)


def test_numpy_arrays_are_observed_as_tensors_of_the_host(run: Run, device: str) -> None:
    steps = call("make", bind="ctx"), call("f", observes=("ctx.addresses", "ctx.buffer.lens"))
    outcome = run(*steps, make=lambda: Context(device), f=lambda: None)
    on = "device" if device == "cpu" else "host"
    assert [value for _, value in outcome.after] == [
        Tensor("int64", (2,), (-1, 2), on=on),  # type: ignore[arg-type]
        Tensor("int64", (2,), (1, 2), on=on),  # type: ignore[arg-type]
    ]


def test_fake_tensors_answer_and_their_slices_lie_where_they_should(run: Run, device: str) -> None:
    fake = Fake("bfloat16", (4, 3, 2), (2**40, 2, 1), 2**64 - 32)

    def f(state: torch.Tensor) -> Any:
        addresses = state.data_ptr(), state[1].data_ptr(), state[0, 2:].data_ptr(), state[0][1, 1:].data_ptr()
        answers = tuple(state.shape), state.stride(), str(state.dtype), state.element_size(), state.dim()
        return (
            addresses,
            answers,
            isinstance(state, torch.Tensor),
            state.device.type,
            state.is_cuda,
            state[0].numel(),
        )

    assert run(call("f", state=fake), f=f) == Returned(
        (
            (2**64 - 32, 2**41 - 32, 2**64 - 24, 2**64 - 26),
            ((4, 3, 2), (2**40, 2, 1), "torch.bfloat16", 2, 3),
            True,
            device,
            device == "cuda",
            6,
        )
    )


def test_functions_reach_the_subject_as_its_own(run: Run) -> None:
    def g() -> None: ...

    step = call("f", found=(Function("g"), Function("Batch.describe")))
    described = "described"

    class Described(Batch):
        describe = described

    assert run(step, f=lambda found: (found[0] is g, found[1]), g=g, Batch=Described) == Returned(
        (True, described)
    )


def test_buffers_are_made_by_the_subject_for_the_device_of_the_run(run: Run, device: str) -> None:
    def make(*size: int, **options: Any) -> tuple[Any, ...]:
        pinned = device == "cuda"
        given = size, options.pop("dtype") is torch.int32, options.pop("pin_memory") is pinned
        return *given, options == {"device": torch.device(device)}

    outcome = run(
        call("f", make_buffer=BufferMaker()),
        f=lambda make_buffer: make_buffer(2, 3, dtype=torch.int32),
        CpuGpuBuffer=make,
    )
    assert outcome == Returned(((2, 3), True, True, True))


def test_nothing_but_a_kernel_is_launched(run: Run) -> None:
    step = call("harness.launch", kernel="f", grid=(1,), arguments={}, constexprs={})
    outcome = run(step, f=lambda: None)
    assert isinstance(outcome, Raised)
    assert outcome.message.startswith("kernel = 'f', but should be a Triton kernel")


@triton.jit
def tenfold_kernel(out_ptr, start, STEP: tl.constexpr):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    tl.store(out_ptr + program, start + program * STEP)


@pytest.mark.parametrize("schedule", ["", "reversed", "switches:1>1,2>0"])
def test_a_kernel_of_the_subject_is_launched_with_its_arguments(run: Run, schedule: str) -> None:
    step = call(
        "harness.launch",
        kernel="tenfold",
        grid=(3,),
        arguments={"out_ptr": Name("out"), "start": 5},
        constexprs={"STEP": 10},
        observes=("out",),
        schedule=schedule,
    )
    outcome = run(Let("out", int32([0, 0, 0, 0])), step, tenfold=tenfold_kernel)
    assert outcome == Returned(None, after=(("out", int32([5, 15, 25, 0])),))


@triton.jit
def arrivals_kernel(order_ptr, next_ptr):  # type: ignore[no-untyped-def]
    tl.store(order_ptr + tl.program_id(0), tl.atomic_add(next_ptr, 1))


def test_a_call_runs_its_programs_in_the_order_of_its_schedule(run: Run, device: str) -> None:
    def f(order: torch.Tensor, following: torch.Tensor) -> None:
        arrivals_kernel[(3,)](order, following)

    lets = Let("order", int32([0, 0, 0])), Let("next", int32([0]))
    step = call(
        "f", order=Name("order"), following=Name("next"), observes=("order", "next"), schedule="reversed"
    )
    after = dict(run(*lets, step, f=f).after)
    assert after["next"] == int32([3])
    assert device == "cuda" or after["order"] == int32([2, 1, 0])


def write_and_raise(x: torch.Tensor) -> None:
    x.zero_()
    raise ValueError("too late")


@dataclass
class Picky:
    """Refuses its argument."""

    lens: Any

    def __post_init__(self) -> None:
        raise ValueError("lens = refused")


REFUSED = Raised("ValueError", "lens = refused")


def make_nothing() -> None:
    raise ValueError("no")


def guards(x: torch.Tensor) -> list[int]:
    """The bytes that there are around a tensor of three."""
    start = x.storage_offset()
    both = (x.as_strided((GUARD_BYTES,), (1,), at) for at in (start - GUARD_BYTES, start + 3))
    return sorted({value for guard in both for value in guard.tolist()})


def storage(x: torch.Tensor) -> Any:
    """All elements of the memory of `GAPS`."""
    return x.as_strided((7,), (1,), x.storage_offset() - 1).tolist()


def places(x: torch.Tensor, y: list[torch.Tensor], z: torch.Tensor) -> Any:
    same = x.untyped_storage().data_ptr() == y[0].untyped_storage().data_ptr()
    return x.data_ptr() - z.data_ptr(), x.tolist(), x.stride(), same


def first_rows(rows: Callable[[int], torch.Tensor], t: torch.Tensor) -> Any:
    return rows(1).tolist(), rows(2).data_ptr() == t.data_ptr(), rows(0).tolist()


def set_last(batch: Any) -> str:
    batch.lens[1] = 9
    return type(batch.lens).__name__


def taken(x: dict[str, Any]) -> Any:
    return x["a"][0].tolist(), x.pop("b")["c"] is torch.int8


def counted(*pools: torch.Tensor) -> int:
    return len({pool.data_ptr() for pool in pools})


POOLS = Let("a", Tensor("int8", (64,), None)), Let("b", Tensor("int8", (64,), None))
BEYOND = (
    POOL, Let("v", View("pool", "int8", (1,), offset=3)),
    call("f", x=Name("v"), pool=Name("pool"), observes=("v",)),
)  # fmt: skip
SEEN = (("v", Tensor("int8", (1,), (0,))),)
MADE = call("make", bind="ctx")
A, COPY = Let("a", int32([1])), {"x": int32([1]), "y": int32([1])}
OUTCOMES: dict[str, tuple[tuple[Step, ...], dict[str, Any], Outcome]] = {
    "a write before an exception": (
        (call("f", x=GAPS),), {"f": write_and_raise}, Raised("ValueError", "too late", changed=("x",)),
    ),
    "an exception": (
        (call("f", x=0),), {"f": lambda x: 1 // x},
        Raised("ZeroDivisionError", "integer division or modulo by zero"),
    ),
    "contents after an exception": (
        (A, call("f", x=Name("a"), observes=("a",))), {"f": write_and_raise},
        Raised("ValueError", "too late", after=(("a", int32([0])),)),
    ),
    "an exception of a record's class": (
        (call("f", batch=record("Picky", lens=1)),), {"f": print, "Picky": Picky}, REFUSED,
    ),
    "the same of a named record": (
        (Let("b", record("Picky", lens=1)), call("f", batch=Name("b"))), {"f": print, "Picky": Picky}, REFUSED,
    ),
    "guards hold the canary": (
        (call("f", x=Tensor("uint8", (3,), (1, 2, 3))),), {"f": guards}, Returned([CANARY]),
    ),
    "memory that a view leaves out": (
        (call("f", x=GAPS),), {"f": storage}, Returned([9, 1, 9, 2, 9, 3, 9]),
    ),
    "no contents": (
        (call("f", x=Tensor("bfloat16", (3, 2, 2), None, strides=(10, 2, 1))),),
        {"f": lambda x: (tuple(x.shape), x.stride(), str(x.dtype))},
        Returned(((3, 2, 2), (10, 2, 1), "torch.bfloat16")),
    ),
    "keywords": (
        (Call("f", (("x", 1),), (("y", 2),)),), {"f": lambda *args, **rest: (args, rest)}, Returned(((1,), {"y": 2})),
    ),
    "an overwritten storage": (
        (Let("a", GAPS), Overwrite("a", (8, 7, 8, 6, 8, 5, 8)), call("f", x=Name("a"))),
        {"f": storage}, Returned([8, 7, 8, 6, 8, 5, 8]),
    ),
    "an overwritten part of a record": (
        (A, Let("b", record("Batch", lens=Name("a"))), Overwrite("a", (5,)), call("f", batch=Name("b"))),
        {"f": lambda batch: batch.lens.tolist()}, Returned([5]),
    ),
    "a result that is an argument": (
        (call("f", **COPY),), {"f": lambda x, y: (y, 0)}, Returned((SameAs("y"), 0)),
    ),
    "a copy of an argument": ((call("f", **COPY),), {"f": lambda x, y: x.clone()}, Returned(int32([1]))),
    "an address in a guard": (
        (call("f", x=ones("int32")),), {"f": lambda x: MambaCopySpec(x.data_ptr() - 4, 1)},
        Returned(record("MambaCopySpec", start_addr=Address("x", -4), num_elements=1)),
    ),
    "bytes": (
        (call("f", x=Tensor("uint8", (2, 2), b"abcd", strides=(1, 2))),), {"f": torch.Tensor.tolist},
        Returned([[97, 99], [98, 100]]),
    ),
    "no bytes": ((call("f", x=raw(b"")),), {"f": torch.Tensor.tolist}, Returned([])),
    "views of a named tensor": (
        (
            POOL, Let("v", View("pool", "int16", (2, 2), strides=(3, 1), offset=1)),
            call("f", x=Name("v"), y=[View("pool", "bool", (1,))], z=Name("pool")),
        ),
        {"f": places}, Returned((2, [[0x0302, 0x0504], [0x0908, 0x0B0A]], (3, 1), True)),
    ),
    "a view that does not fill the storage": (
        (POOL, call("f", x=View("pool", "int64", (1,)))), {"f": torch.Tensor.tolist}, Returned([0x0706050403020100]),
    ),
    "a view of a pool that is too large to write down": (
        (Let("huge", HUGE), Let("far", FAR), Overwrite("far", (1, 2)), call("f", x=Name("far"), observes=("far",))),
        {"f": lambda x: x.add_(1)}, Returned(SameAs("x"), after=(("far", Tensor("int32", (2,), (2, 3))),)),
    ),
    "pools without contents": (
        (*POOLS, call("f", x=Name("a"), y=Name("b"), z=Tensor("int8", (64,), None))), {"f": counted}, Returned(3),
    ),
    "an observed view": (BEYOND, {"f": lambda x, pool: zero(x)}, Returned(None, after=SEEN)),
    "memory beside it": (
        BEYOND, {"f": lambda x, pool: zero(x, pool[:4])}, Returned(None, changed=("x",), after=SEEN),
    ),
    "an object that could not be made": (
        (call("broken", bind="ctx"), call("f", observes=("ctx.out",))), {"broken": make_nothing, "f": int},
        Returned(0, after=(("ctx.out", record("Missing")),)),
    ),
    "a fake tensor without strides": (
        (call("f", x=Fake("int8", (2, 3), None, 16)),), {"f": torch.Tensor.stride}, Returned((3, 1)),
    ),
    "rows of a table": (
        (Let("t", int32([[1, 2], [3, 4]])), call("f", rows=Rows(Name("t")), t=Name("t"))),
        {"f": first_rows}, Returned(([[1, 2]], True, [])),
    ),
    "a NumPy array of a tensor's memory": (
        (
            Let("counts", int32([1, 2]).on_host()), Let("batch", record("Batch", lens=NumPy(Name("counts")))),
            call("f", batch=Name("batch"), observes=("counts",)),
        ),
        {"f": set_last}, Returned("ndarray", after=(("counts", int32([1, 9]).on_host()),)),
    ),
    "an attribute": (
        (MADE, call("f", x=Attribute(Name("ctx"), "buffer.lens"), ctx=Name("ctx"))),
        {"f": lambda x, ctx: x is ctx.buffer.lens}, Returned(True),
    ),
    "an attribute that is not there": (
        (MADE, call("f", x=Attribute(Name("ctx"), "nothing"))), {"f": print},
        Raised("AttributeError", "'Context' object has no attribute 'nothing'"),
    ),
    "a dict": (
        (call("f", x={"a": [int32([1])], "b": {"c": DType("int8")}}),), {"f": taken}, Returned(([1], True)),
    ),
    "a record of no class of the subject": (
        (call("f", batch=Record("Unknown", (("rows", 3),))),), {"f": lambda batch: batch.rows}, Returned(3),
    ),
}  # fmt: skip
"""Steps, the subject's functions, and what comes of the last step."""


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_call_comes_to_its_outcome(run: Run, device: str, name: str) -> None:
    steps, functions, outcome = OUTCOMES[name]
    found = run(*steps, make=lambda: Context(device), **functions)
    if device == "cpu":
        outcome = replace(outcome, after=tuple((at, _on_a_cpu(value)) for at, value in outcome.after))
    assert found == outcome


def _on_a_cpu(value: Value) -> Value:
    """There is no host beside a CPU."""
    return replace(value, on="device") if isinstance(value, Tensor) else value
