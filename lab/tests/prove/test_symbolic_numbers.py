"""Symbolic arithmetic gives what the executor's arithmetic gives, and the oracle on symbolic numbers what it gives on plain ones."""

from __future__ import annotations

import importlib.util
from random import Random
from typing import Any

import numpy as np
import pytest

from oracle.align.decisions import after_v1_steps, before_step
from oracle.types import cdiv
from statecheck.kernels.arithmetic import operation

if importlib.util.find_spec("z3") is None:
    pytest.skip("z3-solver is not installed (the extra `prove`)", allow_module_level=True)

from lab.prove import operations
from lab.prove.memory import MovedBytes, source_in
from lab.prove.numbers import Number, Numbers, answered, term_of
from lab.prove.operations import INTEGERS, SymbolicArithmetic
from lab.prove.paths import Path, Unreachable, as_term, concrete, paths

BINARY = ("addi", "subi", "muli", "divsi", "remsi", "divui", "remui", "minsi", "maxsi", "minui", "maxui")
PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
CASES: list[tuple[str, tuple[str, ...], str, dict[str, str]]] = [
    *((f"arith.{name}", (element,) * 2, element, {}) for name in BINARY for element in ("i8", "i32", "i64")),
    *(("arith.cmpi", ("i32", "i32"), "i1", {"predicate": predicate}) for predicate in PREDICATES),
    ("arith.extsi", ("i32",), "i64", {}),
    ("arith.extui", ("i32",), "i64", {}),
    ("arith.trunci", ("i64",), "i32", {}),
    ("arith.trunci", ("i32",), "i1", {}),
]
KNOWN_SECOND = [("arith.shli", 5), ("arith.shrsi", 3), ("arith.shrui", 3), ("arith.andi", 15)]


def drawn(random: Random, element: str) -> int:
    """Small, or of any size; at the ends of the type every now and then."""
    width = INTEGERS[element]
    half = 1 << (width - 1)
    return random.choice((random.randint(-9, 9), random.randint(-half, half - 1), half - 1, -half))


def difference(
    name: str, elements: tuple[str, ...], result: str, attributes: dict[str, str], values: list[int]
) -> str:
    """How a symbolic result differs from the executor's, where symbols have these values; "" where it does not."""
    path = Path()
    symbols: list[Any] = [path.fresh("value") for _ in values]
    path.assume(*(symbol == value for symbol, value in zip(symbols, values, strict=True)))
    if "div" in name or "rem" in name:
        # Of a divisor that is not a number only some of the truth is said.
        symbols[1] = values[1]
    found = path.only(SymbolicArithmetic(path).compute(name, elements, result, attributes, symbols))
    function = operation(name, elements, result, attributes)
    assert function is not None
    with np.errstate(all="ignore"):
        wanted = function(*values)
    return "" if found == wanted else f"{name}{values} = {found}, but should be {wanted}"


@pytest.mark.parametrize(("name", "elements", "result", "attributes"), CASES, ids=str)
def test_symbolic_operations_are_those_of_the_executor(
    name: str, elements: tuple[str, ...], result: str, attributes: dict[str, str]
) -> None:
    random = Random(f"{name} {elements} {attributes}")
    for _ in range(12):
        values = [drawn(random, element) for element in elements]
        if "div" in name or "rem" in name:
            values[1] = random.randint(1, 100)
        assert not difference(name, elements, result, attributes, values)


@pytest.mark.parametrize(("name", "second"), KNOWN_SECOND)
def test_shifts_and_masks_by_a_known_number_are_those_of_the_executor(name: str, second: int) -> None:
    random, function = Random(name), operation(name, ("i32", "i32"), "i32", {})
    assert function is not None
    for _ in range(20):
        value, path = drawn(random, "i32"), Path()
        symbol = path.fresh("value")
        path.assume(symbol == value)
        found = SymbolicArithmetic(path).compute(name, ("i32", "i32"), "i32", {}, [symbol, second])
        assert path.only(found) == function(value, second)


@pytest.mark.parametrize("name", ["arith.ori", "arith.xori"])
def test_the_lowest_bits_of_a_mixture_are_0_where_the_executors_are(name: str) -> None:
    random, function = Random(name), operation(name, ("i64", "i64"), "i64", {})
    assert function is not None
    for _ in range(30):
        values, path = [random.choice((8, 16, 24, 5, -8, -3)) for _ in range(2)], Path()
        symbols = [path.fresh("value") for _ in values]
        path.assume(*(symbol == value for symbol, value in zip(symbols, values, strict=True)))
        found = SymbolicArithmetic(path).compute(name, ("i64", "i64"), "i64", {}, symbols)
        for unit in (2, 4, 8, 16):
            assert path.only(found % unit == 0) is (function(*values) % unit == 0), (values, unit)
        assert path.only(found >= 0) is (function(*values) >= 0)


def test_a_wrong_symbolic_operation_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(operations._SIGNED, "subi", lambda a, b: b - a)
    assert "but should be 4" in difference("arith.subi", ("i32", "i32"), "i32", {}, [7, 3])


def test_what_is_said_of_quotients_holds_of_quotients() -> None:
    random = Random(1)
    for _ in range(60):
        divisor, path = random.randint(1, 20), Path()
        size = path.fresh("size")
        path.assume(size == divisor)
        numbers = [random.randint(-60, 60) for _ in range(3)]
        for number in numbers:
            symbol = path.fresh("number")
            path.assume(symbol == number)
            quotient, remainder = path.divide(symbol, size)
            path.assume(quotient == number // divisor, remainder == number % divisor)
        assert path.possible(), (numbers, divisor)


def test_a_quotient_times_its_divisor_is_the_number_without_its_remainder() -> None:
    path = Path()
    number, size = path.fresh("number"), path.fresh("size")
    path.assume(number >= 0, size > 0)
    quotient, _ = path.divide(number, size)
    assert path.implied(path.multiply(quotient, size) <= number)
    assert path.implied(path.multiply(quotient + 1, size) > number)


def at(path: Path, name: str, value: int) -> Any:
    symbol = path.fresh(name)
    path.assume(symbol == value)
    return Number(path, symbol)


def alone(number: Any) -> Numbers:
    """A vector of one number."""
    return Numbers(number.path, lambda index: number.term, 1)


def test_the_oracle_on_symbolic_numbers_is_the_oracle() -> None:
    random = Random(2)
    for _ in range(15):
        size, drafts = random.randint(3, 9), random.randint(0, 2)
        count, computed, scheduled = (
            random.randint(1, 1 + drafts),
            random.randint(0, 30),
            random.randint(3, 9),
        )
        values = (count, random.randint(0, 5), scheduled, computed, drafts)
        rule: Any = after_v1_steps
        plain = rule(*([value] for value in values), size)[0]

        def run(path: Path, values: Any = values, size: int = size) -> Any:
            numbers = [at(path, "value", value) for value in values]
            return answered(after_v1_steps, *map(alone, numbers), size)[0]

        (ended,) = paths(run, 20_000)
        found = ended.result
        assert ended.path.only(term_of(found.accepted)) == plain.accepted
        assert (found.move is None) == (plain.move is None)
        if plain.move is not None:
            pairs = [
                (getattr(found.move, name), getattr(plain.move, name))
                for name in ("src_col", "dst_col", "bias")
            ]
            assert all(ended.path.only(term_of(symbolic)) == number for symbolic, number in pairs)


def test_both_ways_are_followed_at_each_decision_of_the_oracle() -> None:
    def run(path: Path) -> Any:
        previous, running = Number(path, path.fresh("previous")), Number(path, path.fresh("running"))
        return answered(before_step, 0, previous, running, 1)

    # The column is -1; it is the running one; it is another.
    moves = [ended.result for ended in paths(run, 20_000)]
    assert sorted(move is None for move in moves) == [False, True, True]


def test_a_rule_refuses_symbolic_numbers_as_others() -> None:
    path = Path()
    size = path.fresh("size")
    path.assume(size == 0)
    with pytest.raises(Unreachable):
        answered(cdiv, Number(path, path.fresh("tokens")), Number(path, size))


def test_the_last_of_two_moves_to_a_byte_says_where_it_comes_from() -> None:
    runs = [MovedBytes(100, 10, 4), MovedBytes(200, 12, 4)]
    sources = [concrete(source_in(runs, as_term(byte))) for byte in range(9, 17)]
    assert sources == [9, 100, 101, 200, 201, 202, 203, 16]
