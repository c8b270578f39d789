"""Every refusal that rules can make is a situation. The sources say which there are, so that no call of `require` names itself.

A refusal is a call of `require` or `require_int`, which has two, or an exception that is raised in place. A function that checks
what others are given, `require_...` or any that refuses under a name that it was given, refuses once for each call of it.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cache
from inspect import getblock
from linecache import getlines
from pathlib import Path
from textwrap import dedent
from types import CodeType, ModuleType, TracebackType
from typing import Any, Final

from oracle.situations.registry import Situation, situations_of

_OWN: Final = ("errors.py", "rules.py")
_INT: Final = "be an int"
_ANY: Final = "…"
_Place = tuple[str, int, int]
"""A file, and the first and the last line of a call in it."""


@dataclass(frozen=True)
class RefusalSite:
    """Where a refusal is made: `function` refuses `argument`, which should follow `rule`; `calls` lead to it, the refusal itself first.

    `uncalled`: the function checks what others are given, and nothing that was looked at calls it.
    """

    function: str
    argument: str
    rule: str
    calls: tuple[_Place, ...]
    uncalled: bool = False

    @property
    def name(self) -> str:
        """A sentence for it, such as "chunk_size should be >= 1 [chunks.chunk_indices]"."""
        return f"{self.argument} should {self.rule} [{self.function}]"

    @property
    def topic(self) -> str:
        """The function's module."""
        return self.function.rpartition(".")[0]


class _Function:
    """A function of the rules, and what the names in it stand for."""

    def __init__(self, file: str, module: str, node: ast.FunctionDef) -> None:
        self.file, self.module, self.node, self.name = file, module, node, node.name
        given = node.args
        self.parameters = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        self.values: dict[str, ast.expr] = {}
        self.calls: list[tuple[str, ast.Call]] = []
        for one in _inside(node):
            if isinstance(one, ast.Call):
                self.calls.append((_called(one), one))
            elif isinstance(one, ast.Assign):
                self.values.update(_assigned(one.targets[0], one.value))

    def place(self, call: ast.Call) -> _Place:
        return self.file, call.lineno, call.end_lineno or call.lineno

    def refusals(self) -> Iterator[RefusalSite]:
        """Those that are made here."""
        for name, call in self.calls:
            made = RefusalSite(f"{self.module}.{self.name}", "", "", (self.place(call),))
            if name == "require":
                yield replace(made, argument=self.text(call.args[1]), rule=self.text(call.args[3]))
            elif name == "require_int":
                yield replace(made, argument=self.text(call.args[0]), rule=_INT)
                least = [*call.args[2:], *(one.value for one in call.keywords)]
                if least:
                    yield replace(made, argument=self.text(call.args[0]), rule=f"be >= {self.text(least[0])}")
            elif name == "Refused":
                yield replace(made, argument=self.text(call.args[0]), rule=self.text(call.args[2]))
            elif name == "Unrepresentable":
                yield replace(made, argument="a copy", rule=f"be one piece: {self.text(call.args[0])}")

    def text(self, value: ast.expr) -> str:
        """What it says, with "…" for what is known only when it is refused; a parameter in braces, which a call may fill in."""
        match value:
            case ast.Constant():
                return str(value.value)
            case ast.JoinedStr():
                return "".join(self.text(part) for part in value.values)
            case ast.FormattedValue():
                return self.text(value.value)
            case ast.IfExp():
                return f"{self.text(value.body)} or {self.text(value.orelse)}"
            case ast.Name() if value.id in self.parameters:
                return f"{{{value.id}}}"
            case ast.Name() if value.id in self.values:
                return self.text(self.values[value.id])
        return _ANY

    def filled_in(self, refusal: RefusalSite, call: ast.Call, callee: "_Function") -> RefusalSite:
        """The refusal of a function that is called here, in the name of this one."""
        given = dict(zip(callee.parameters, call.args, strict=False))
        given |= {one.arg: one.value for one in call.keywords if one.arg is not None}
        texts = {name: self.text(value) for name, value in given.items()}
        return RefusalSite(
            f"{self.module}.{self.name}",
            _filled(refusal.argument, texts),
            _filled(refusal.rule, texts),
            (*refusal.calls, self.place(call)),
        )

    @property
    def checks(self) -> bool:
        """Whether it checks what others are given."""
        return self.name.lstrip("_").startswith("require") or not {"argument", "name"}.isdisjoint(
            self.parameters
        )


class Refusals:
    """The refusals in the sources of packages, apart from their situations, each of them a situation of the function's module.

    Sources are read when they are needed: all of them by `declared`, and those of the functions of a traceback by `note`.

    Args:
        exceptions: those that are not reached on every device. `names` of each has patterns in which "*" stands for any
            text; `never` says why no property reaches them, or `device` is the only one on which they come up.
    """

    def __init__(self, *packages: ModuleType, exceptions: Iterable[Mapping[str, Any]] = ()) -> None:
        self._modules = {str(path): name for package in packages for path, name in _modules(package)}
        self._exceptions = exceptions
        self._functions: dict[CodeType, _Function] = {}
        self._noted: dict[tuple[_Function, ...], list[RefusalSite]] = {}

    @cache  # noqa: B019 - there are as many of these as packages of rules
    def declared(self) -> dict[str, Situation]:
        """By name. The first call reads all sources.

        Raises:
            ValueError: a pattern of an exception fits no refusal, or one refusal has two exceptions.
        """
        functions = [
            _Function(file, module, node)
            for file, module in self._modules.items()
            for node in ast.walk(_tree(file))
            if isinstance(node, ast.FunctionDef)
        ]
        found = {one.name: one for one in _whole(functions)}
        excepted = _excepted(found.keys(), self._exceptions)
        return {name: situations_of(one.topic)(name, **excepted.get(name, {})) for name, one in found.items()}

    def note(self, error: Exception) -> None:
        """The refusal that was raised was reached."""
        codes = list(_calls(error.__traceback__))
        calls = [(code.co_filename, line) for code, line in codes]
        is_int = getattr(error, "rule", "") == _INT
        for one in self._on_the_way([code for code, _ in codes]):
            if (one.rule == _INT) != is_int or not _within(calls, one.calls):
                continue
            # What other files call refuses in the names of callers there.
            if not one.uncalled or one.name in self.declared():
                Situation(one.name, one.topic).reached()

    def _on_the_way(self, codes: Sequence[CodeType]) -> list[RefusalSite]:
        """The refusals in the functions of a traceback, as far as each of them leads."""
        # A lambda or a comprehension is a part of the function behind it in the traceback.
        named = [code for code in codes if code.co_filename in self._modules and code.co_name[0] != "<"]
        functions = tuple(self._function(code) for code in dict.fromkeys(named))
        if functions not in self._noted:
            self._noted[functions] = [*_whole(functions)]
        return self._noted[functions]

    def _function(self, code: CodeType) -> _Function:
        if code not in self._functions:
            self._functions[code] = _Function(code.co_filename, self._modules[code.co_filename], _node(code))
        return self._functions[code]


def _excepted(names: AbstractSet[str], exceptions: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """By name what else is to be said of a refusal."""
    found: dict[str, dict[str, str]] = {}
    for exception in exceptions:
        said = {key: value for key, value in exception.items() if key != "names"}
        for pattern in exception["names"]:
            expression = re.compile(".*".join(map(re.escape, pattern.split("*"))))
            fitting = [name for name in names if expression.fullmatch(name)]
            if not fitting or not found.keys().isdisjoint(fitting):
                raise ValueError(f"names = {pattern!r}, but should fit refusals of its own [Refusals]")
            found |= dict.fromkeys(fitting, said)
    return found


def _calls(traceback: TracebackType | None) -> Iterator[tuple[CodeType, int]]:
    """Code and line of each call of the rules on the way to what was raised, the last one first."""
    found = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if Path(code.co_filename).name not in _OWN:
            found.append((code, traceback.tb_lineno))
        traceback = traceback.tb_next
    return reversed(found)


def _within(calls: Sequence[tuple[str, int]], places: Sequence[_Place]) -> bool:
    return len(calls) >= len(places) and all(
        file == of and first <= line <= last
        for (file, line), (of, first, last) in zip(calls, places, strict=False)
    )


def _modules(package: ModuleType) -> Iterator[tuple[Path, str]]:
    """The files of rules, and the names of their modules below the package."""
    root = Path(str(package.__file__)).parent
    for path in sorted(root.rglob("*.py")):
        if "situations" not in path.parts and path.name not in _OWN:
            yield path, ".".join(path.relative_to(root).with_suffix("").parts)


def _node(code: CodeType) -> ast.FunctionDef:
    """The definition of a function, with the line numbers of the file. To parse the whole file takes 5 ms."""
    above = code.co_firstlineno - 1
    lines = getblock(getlines(code.co_filename)[above:])
    (node,) = ast.parse("\n" * above + dedent("".join(lines))).body
    assert isinstance(node, ast.FunctionDef)
    return node


def _tree(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text(encoding="utf-8"))


def _whole(functions: Sequence[_Function]) -> Iterator[RefusalSite]:
    """Each refusal, with all calls that lead to it."""
    calls: dict[str, list[tuple[_Function, ast.Call]]] = {}
    for function in functions:
        for name, call in function.calls:
            calls.setdefault(name, []).append((function, call))
    found = [(one, refusal) for one in functions for refusal in one.refusals()]
    homes: dict[str, str] = {}
    for one in functions:
        if one.name.startswith("require_") and homes.setdefault(one.name, one.module) != one.module:
            raise ValueError(
                f"{one.module}.{one.name} = a check, but should have a name of its own: "
                f"{homes[one.name]} has this check, too [Refusals]"
            )
    for callee, refusal in found:
        called = calls.get(callee.name, []) if callee.checks else []
        callers = [one for one in called if not callee.name.startswith("_") or one[0].file == callee.file]
        found += [(one, one.filled_in(refusal, call, callee)) for one, call in callers]
        if not callers:
            uncalled = callee.checks and not callee.name.startswith("_")
            yield replace(
                refusal, argument=_open(refusal.argument), rule=_open(refusal.rule), uncalled=uncalled
            )


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, apart from functions in it."""
    for one in ast.iter_child_nodes(node):
        if not isinstance(one, ast.FunctionDef):
            yield one
            yield from _inside(one)


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The names that are assigned, with what each of them stands for."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, part in zip(target.elts, value.elts, strict=True):
            yield from _assigned(one, part)


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def _open(text: str) -> str:
    return re.sub(r"\{\w+\}", _ANY, text)
