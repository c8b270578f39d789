"""The contents of memory that the rules know, step by step, and their use in a trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracle.rules import Refused
from statecheck import reference as answers
from statecheck.case.values import (
    ITEM_SIZES,
    Attribute,
    Call,
    Let,
    Name,
    NumPy,
    Overwrite,
    Refusal,
    Returned,
    Tensor,
    Value,
    View,
    as_bytes,
    as_elements,
    call,
    int32,
    record,
)
from statecheck.execution.example import Example, ExecutionContext, Falsified
from statecheck.execution.in_process import InProcess
from statecheck.execution.memory import contents, raw_bytes
from statecheck.execution.run import KnownMemory
from tests.helpers.cases import a_property, toy

POOL = Let("pool", Tensor("uint8", (8,), bytes(range(8))))
HUGE = Let("huge", Tensor("uint8", (2**40,), None))
WORD = Let("word", View("pool", "int32", (1,), offset=1))
FAR = Let("far", View("huge", "int16", (2,), strides=(3,), offset=2**38))


def raw(data: bytes) -> Tensor:
    return Tensor("uint8", (len(data),), data)


def memory(*steps: Let | Overwrite) -> KnownMemory:
    made = KnownMemory()
    for step in steps:
        made.note(step)
    return made


def test_the_item_sizes_are_those_of_torch() -> None:
    assert {name: getattr(torch, name).itemsize for name in ITEM_SIZES} == ITEM_SIZES


@given(data=st.data(), dtype=st.sampled_from([name for name in ITEM_SIZES if "float" not in name]))
def test_elements_and_bytes_are_the_same_memory_as_in_torch(data: st.DataObject, dtype: str) -> None:
    info = None if dtype == "bool" else torch.iinfo(getattr(torch, dtype))
    numbers = st.integers(0, 1) if info is None else st.integers(info.min, info.max)
    elements = tuple(data.draw(st.lists(numbers, max_size=4)))
    written = as_bytes(elements, dtype)
    assert written == raw_bytes(contents(elements, getattr(torch, dtype)))
    assert tuple(as_elements(written, dtype)) == elements


@pytest.mark.parametrize("function", [as_bytes, as_elements])
def test_elements_of_float_types_are_not_made_up(function: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"^dtype = 'bfloat16'"):
        function((1, 2), "bfloat16")


@pytest.mark.parametrize(
    ("steps", "name", "held"),
    [
        ((POOL,), "pool", raw(bytes(range(8)))),
        ((POOL, Overwrite("pool", (8,) * 8)), "pool", raw(b"\x08" * 8)),
        ((POOL, WORD), "word", Tensor("int32", (1,), (0x07060504,))),
        ((POOL, WORD, Overwrite("word", (-2,))), "pool", raw(b"\0\1\2\3\xfe\xff\xff\xff")),
        ((POOL, WORD, Overwrite("word", b"abcd")), "word", Tensor("int32", (1,), (0x64636261,))),
        ((POOL, WORD, Overwrite("pool", bytes(8))), "word", Tensor("int32", (1,), (0,))),
        ((HUGE,), "huge", None),
        ((HUGE, FAR), "far", None),
        ((HUGE, FAR, Overwrite("far", (-1, 7))), "far", Tensor("int16", (2,), (-1, 7))),
        (
            (
                HUGE,
                FAR,
                Overwrite("far", (-1, 7)),
                Let("byte", View("huge", "uint8", (1,), offset=2**39 + 6)),
            ),
            "byte",
            raw(b"\7"),
        ),
        ((HUGE, FAR, Overwrite("far", (-1, 7)), HUGE), "far", None),
        ((Let("a", int32([[1, 2], [3, 4]]).on_host()),), "a", int32([1, 2, 3, 4]).on_host()),
        ((Let("a", Tensor("int32", (1,), (9, 1, 9), offset=1)),), "a", int32([9, 1, 9])),
        ((POOL, Let("f", View("pool", "float16", (2,), offset=2))), "f", raw(b"\4\5\6\7")),
        ((Let("a", {"x": Name("b")}), Let("b", 5)), "a", {"x": 5}),
        ((Let("a", 5),), "a", None),
        ((), "nowhere", None),
    ],
    ids=repr,
)
def test_contents_follow_the_steps(steps: tuple[Any, ...], name: str, held: Value) -> None:
    assert memory(*steps).contents(name) == held


def test_contents_learned_of_a_view_are_known_of_its_memory() -> None:
    known = memory(POOL, WORD)
    known.learn({"word": Tensor("int32", (1,), (-1,))})
    assert known.contents("pool") == raw(b"\0\1\2\3\xff\xff\xff\xff")


def test_contents_learned_of_memory_are_known_of_its_views() -> None:
    known = memory(POOL, WORD)
    known.learn({"pool": raw(bytes(8))})
    assert known.contents("word") == Tensor("int32", (1,), (0,))


def test_contents_learned_of_a_path_are_forgotten_with_its_owner() -> None:
    known = memory()
    known.bind("ctx", call("C.create"))
    known.learn({"ctx.out": int32([1]), "ctx_2.out": int32([2])})
    assert known.contents("ctx.out") == int32([1])
    known.bind("ctx", call("C.create"))
    assert (known.contents("ctx.out"), known.contents("ctx_2.out")) == (None, int32([2]))


def test_a_call_is_resolved_to_what_its_names_hold_now() -> None:
    known = memory(
        Let("a", int32([[1], [2]])), Let("b", record("B", n=NumPy(Name("a")))), Overwrite("a", (3, 4))
    )
    known.bind("ctx", call("C.create"))
    step = call("f", b=Name("b"), x=Attribute(Name("ctx"), "x"), ctx=Name("ctx"))
    numpy = NumPy(int32([[3], [4]]))
    assert known.resolved(step).named == {
        "b": record("B", n=numpy),
        "x": Attribute(call("C.create"), "x"),
        "ctx": call("C.create"),
    }
    known.learn({"ctx.x": 7})
    assert known.resolved(step).named["x"] == 7


def test_everything_known_is_handed_over_and_what_is_observed_even_if_unknown() -> None:
    known = memory(POOL, WORD, HUGE, FAR, Let("d", {"a": 1}), Let("r", record("R")))
    known.learn({"ctx.x": 7})
    found = known.known(call("f", observes=("word", "ctx.y")))
    assert found == {
        "pool": raw(bytes(range(8))),
        "huge": None,
        "far": None,
        "d": {"a": 1},
        "ctx.x": 7,
        "word": Tensor("int32", (1,), (0x07060504,)),
        "ctx.y": None,
    }


class Counter:
    """A toy with state: counts in a tensor that it is handed."""

    def __init__(self, total: int) -> None:
        self.total = total


def add(counter: Counter, numbers: torch.Tensor, amount: int) -> None:
    if amount < 0:
        raise ValueError("amount = negative, but should not be")
    counter.total += amount
    numbers += amount


def add_and_forget(counter: Counter, numbers: torch.Tensor, amount: int) -> None:  # noqa: ARG001
    numbers += amount


def add_one_number(counter: Counter, numbers: torch.Tensor, amount: int) -> None:
    counter.total += amount
    numbers[:1] += amount


def add_before_refusing(counter: Counter, numbers: torch.Tensor, amount: int) -> None:
    numbers += amount
    add(counter, numbers, amount)


def added(counter: Call, numbers: Tensor, amount: int, memory: dict[str, Value]) -> Any:
    """The rule; how often the counter was changed is seen from the calls that it stands for."""
    if amount < 0:
        raise Refused("amount", amount, "not be negative")
    assert numbers.elements == memory["numbers"].elements
    total, asked = amount, counter
    while asked.function == "add":
        total, asked = total + asked.named["amount"], asked.named["counter"]
    new = tuple(number + amount for number in memory["numbers"].elements)
    total += asked.named["total"]
    return None, {"numbers": int32(new), "counter.total": total, "counter.not_observed": total}


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch, trial: ExecutionContext) -> Callable[[Any], Example]:
    """Makes a trial of a toy with the given `add`."""
    answers.answered()
    plain = lambda **_: None  # noqa: E731 - a rule that says nothing
    monkeypatch.setitem(answers._ANSWERS, "Counter", answers._Answer(plain, frozenset()))
    monkeypatch.setitem(answers._ANSWERS, "add", answers._Answer(added, frozenset({"memory"})))

    def made(function: Any) -> Example:
        subject = toy(Counter=Counter, add=function)
        return ExecutionContext(subject, InProcess(subject, trial.port.device)).begin(a_property())

    return made


MAKE = (Let("numbers", int32([1, 2])), call("Counter", total=3, bind="counter"))


def adding(amount: int, **more: Any) -> Call:
    options = {"observes": ("numbers", "counter.total"), "updates": "counter"} | more
    return call("add", counter=Name("counter"), numbers=Name("numbers"), amount=amount, **options)


def test_steps_agree_whose_rule_builds_on_what_is_known(trial: Any) -> None:
    example = trial(add)
    example.run(*MAKE)
    example.agrees(adding(5), adding(6), adding(-1), adding(2))
    *_, last = example._run.expected
    known = (("numbers", int32([14, 15])), ("counter.total", 16), ("counter.not_observed", 16))
    assert last == Returned(None, after=known)


def test_a_refused_update_changes_neither_the_object_nor_what_is_known(trial: Any) -> None:
    example = trial(add)
    example.run(*MAKE)
    example.agrees(adding(-1))
    assert example._run.expected[-1] == Refusal("amount", after=(("numbers", int32([1, 2])),))
    example.agrees(adding(5), adding(-1))
    assert example._run.expected[-1].after == (("numbers", int32([6, 7])), ("counter.total", 8))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (add_and_forget, "counter.total = 3, but should be 8 [add("),
        (add_one_number, "numbers[1] = 2, but should be 7 [add("),
    ],
)
def test_contents_that_are_not_those_of_the_rules_falsify(trial: Any, function: Any, message: str) -> None:
    example = trial(function)
    example.run(*MAKE)
    with pytest.raises(Falsified) as caught:
        example.agrees(adding(5))
    assert str(caught.value).startswith(message)


def test_a_change_before_a_refusal_falsifies(trial: Any) -> None:
    example = trial(add_before_refusing)
    example.run(*MAKE)
    with pytest.raises(Falsified, match=r"^numbers\[0\] = 0, but should be 1 "):
        example.agrees(adding(-1))


def test_a_write_that_is_not_observed_falsifies(trial: Any) -> None:
    example = trial(add)
    example.run(*MAKE)
    with pytest.raises(Falsified, match=r"^numbers = written to, but should be left as it was"):
        example.agrees(adding(5, observes=("counter.total",)))


def test_observed_contents_are_part_of_the_case(trial: Any) -> None:
    example = trial(add_one_number)
    example.run(*MAKE)
    with pytest.raises(Falsified) as caught:
        example.agrees(adding(5))
    case = caught.value.case
    assert case.actual[-1].after == (("numbers", int32([6, 2])), ("counter.total", 8))
    assert case.expected[-1].after[0] == ("numbers", int32([6, 7]))
