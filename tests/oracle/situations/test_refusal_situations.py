"""Refusals of the rules are found in their sources, and noted where they are made."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

from oracle.situations import registry
from oracle.situations.refusals import Refusals, _node
from oracle.situations.registry import take
from statecheck.case.values import call, int32
from statecheck.execution.registry import load_properties
from statecheck.expectations import answer
from statecheck.expectations.situations import REFUSALS, every_situation

RULES = """\
from oracle.errors import Refused, require, require_int
from oracle.layout import Unrepresentable


def _small(name, number):
    require_small(name, number)  # in the same line as the call of another module


def halved(number, names):
    require_int("number", number, minimum=0)
    rule, _ = f"be even, as {len(names)} is", number
    half, rest = divmod(number, 2)
    [*names][0:0] = (half, rest)
    require(rest == 0, "number", number, rule)
    _require_names("names", names)
    _require_few(names)
    if not names:
        raise Refused("names", names, "not be empty")


def doubled(number, names):
    require_int("number", number, 1)
    _require_names(argument=f"names of {number}", names=names)
    return _small("number", number)


def tripled(number):
    if number > 9:
        raise Unrepresentable("three of them")
    return _small("third", number)


def _require_few(names):
    require(len(names) < 3, "names", names, "be few")


def require_small(argument, number):
    require(number < 5, argument, number, "be small")


def _require_names(argument, names):
    require(
        all(names),
        argument,
        names,
        "have no empty name",
    )
"""
OTHERS = """\
from oracle.errors import require
from toy_rules.numbers import require_small


def fourfold(number):
    require_small("fourth", number)
    _require_names("fourth", number)


def _require_names(argument, number):
    require(number, argument, number, "be there")
"""
LARGE_FOURTH, NO_FOURTH = (
    "fourth should be small [others.fourfold]",
    "fourth should be there [others.fourfold]",
)
NO_INT = "number should be an int [numbers.halved]"
NEGATIVE = "number should be >= 0 [numbers.halved]"
EMPTY_NAME = "names should have no empty name [numbers.halved]"
EMPTY_NAME_OF = "names of … should have no empty name [numbers.doubled]"
MANY = "names should be few [numbers.halved]"
NO_NAMES = "names should not be empty [numbers.halved]"
ZERO, NO_DOUBLE = "number should be >= 1 [numbers.doubled]", "number should be an int [numbers.doubled]"
LARGE, LARGE_THIRD = "number should be small [numbers.doubled]", "third should be small [numbers.tripled]"
PIECES = "a copy should be one piece: three of them [numbers.tripled]"
ODD = "number should be even, as … is [numbers.halved]"


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A package with one module of rules. What is declared in a test is forgotten."""
    monkeypatch.setattr(registry, "_DECLARED", {})
    monkeypatch.setattr(registry, "_REACHED", set())
    (tmp_path / "toy_rules").mkdir()
    (tmp_path / "toy_rules" / "__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "toy_rules" / "numbers.py").write_text(RULES, encoding="utf-8")
    (tmp_path / "toy_rules" / "others.py").write_text(OTHERS, encoding="utf-8")
    (tmp_path / "toy_rules" / "situations").mkdir()
    for own in ("errors.py", "situations/refusals.py"):
        (tmp_path / "toy_rules" / own).write_text(OTHERS.replace("fourth", "fifth"), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("toy_rules.numbers")
    del sys.modules["toy_rules"], sys.modules["toy_rules.numbers"]


def package() -> ModuleType:
    return sys.modules["toy_rules"]


@pytest.mark.usefixtures("rules")
def test_every_refusal_is_found_once_for_each_function_that_is_checked() -> None:
    found = Refusals(package()).declared()
    halved = {NO_INT, NEGATIVE, ODD, EMPTY_NAME, NO_NAMES, MANY}
    tripled, others = {LARGE_THIRD, PIECES}, {LARGE_FOURTH, NO_FOURTH}
    assert found.keys() == {*halved, EMPTY_NAME_OF, ZERO, NO_DOUBLE, LARGE, *tripled, *others}
    assert {name: one.topic for name, one in found.items() if one.topic != "numbers"} == dict.fromkeys(
        others, "others"
    )


def test_checks_of_two_modules_may_not_share_a_name(rules: ModuleType) -> None:
    assert rules.__file__ is not None
    Path(rules.__file__).with_name("more.py").write_text(
        "def require_small(argument, number): ...\n", encoding="utf-8"
    )
    with pytest.raises(
        ValueError, match="require_small = a check, but should have a name of its own: more has"
    ):
        Refusals(package()).declared()


@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        ("halved", ("one", ["a"]), NO_INT),
        ("halved", (True, ["a"]), NO_INT),
        ("halved", (-2, ["a"]), NEGATIVE),
        ("halved", (3, ["a"]), ODD),
        ("halved", (2, ["a", ""]), EMPTY_NAME),
        ("doubled", (2, ["a", ""]), EMPTY_NAME_OF),
        ("halved", (2, []), NO_NAMES),
        ("doubled", (0, []), ZERO),
        ("halved", (2, ["a"] * 3), MANY),
        ("doubled", (7, []), LARGE),
        ("tripled", (7,), LARGE_THIRD),
        ("tripled", (10,), PIECES),
    ],
)
def test_a_refusal_is_noted_by_where_it_was_made(
    rules: Any, function: str, arguments: tuple[Any, ...], name: str
) -> None:
    refusals = Refusals(package())
    with pytest.raises((ValueError, NotImplementedError)) as caught:
        getattr(rules, function)(*arguments)
    refusals.note(caught.value)
    assert take() == {name}


def test_a_check_that_others_call_refuses_in_their_names_only(rules: Any) -> None:
    refusals = Refusals(package())
    with pytest.raises(ValueError, match="number = 9, but should be small") as caught:
        rules.require_small("number", 9)
    refusals.note(caught.value)
    assert take() == frozenset()


@pytest.mark.usefixtures("rules")
def test_a_reason_belongs_to_the_refusals_that_its_pattern_fits() -> None:
    exceptions = [
        {"names": ["number *[numbers.halved]"], "never": "x"},
        {"names": [NO_NAMES], "device": "cuda"},
    ]
    found = Refusals(package(), exceptions=exceptions).declared()
    assert {name for name, one in found.items() if one.never == "x"} == {NO_INT, NEGATIVE, ODD}
    assert {name for name, one in found.items() if one.device} == {NO_NAMES}


@pytest.mark.usefixtures("rules")
@pytest.mark.parametrize("names", [["number should be prime *"], [NO_NAMES, "names should not *"]])
def test_a_reason_for_no_refusal_or_a_second_reason_is_an_error(names: list[str]) -> None:
    with pytest.raises(ValueError, match=r"names = .*, but should fit refusals of its own \[Refusals\]"):
        Refusals(package(), exceptions=[{"names": names, "never": "x"}]).declared()


def test_an_answer_that_refuses_notes_the_refusal() -> None:
    load_properties()
    take()
    answer(call("compute_varlen_chunk_metadata", query_start_loc=int32([1, 5]), chunk_size=4))
    assert take() == {"query_start_loc[0] should be 0 [chunks.varlen_chunk_metadata]"}


def test_every_refusal_is_a_mark_of_a_module_of_rules_or_answers() -> None:
    load_properties()
    assert REFUSALS.declared().items() <= every_situation().items()
    reasons = [one.never for one in REFUSALS.declared().values() if one.never]
    assert all(len(reason.split()) >= 5 for reason in reasons)


def test_the_definition_of_each_rule_is_that_of_the_whole_file() -> None:
    load_properties()
    parts = 0
    for module in [one for name, one in sys.modules.items() if name.startswith("oracle.")]:
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        whole = {ast.dump(node, include_attributes=True) for node in ast.walk(ast.parse(source))}
        for code in _functions_in(compile(source, str(module.__file__), "exec")):
            # Columns count from the beginning of the line, and a method is indented.
            indented = code.co_qualname != code.co_name
            assert indented or ast.dump(_node(code), include_attributes=True) in whole
            assert _node(code).name == code.co_name
            parts += 1
    assert parts > 300


def _functions_in(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            if one.co_name[0] != "<" and one.co_flags & inspect.CO_OPTIMIZED:
                yield one
            yield from _functions_in(one)
