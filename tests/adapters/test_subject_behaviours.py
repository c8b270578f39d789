"""Any behaviour of a subject is described as it is, and is no error of the harness."""

from __future__ import annotations

import enum
import json
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from hypothesis.errors import UnsatisfiedAssumption

from statecheck.case import Case
from statecheck.case.case import decode, encode
from statecheck.case.failure import brief, outcome_difference
from statecheck.case.raised import LONGEST_MESSAGE
from statecheck.case.values import Outcome, Raised, Record, Returned, Step, Tensor, Value, call, record
from statecheck.execution.example import ExecutionContext, Falsified
from statecheck.execution.in_process import InProcess
from statecheck.workers.port import InWorker
from subjects import load
from tests.helpers.cases import a_case, a_property, toy
from tests.helpers.modules import module


class Loud(BaseException):
    """Is no `Exception`."""


class Unreadable(ValueError):
    """Cannot say what it is about."""

    def __str__(self) -> str:
        raise SystemExit("str")


class Wordless(ValueError):
    """Has something to say that is no text."""

    def __str__(self) -> str:
        return 3  # type: ignore[return-value]  # noqa: PLE0307 - the point of it


class Odd(type):
    """A metaclass whose classes have no name to speak of."""

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no name")


class Nameless(ValueError, metaclass=Odd):
    """Raises where its type is asked for its name."""


def raising(error: BaseException | type[BaseException]) -> Callable[[], NoReturn]:
    def function() -> NoReturn:
        raise error

    return function


def endless() -> None:
    endless()


RAISED: dict[str, tuple[Callable[[], Any], Raised]] = {
    "an exit": (lambda: sys.exit(3), Raised("SystemExit", "3")),
    "an exit without words": (sys.exit, Raised("SystemExit", "")),
    "pytest.skip": (lambda: pytest.skip("no GPU"), Raised("Skipped", "no GPU")),
    "pytest.fail": (lambda: pytest.fail("no"), Raised("Failed", "no")),
    "pytest.exit": (lambda: pytest.exit("no more"), Raised("Exit", "no more")),
    "the end of a generator": (raising(GeneratorExit("over")), Raised("GeneratorExit", "over")),
    "the end of an iterator": (raising(StopIteration(1)), Raised("StopIteration", "1")),
    "an assumption": (raising(UnsatisfiedAssumption("no")), Raised("UnsatisfiedAssumption", "no")),
    "no Exception": (raising(Loud("quiet")), Raised("Loud", "quiet")),
    "no more memory": (raising(MemoryError("none left")), Raised("MemoryError", "none left")),
    "str that raises": (
        raising(Unreadable()),
        Raised("Unreadable", "<its message cannot be read: SystemExit>"),
    ),
    "str that is no text": (
        raising(Wordless()),
        Raised("Wordless", "<its message cannot be read: TypeError>"),
    ),
    "a lone surrogate": (raising(ValueError("\ud800x")), Raised("ValueError", "\\ud800x")),
    "a type without a name": (raising(Nameless("x")), Raised("Nameless", "x")),
    "very many words": (
        raising(ValueError("x" * 2 * LONGEST_MESSAGE)),
        Raised("ValueError", "x" * LONGEST_MESSAGE + f" ... {2 * LONGEST_MESSAGE} characters in all"),
    ),
}


@dataclass
class Unset:
    """A dataclass of which a field need not be set."""

    x: int
    y: int = field(init=False)


class Raising:
    """Raises whatever it is asked."""

    def __getattribute__(self, name: str) -> NoReturn:
        raise SystemExit(name)


@dataclass
class Exiting:
    """A dataclass that does not give its second field away."""

    x: int = 1
    y: int = 2

    def __getattribute__(self, name: str) -> Any:
        if name == "y":
            raise SystemExit("y")
        return object.__getattribute__(self, name)


@dataclass
class Damaged:
    """Has the name of a record of ours."""

    before: int = 1


class Colour(enum.IntEnum):
    RED = 3


class Text(str):
    """A text that does not compare."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    __hash__ = str.__hash__


class Long(list):
    """A list without an end."""

    def __iter__(self) -> Iterator[int]:
        while True:
            yield 1


class Shy(torch.Tensor):
    """A tensor with which no function of torch can be called."""

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> NoReturn:
        raise SystemExit("not with me")


class Pair(NamedTuple):
    """A tuple with names."""

    a: int
    b: int


def itself() -> list[Any]:
    found: list[Any] = [1]
    found.append(found)
    return found


def own_value() -> dict[str, Any]:
    found: dict[str, Any] = {}
    found["x"] = found
    return found


def own_field() -> Any:
    found = Damaged()
    found.before = found  # type: ignore[assignment]
    return found


def nested(depth: int) -> tuple[Any, ...]:
    found: tuple[Any, ...] = ()
    for _ in range(depth):
        found = (found,)
    return found


def shared(depth: int) -> list[Any]:
    """A list that would be huge if a part were written each time that it occurs."""
    found: list[Any] = []
    for _ in range(depth):
        found = [found, found]
    return found


def emptied() -> torch.Tensor:
    found = torch.arange(4)
    found.untyped_storage().resize_(0)
    return found


def quantised() -> torch.Tensor:
    with warnings.catch_warnings(action="ignore"):
        return torch._empty_affine_quantized([2], scale=0.1, zero_point=0, dtype=torch.qint8)


def not_plain(kind: str, why: str) -> Record:
    return record("Undescribable", type=kind, why=why)


RESULTS: dict[str, tuple[Callable[[], Any], Any]] = {
    "a list that holds itself": (itself, [1, not_plain("list", "it holds itself")]),
    "a dict that holds itself": (own_value, {"x": not_plain("dict", "it holds itself")}),
    "a dataclass that holds itself": (
        own_field,
        record("Damaged of the subject", before=not_plain("Damaged", "it holds itself")),
    ),
    "a sparse tensor": (lambda: torch.eye(2).to_sparse(), "Tensor"),
    "a tensor without memory": (lambda: torch.zeros(2, 2, device="meta"), "Tensor"),
    "a quantised tensor": (quantised, "Tensor"),
    "a tensor of complex numbers": (lambda: torch.zeros(1, dtype=torch.complex64), "Tensor"),
    "a tensor larger than memory": (lambda: torch.zeros(1).expand(1 << 45), "Tensor"),
    "a tensor whose memory is gone": (emptied, "Tensor"),
    "a tensor that no function can read": (lambda: torch.zeros(1).as_subclass(Shy), "Shy"),
    "an array of objects": (lambda: np.array([object()]), "ndarray"),
    "an array of dates": (lambda: np.array(["2000-01-01"], "datetime64[D]"), "ndarray"),
    "a masked array": (lambda: np.ma.masked_array([1], mask=[True]), "MaskedArray"),
    "an array of fractions": (lambda: np.array([0.5]), Tensor("float64", (1,), (0.5,))),
    "a field that was never set": (lambda: Unset(1), record("Unset", x=1)),
    "a field that raises": (Exiting, record("Exiting", x=1, y=not_plain("Exiting", "SystemExit: y"))),
    "an object that raises": (Raising, record("Raising")),
    "a list without an end": (lambda: Long([1]), "Long"),
    "an enumeration": (lambda: Colour.RED, record("Colour", value=3)),
    "a text of another type": (lambda: Text("SD"), record("Text", value="SD")),
    "a named tuple": (lambda: Pair(1, 2), (1, 2)),
    "a size": (lambda: torch.Size((1, 2)), (1, 2)),
    "keys that JSON does not know": (
        lambda: {object(): 1, "x": 2},
        record("Dict", items=[(record("object"), 1), ("x", 2)]),
    ),
    "keys of another type": (lambda: {Text("x"): 1}, record("Dict", items=[(record("Text", value="x"), 1)])),
    "lone surrogates": (lambda: ["\ud800"], ["\\ud800"]),
    "a huge number": (lambda: 10**6000, "int"),
    "no number": (lambda: (float("nan"), float("-inf")), None),
    "a complex number": (lambda: 1j, record("complex")),
    "a type": (lambda: Odd, record("type")),
    "an object of a type without a name": (lambda: Nameless("x"), record("Nameless")),
}


def outcome_of(function: Callable[[], Any]) -> Outcome:
    port = InProcess(toy(f=function), "cpu")
    port.begin()
    outcome = port.execute(call("f"))
    assert outcome is not None
    return outcome


def written(outcome: Outcome) -> Case:
    """A case with that outcome, written to UTF-8 and read again."""
    text = a_case(actual=(outcome,)).to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    return Case.from_json(text.encode("utf-8").decode("utf-8"))


@pytest.mark.parametrize("behaviour", RAISED)
def test_an_exception_of_any_kind_is_the_outcome_of_the_call(behaviour: str) -> None:
    function, expected = RAISED[behaviour]
    outcome = outcome_of(function)
    assert outcome == expected
    assert written(outcome).actual == (outcome,)


def test_a_recursion_without_an_end_is_the_outcome_of_the_call() -> None:
    outcome = outcome_of(endless)
    assert isinstance(outcome, Raised)
    assert outcome.exception == "RecursionError"


@pytest.mark.parametrize("behaviour", RESULTS)
def test_a_result_of_any_kind_is_described(behaviour: str) -> None:
    function, expected = RESULTS[behaviour]
    outcome = outcome_of(function)
    assert isinstance(outcome, Returned)
    if isinstance(expected, str):
        assert outcome.value.type == "Undescribable"
        assert outcome.value["type"] == expected
    elif expected is not None:
        assert outcome.value == expected
    assert written(outcome).actual == (outcome,)
    assert outcome_difference(Returned(4), outcome, places=False) is not None


@pytest.mark.parametrize(("result", "depth"), [(nested, 5000), (shared, 60)])
@pytest.mark.slow
def test_results_without_bounds_are_described_up_to_a_bound(result: Callable[[int], Any], depth: int) -> None:
    outcome = outcome_of(lambda: result(depth))
    assert "Undescribable" in repr(outcome)
    assert brief(decode(encode(outcome)).value)


@pytest.mark.usefixtures("default_signals")
def test_ctrl_c_ends_the_run_and_is_no_outcome() -> None:
    with pytest.raises(KeyboardInterrupt):
        outcome_of(raising(KeyboardInterrupt()))


def test_where_ctrl_c_is_ignored_an_interrupt_is_the_subject_s() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        outcome = outcome_of(raising(KeyboardInterrupt("x")))
    finally:
        signal.signal(signal.SIGINT, before)
    assert isinstance(outcome, Raised)
    assert (outcome.exception, outcome.message) == ("KeyboardInterrupt", "x")


def test_the_time_limit_of_a_test_is_no_outcome() -> None:
    handler = "import pytest\ndef handler(): pytest.fail('Timeout')\n"
    names: dict[str, Any] = {"__name__": "pytest_timeout"}
    exec(handler, names)  # noqa: S102 - in a module of that name, as the plugin's own
    with pytest.raises(pytest.fail.Exception, match="Timeout"):
        outcome_of(names["handler"])


OBSERVED: dict[str, tuple[Any, Value]] = {
    "an attribute that raises": (Raising(), "Undescribable"),
    "a sparse tensor": (type("Holder", (), {"x": torch.eye(2).to_sparse()})(), "Undescribable"),
    "a tensor with a gradient": (
        type("Holder", (), {"x": torch.zeros(1, requires_grad=True)})(),
        Tensor("uint8", (4,), bytes(4)),
    ),
    "a tensor without memory": (type("Holder", (), {"x": torch.zeros(1, device="meta")})(), "Undescribable"),
    "an attribute that is not there": (type("Holder", (), {})(), "Missing"),
}


@pytest.mark.parametrize("behaviour", OBSERVED)
def test_an_observed_value_of_any_kind_is_described(behaviour: str) -> None:
    holder, expected = OBSERVED[behaviour]
    port = InProcess(toy(make=lambda: holder, look=lambda: None), "cpu")
    port.begin()
    port.execute(call("make", bind="holder"))
    outcome = port.execute(call("look", observes=("holder.x",)))
    assert isinstance(outcome, Returned)
    ((_, seen),) = outcome.after
    assert (seen.type if isinstance(seen, Record) else seen) == expected
    assert written(outcome).actual == (outcome,)


class Leaving:
    """Ends the process that makes one."""

    def __init__(self) -> None:
        sys.exit(2)


ON_THE_WAY: dict[str, tuple[dict[str, Any], Step]] = {
    "a class of an argument": ({"Batch": Leaving, "f": lambda x: x}, call("f", x=record("Batch"))),
    "what it remembers of the environment": (
        {"get_conv_state_layout": type("Cached", (), {"cache_clear": raising(SystemExit(2))})},
        call("get_conv_state_layout", environment={"VLLM_SSM_CONV_STATE_LAYOUT": "DS"}),
    ),
}


@pytest.mark.parametrize("behaviour", ON_THE_WAY)
def test_an_exception_on_the_way_to_a_call_is_its_outcome(
    behaviour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_SSM_CONV_STATE_LAYOUT", "SD")
    names, step = ON_THE_WAY[behaviour]
    port = InProcess(toy(**names), "cpu")
    port.begin()
    assert port.execute(step) == Raised("SystemExit", "2")


EVERY = {name: found for name, (found, _) in (RAISED | RESULTS).items()} | {
    "a recursion": endless,
    "assume": lambda: hypothesis.assume(False),
    "reject": hypothesis.reject,
}


@pytest.mark.parametrize("behaviour", EVERY)
def test_every_behaviour_falsifies_a_property_with_its_input(behaviour: str) -> None:
    def body(trial: Any, x: int) -> None:
        trial.agrees(call("cdiv", x=x, y=2))

    tested = a_property(body, functions=("cdiv",), strategies={"x": st.integers(7, 9)})
    subject = toy(cdiv=lambda x, y: EVERY[behaviour]())
    context = ExecutionContext(subject, InProcess(subject, "cpu"))
    with pytest.raises(Falsified) as caught:
        tested.explore(context, seed=1, max_examples=5)
    case = caught.value.case
    assert case.steps == (call("cdiv", x=7, y=2),)
    assert Case.from_json(case.to_json()) == case
    assert case.message.encode("utf-8")


WORKED = """
import sys
import pytest

class Unreadable(ValueError):
    def __str__(self):
        raise SystemExit("str")

def leave():
    sys.exit(3)

def skip():
    pytest.skip("no GPU")

def unreadable():
    raise Unreadable

def itself():
    found = []
    found.append(found)
    return found

class Number(int):
    pass

def number():
    return Number(3)
"""


def test_a_worker_tells_the_same_and_runs_on(tmp_path: Path) -> None:
    with module(tmp_path, "toy_behaving", WORKED) as name:
        names = ("leave", "skip", "unreadable", "itself", "number")
        here = InProcess(load(name), "cpu")
        here.begin()
        expected = [here.execute(call(function)) for function in names]
        with InWorker(name, "cpu", spare=False) as port:
            port.begin()
            assert [port.execute(call(function)) for function in names] == expected
            assert (dict(port.faults), port.restarts) == ({}, 0)


@pytest.mark.parametrize("raised", ["SystemExit(3)", "ZeroDivisionError('no')", "ImportError('no')"])
def test_a_name_that_a_module_fails_to_look_up_is_one_that_it_does_not_have(
    tmp_path: Path, raised: str
) -> None:
    source = f"def __getattr__(name):\n    raise {raised}\n"
    with module(tmp_path, "toy_lazy", source) as name:
        subject = load(name)
        assert not subject.has("cdiv")
        with pytest.raises(AttributeError, match=r"^cdiv = .*, but should be found"):
            subject.resolve("cdiv")


@pytest.mark.parametrize(
    "source", ["raise SystemExit(3)", "1 / 0", "def", "import pytest; pytest.skip(allow_module_level=True)"]
)
def test_a_module_that_raises_when_it_is_imported_is_refused_by_its_name(tmp_path: Path, source: str) -> None:
    with (
        module(tmp_path, "toy_raising", source + "\n") as name,
        pytest.raises(ValueError, match=r"^subject = 'toy_raising', but should be impl"),
    ):
        load(name)
