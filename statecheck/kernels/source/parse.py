"""Reads the text of a module, which is what `str(module)` gives after the stage `ttir`.

The text, because Triton's Python bindings do not show enough of a module: a region gives no blocks, a block no operations, and
attributes are numbers, flags and strings only, so that constants of tiles cannot be read. The text has everything.

Values are resolved by their scope, so that two values of one name in different regions are two objects. Locations become the
innermost line of kernel code.
"""

from __future__ import annotations

import re
from pathlib import Path

import triton

from statecheck.kernels.source.ir import (
    NOWHERE,
    Block,
    FuncOp,
    NotUnderstoodError,
    Operation,
    SourcePlace,
    Type,
    Value,
    outside_brackets,
    result_types,
    split,
    type_of,
)


def balanced(text: str, start: int) -> tuple[str, str]:
    """What is inside of the parenthesis at `start`, and what is behind it."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return text[start + 1 : at], text[at + 1 :]
    raise NotUnderstoodError(f"a parenthesis in {text[:60]}")


def without_locations(text: str) -> str:
    while (at := text.find(" loc(")) >= 0:
        _, rest = balanced(text, at + 4)
        text = text[:at] + rest
    return text


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def without_strings(text: str) -> str:
    return _STRING.sub('""', text)


def split_types(rest: str) -> tuple[str, str]:
    """An operation's text before and behind the colon that introduces types."""
    plain = _STRING.sub(lambda match: "_" * len(match.group()), rest)
    colons = [at for at in outside_brackets(plain, ":") if plain[at - 1] == " "]
    if not colons:
        return rest, ""
    return rest[: colons[-1]].strip(), rest[colons[-1] + 1 :].strip()


_LOC_LINE = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_FILE_LOC = re.compile(r'^"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
_NAME_LOC = re.compile(r'^"(?:[^"\\]|\\.)*"\((#loc\d*)\)$')
_CALL_LOC = re.compile(r"^callsite\((#loc\d*) at (#loc\d*)\)$")
_FUSED_LOC = re.compile(r"^fused(?:<.*>)?\[(.*)\]$")


_LIBRARY = str(Path(triton.__file__).parent)


class Locations:
    def __init__(self, lines: list[str]) -> None:
        self._texts = {
            match.group(1): match.group(2) for line in lines if (match := _LOC_LINE.match(line)) is not None
        }
        self._stacks: dict[str, tuple[tuple[str, int], ...]] = {}
        self._places: dict[tuple[tuple[str, int], ...], SourcePlace] = {(): NOWHERE}

    def place(self, name: str) -> SourcePlace:
        stack = self._stack(name)
        if stack not in self._places:
            # What a function of Triton's library does, the line that calls it does.
            own = next((at for at, (file, _) in enumerate(stack) if not file.startswith(_LIBRARY)), 0)
            self._places[stack] = SourcePlace(*stack[own], stack[own + 1 :])
        return self._places[stack]

    def _stack(self, name: str) -> tuple[tuple[str, int], ...]:
        if name not in self._stacks:
            self._stacks[name] = self._read(self._texts.get(name, "unknown"))
        return self._stacks[name]

    def _read(self, text: str) -> tuple[tuple[str, int], ...]:
        if (match := _FILE_LOC.match(text)) is not None:
            return ((match.group(1), int(match.group(2))),)
        if (match := _NAME_LOC.match(text)) is not None:
            return self._stack(match.group(1))
        if (match := _CALL_LOC.match(text)) is not None:
            return self._stack(match.group(1)) + self._stack(match.group(2))
        if (match := _FUSED_LOC.match(text)) is not None:
            return self._stack(match.group(1).split(",")[0].strip())
        return ()


def parsed(text: str) -> list[FuncOp]:
    """The functions of a module, by its text.

    Raises:
        NotUnderstoodError: something in the text is new.
    """
    return _Parser(text).functions()


_OPERAND = re.compile(r"%[\w$.-]+(?:#\d+)?")
_LOC_TAIL = re.compile(r"\s*loc\((#loc\d*|unknown)\)$")
_RESULTS = re.compile(r"^((?:%[\w$.-]+(?::\d+)?(?:,\s*)?)+) = ")
_NAME = re.compile(r'^"?([a-z_]+\.[\w.]+)"?')


class _Scope:
    def __init__(self, outer: _Scope | None = None) -> None:
        self._outer, self._values = outer, dict[str, Value]()

    def define(self, name: str, value: Value) -> None:
        self._values[name] = value

    def find(self, name: str) -> Value:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope._values:
                return scope._values[name]
            scope = scope._outer
        raise NotUnderstoodError(f"the value {name}, which nothing defines")


class _Parser:
    def __init__(self, text: str) -> None:
        lines = text.splitlines()
        self._locations = Locations(lines)
        self._lines = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        self._at = 0
        self._names: dict[str, int] = {}

    def functions(self) -> list[FuncOp]:
        result: list[FuncOp] = []
        while self._at < len(self._lines):
            line = self._next()
            if line.startswith("tt.func"):
                result.append(self._function(line))
        return result

    def _next(self) -> str:
        line = self._lines[self._at]
        self._at += 1
        return line

    def _value(self, name: str, kind: Type) -> Value:
        plain = re.sub(r"\W", "_", name.lstrip("%"))
        number = self._names.get(plain, 0)
        self._names[plain] = number + 1
        return Value(f"v_{plain}" + (f"__{number}" if number else ""), kind)

    def _function(self, line: str) -> FuncOp:
        match = re.match(r"tt\.func (public |private )?@(\"[^\"]*\"|[\w$.]+)\(", line)
        if match is None:
            raise NotUnderstoodError(f"the function {line[:60]}")
        inside, rest = balanced(line, match.end() - 1)
        scope = _Scope()
        arguments = self._arguments(inside, scope)
        results: list[Type] = []
        if rest.strip().startswith("->"):
            returned = rest.strip()[2:].split("attributes")[0].rstrip(" {").strip()
            results = [
                type_of(text)
                for text in split(returned.strip("()") if returned.startswith("(") else returned)
            ]
        blocks, _ = self._region(scope)
        return FuncOp(match.group(2).strip('"'), match.group(1) != "private ", arguments, results, blocks)

    def _arguments(self, text: str, scope: _Scope) -> list[Value]:
        result = []
        for argument in split(without_locations(text)):
            name, _, kind = argument.partition(":")
            kind = re.sub(r"\{.*\}$", "", kind.strip()).strip()
            value = self._value(name.strip(), type_of(kind))
            scope.define(name.strip(), value)
            result.append(value)
        return result

    def _region(self, scope: _Scope, arguments: list[Value] | None = None) -> tuple[list[Block], str]:
        """Blocks up to the line that closes the region, and that line."""
        blocks = [Block("", arguments or [])]
        while True:
            line = self._next()
            if line.startswith("}"):
                return _resolved(
                    [block for block in blocks if block.operations or block.label or len(blocks) == 1]
                ), line
            if line.startswith("^"):
                blocks.append(self._header(line, scope))
                continue
            blocks[-1].operations.append(self._operation(line, scope))

    def _header(self, line: str, scope: _Scope) -> Block:
        label, arguments = re.match(r"\^\w+", line), list[Value]()
        assert label is not None
        if line[label.end() :].startswith("("):
            inside, _ = balanced(line, label.end())
            arguments = self._arguments(inside, scope)
        return Block(label.group(), arguments)

    def _operation(self, line: str, scope: _Scope) -> Operation:
        line, place = self._located(line)
        results_text = ""
        match = _RESULTS.match(line)
        if match is not None:
            results_text, line = match.group(1), line[match.end() :]
        named = _NAME.match(line)
        if named is None:
            raise NotUnderstoodError(f"the line {line[:80]}")
        name, rest = named.group(1), line[named.end() :].strip()
        opens = rest.endswith("{")
        special = getattr(self, "_" + name.replace(".", "_"), None)
        if special is not None:
            operation: Operation = special(rest, scope)
        elif opens:
            operation = self._with_regions(name, rest, scope)
        else:
            operation = self._plain(name, rest, scope)
        if operation.place is NOWHERE:
            operation.place = place
        self._define_results(operation, results_text, scope)
        return operation

    def _located(self, line: str) -> tuple[str, SourcePlace]:
        match = _LOC_TAIL.search(line)
        if match is None:
            return line, NOWHERE
        return line[: match.start()].rstrip(), self._locations.place(match.group(1))

    def _define_results(self, operation: Operation, text: str, scope: _Scope) -> None:
        if not text:
            return
        types = result_types(operation)
        for result in text.split(","):
            name, _, count = result.strip().partition(":")
            for number in range(int(count or 1)):
                if not types:
                    raise NotUnderstoodError(f"the results of {operation.name}")
                value = self._value(f"{name}_{number}" if count else name, types.pop(0))
                scope.define(f"{name}#{number}" if count else name, value)
                operation.results.append(value)

    def _plain(self, name: str, rest: str, scope: _Scope) -> Operation:
        text, types = split_types(rest)
        if name in ("cf.br", "cf.cond_br"):
            return self._branch(name, rest, scope)
        operands = [scope.find(operand) for operand in _OPERAND.findall(without_strings(text))]
        return Operation(name, [], operands, text, types)

    def _branch(self, name: str, rest: str, scope: _Scope) -> Operation:
        head = _OPERAND.match(rest)
        operands = [scope.find(head.group())] if name == "cf.cond_br" and head is not None else []
        successors = []
        for match in re.finditer(r"\^(\w+)(?:\(([^:)]*))?", rest):
            passed = [scope.find(operand) for operand in _OPERAND.findall(match.group(2) or "")]
            successors.append(("^" + match.group(1), passed))
        return Operation(name, [], operands, rest, "", successors=successors)

    def _with_regions(self, name: str, rest: str, scope: _Scope) -> Operation:
        """An operation in generic form, such as `"tt.reduce"(%x) <{axis = 0 : i32}> ({`."""
        operands = [scope.find(operand) for operand in _OPERAND.findall(rest)]
        regions = []
        while True:
            blocks, line = self._region(_Scope(scope))
            regions.append(blocks)
            if not line.endswith("{"):
                break
        line, place = self._located(line)
        types = line.lstrip("}) ").removeprefix(":").strip()
        return Operation(name, [], operands, rest, types, regions, place=place)

    def _scf_if(self, rest: str, scope: _Scope) -> Operation:
        head, _, types = rest.rstrip("{ ").partition(" -> ")
        operands = [scope.find(operand) for operand in _OPERAND.findall(head)]
        blocks, line = self._region(_Scope(scope))
        regions = [blocks]
        if line.startswith("} else"):
            blocks, line = self._region(_Scope(scope))
            regions.append(blocks)
        return Operation("scf.if", [], operands, head, types, regions, place=self._located(line)[1])

    def _scf_for(self, rest: str, scope: _Scope) -> Operation:
        inner = _Scope(scope)
        unsigned = rest.startswith("unsigned ")
        match = re.match(
            r"(?:unsigned )?(%[\w$.-]+) = (%[\w$.#-]+) to (%[\w$.#-]+) step (%[\w$.#-]+)\s*", rest
        )
        if match is None:
            raise NotUnderstoodError(f"the loop {rest[:80]}")
        operands = [scope.find(operand) for operand in match.groups()[1:]]
        rest, types, carried = rest[match.end() :], "", list[tuple[str, str]]()
        if rest.startswith("iter_args("):
            inside, rest = balanced(rest, len("iter_args"))
            carried = [(a, b) for a, b in re.findall(r"(%[\w$.-]+) = (%[\w$.#-]+)", inside)]
            types, _ = balanced(rest.strip().removeprefix("->").strip(), 0)
        counter = self._value(match.group(1), operands[0].type)
        inner.define(match.group(1), counter)
        first, arguments = self._carried(carried, types, scope, inner)
        blocks, line = self._region(inner, [counter, *arguments])
        text, place = "unsigned" if unsigned else "", self._located(line)[1]
        return Operation("scf.for", [], [*operands, *first], text, types, [blocks], place=place)

    def _carried(
        self, pairs: list[tuple[str, str]], types: str, outer: _Scope, inner: _Scope
    ) -> tuple[list[Value], list[Value]]:
        """What a loop begins with, and the values that go from one round of it to the next."""
        values = [
            self._value(name, type_of(kind)) for (name, _), kind in zip(pairs, split(types), strict=True)
        ]
        for (name, _), value in zip(pairs, values, strict=True):
            inner.define(name, value)
        return [outer.find(first) for _, first in pairs], values

    def _scf_while(self, rest: str, scope: _Scope) -> Operation:
        before, after = _Scope(scope), _Scope(scope)
        carried = list[tuple[str, str]]()
        if rest.startswith("("):
            inside, rest = balanced(rest, 0)
            carried = re.findall(r"(%[\w$.-]+) = (%[\w$.#-]+)", inside)
        match = re.match(r"\s*:\s*(\(.*\)) -> (.*?)\s*\{$", rest)
        if match is None:
            raise NotUnderstoodError(f"the loop {rest[:80]}")
        operands, arguments = self._carried(carried, match.group(1)[1:-1], scope, before)
        first_blocks, _ = self._region(before, arguments)
        blocks, line = self._region(after)
        types = match.group(2).strip()
        return Operation(
            "scf.while", [], operands, "", types, [first_blocks, blocks], place=self._located(line)[1]
        )


def _resolved(blocks: list[Block]) -> list[Block]:
    if len(blocks) > 1 and not blocks[0].operations:
        return blocks[1:]
    return blocks
