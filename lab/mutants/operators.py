"""All mutants of a file: changes of its expressions, and statements that are left out.

Docstrings, annotations, aliases of types, decorators, `__all__`, messages of errors, assertions, `strict` of `zip` and code for types
only are not changed: no behaviour that a caller may rely on depends on them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lab.mutants.expressions import OPERATORS, Change, name_of, of_triton
from lab.mutants.mutant import IMPORT, Edit, Mutant, Source, identified

_DROPPED = (ast.AugAssign, ast.Continue, ast.Break, ast.Raise, ast.Delete)
_ATOMIC = {"atomic_add": "{old} + {value}", "atomic_xchg": "{value}", "atomic_or": "{old} | {value}"}
_OF_TYPES = frozenset({"TypeVar", "ParamSpec", "NewType", "NamedTuple"})


def mutants_of(path: str, content: bytes) -> list[Mutant]:
    """All mutants of a file, in the order of its text.

    Args:
        path: how the file is named in the mutants' identities.

    Raises:
        ValueError: the file is no Python source.
    """
    try:
        source = Source(content)
    except SyntaxError as error:
        raise ValueError(f"{path} = {error.msg}, but should be Python source [mutants]") from error
    edits = sorted(_Walk(source).module(), key=lambda edit: (edit.start, edit.end))
    return identified(path, source, edits)


@dataclass(frozen=True)
class _Place:
    """Where a node stands.

    Args:
        bound: names that have a value before the statement.
        last: whether the statement is the last one of its function.
    """

    function: str = ""
    lines: tuple[int, int] = IMPORT
    kernel: bool = False
    bound: frozenset[str] = frozenset()
    last: bool = False

    def edit(self, change: Change) -> Edit:
        return Edit(*change, self.function, self.lines, self.kernel)


class _Walk:
    def __init__(self, source: Source) -> None:
        self._source = source

    def module(self) -> Iterator[Edit]:
        yield from self._body(self._source.tree.body, _Place())

    def _body(self, body: Sequence[ast.stmt], place: _Place) -> Iterator[Edit]:
        bound = place.bound
        for number, statement in enumerate(body):
            last = place.last and number == len(body) - 1
            yield from self._statement(statement, replace(place, bound=bound, last=last))
            bound |= {
                node.id
                for node in ast.walk(statement)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }

    def _statement(self, node: ast.stmt, place: _Place) -> Iterator[Edit]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from self._function(node, place)
        elif isinstance(node, ast.ClassDef):
            function = f"{place.function}.{node.name}".lstrip(".")
            yield from self._body(node.body, replace(place, function=function))
        elif not _of_types(node) and not _is_docstring(node) and not isinstance(node, ast.Assert):
            yield from self._changed(node, place)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, place: _Place) -> Iterator[Edit]:
        function = f"{place.function}.{node.name}".lstrip(".")
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                yield from self._expression(default, replace(place, function=function))
        kernel = place.kernel or any("jit" in self._source.of(one) for one in node.decorator_list)
        lines = (node.lineno, node.end_lineno or node.lineno)
        arguments = node.args
        names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        bound = frozenset(word.arg for word in names)
        yield from self._body(node.body, _Place(function, lines, kernel, bound, last=True))

    def _changed(self, node: ast.stmt, place: _Place) -> Iterator[Edit]:
        bodies = [
            part for name in ("body", "orelse", "finalbody") for part in (getattr(node, name, []),) if part
        ]
        handlers = getattr(node, "handlers", [])
        first = min((one.lineno for part in (*bodies, handlers) for one in part), default=0)
        if place.lines != IMPORT and not place.kernel:
            end = max(node.lineno, first - 1) if first else node.end_lineno or node.lineno
            place = replace(place, lines=(node.lineno, end))
        yield from map(place.edit, self._dropped(node, place))
        yield from map(place.edit, self._plain(node))
        yield from self._expression(node, place)
        loop = isinstance(node, (ast.For, ast.While))
        inner = replace(place, last=place.last and not loop) if place.last or not loop else place
        if loop:
            stored = {
                one.id
                for one in ast.walk(node)
                if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
            }
            inner = replace(inner, bound=inner.bound | stored)
        for part in bodies:
            yield from self._body(part, inner)
        for handler in handlers:
            yield from self._body(handler.body, inner)

    def _dropped(self, node: ast.stmt, place: _Place) -> Iterator[Change]:
        operator = "statement"
        if isinstance(node, ast.Expr) and isinstance(
            node.value, (ast.Call, ast.Yield, ast.YieldFrom, ast.Await)
        ):
            if of_triton(node.value, "static_assert"):
                return
            if of_triton(node.value, "debug_barrier"):
                operator = "barrier"
            elif of_triton(node.value, "store", "atomic_add", "atomic_xchg"):
                operator = "store"
        elif isinstance(node, ast.Assign):
            names = [
                one.id
                for one in ast.walk(node)
                if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
            ]
            if not all(name in place.bound for name in names):
                return
        elif isinstance(node, ast.Return):
            if place.last:
                return
        elif not isinstance(node, _DROPPED):
            return
        yield operator, *self._source.span(node), "pass"

    def _plain(self, node: ast.stmt) -> Iterator[Change]:
        """An atomic access of a kernel as a load and a store, in front of its statement."""
        if not isinstance(node, (ast.Expr, ast.Assign, ast.Return)):
            return
        start, end = self._source.span(node)
        for call in ast.walk(node):
            if not (isinstance(call, ast.Call) and of_triton(call, *_ATOMIC) and len(call.args) >= 2):
                continue
            pointer, value = (self._source.of(argument) for argument in call.args[:2])
            first, behind = self._source.span(call)
            rest = self._source.text(start, first) + "plain_" + self._source.text(behind, end)
            new = _ATOMIC[name_of(call.func)].format(old="plain_", value=value)
            follow = "" if isinstance(node, ast.Expr) else f"; {rest}"
            yield "atomic", start, end, f"plain_ = tl.load({pointer}); tl.store({pointer}, {new}){follow}"

    def _expression(self, node: ast.AST, place: _Place) -> Iterator[Edit]:
        for operator in OPERATORS.get(type(node), ()):
            yield from map(place.edit, operator(self._source, node))
        for child in _changeable(node):
            yield from self._expression(child, place)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _of_types(node: ast.stmt) -> bool:
    """Whether a statement is about types or exports only."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        exports = any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)
        called = name_of(node.value.func) if isinstance(node.value, ast.Call) else ""
        return exports or called in _OF_TYPES or (len(targets) == 1 and _is_alias(targets[0], node.value))
    return isinstance(node, (ast.Import, ast.ImportFrom))


def _is_alias(target: ast.expr, value: ast.expr | None) -> bool:
    """Whether an assignment names a type, as in `Rows = tuple[int, ...]`: a name in capitals and lower case, and a subscript or a union."""
    name = target.id.lstrip("_") if isinstance(target, ast.Name) else ""
    return name[:1].isupper() and not name.isupper() and _is_type(value)


def _is_type(value: ast.expr | None) -> bool:
    is_union = isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr)
    return is_union or isinstance(value, ast.Subscript)


def _changeable(node: ast.AST) -> Iterator[ast.AST]:
    """The expressions in a node whose changes matter: not those of statements inside of it, of types or of messages."""
    if isinstance(node, (ast.JoinedStr, ast.Raise, ast.Lambda)):
        yield from (node.body,) if isinstance(node, ast.Lambda) else ()
        return
    if isinstance(node, ast.Call):
        name = name_of(node.func)
        if name in ("refuse", "Refused"):
            return
        if name == "require":
            yield from node.args[:1]
            return
        if name == "cast":
            yield from node.args[1:]
            return
        if name == "zip":
            # Like an assertion: lengths that differ are an error of the caller's in both.
            yield from node.args
            return
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "body", "orelse", "finalbody", "handlers") and not isinstance(
            node, ast.IfExp
        ):
            continue
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, (ast.expr, ast.comprehension, ast.keyword, ast.withitem, ast.match_case)):
                yield child
