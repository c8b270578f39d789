"""A case as straight-line code: the calls of the project's own functions as a person would write them, and what should come out.

`repro.py`, `test_repro.py` and what `statecheck upstream` writes have these lines. What they cannot show, such as a scenario of an
engine, a write outside of a tensor or an order of programs, is left to the replay that `replayed` packs into a script.
"""

from __future__ import annotations

import ast
import builtins
import math
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn

from statecheck import reference
from statecheck.case import Case
from statecheck.case.values import (
    ITEM_SIZES,
    OF_ACCESSES,
    Address,
    Attribute,
    BufferMaker,
    Call,
    Device,
    DType,
    Expected,
    Fake,
    Function,
    Let,
    Name,
    NumPy,
    Outcome,
    Overwrite,
    Record,
    Refusal,
    Returned,
    Returns,
    Rows,
    SameAs,
    Tensor,
    Value,
    View,
)
from statecheck.execution.registry import launches
from statecheck.execution.run import Follower, KnownMemory, recorded
from statecheck.subject import BUILT_IN, Subject

AS_LISTS = '''\
def as_lists(value):
    """Tensors and tuples as lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {key: as_lists(one) for key, one in value.items()}
    return [as_lists(one) for one in value] if isinstance(value, (list, tuple)) else value'''
_LAUNCH, _CANARY = "harness.launch", "harness.canary_identity"
_OF_ADAPTERS = frozenset({"", "subjects", "statecheck", "oracle"})
"""Packages that the project itself does not have."""
_LONGEST_ARGUMENT, _MOST_ELEMENTS = 40, 64
"""Characters of an argument that stands within the brackets of a call, and elements of memory that are compared in one list."""
_EMPTY_TENSOR = re.compile(rf"\b({'|'.join(ITEM_SIZES)})\[\]")
_NUMBERS = r"\((?:\d+, ?)*(?:\d+)?\)"
_VIEW = re.compile(
    rf"(?P<pool>[a-z]\w*)\.view\(torch\.(?:{'|'.join(ITEM_SIZES)})\)\.as_strided\({_NUMBERS}, {_NUMBERS}, \d+\)"
)
_ADDRESS = re.compile(r"(?P<pool>[a-z]\w*) \+ (?P<offset>\d+)")
_TAKEN = frozenset(dir(builtins)) | {"torch", "as_lists", "result", "expected", "os", "sys", "check"}
"""What no variable may be called."""


@dataclass(frozen=True)
class PlainCalls:
    """The lines of a case.

    Args:
        modules: those of the project that the lines name, by what they are called there.
        functions: the functions, classes and kernels of these modules, as the lines write them.
        lines: the calls, and an assertion.
        environment: variables that the project reads.
        interpreted: whether they launch kernels, which Triton interprets where there is no GPU.
    """

    modules: dict[str, str]
    functions: tuple[str, ...]
    lines: tuple[str, ...]
    environment: dict[str, str]
    interpreted: bool

    @property
    def helpers(self) -> str:
        return AS_LISTS if any("as_lists(" in line for line in self.lines) else ""

    @property
    def takes_torch(self) -> bool:
        return any("torch." in line for line in self.lines)

    @property
    def imports(self) -> list[str]:
        text = "\n".join(self.lines)
        found = ["import re"] if "re.search(" in text else []
        return [*found, *(["from types import SimpleNamespace"] if "SimpleNamespace(" in text else [])]


def plain_calls(case: Case, subject: Subject | None) -> PlainCalls:
    """The lines for a case of a subject, which is None where it cannot be imported here.

    Raises:
        ValueError: plain calls do not show what the case shows, with the reason.
    """
    number = require_plain(case)
    if subject is None and case.subject.partition("+")[0] in BUILT_IN:
        _refuse("its subject cannot be imported here", case)
    writer = _Writer(case, subject, number)
    ported = bool(case.own_calls) or (subject is not None and bool(subject.functions))
    lines = tuple(writer.of_port() if ported else writer.of_documents())
    interpreted = case.device == "cpu" and any(launches(call.function) for call in case.calls)
    environment = {} if ported else dict(next(iter(_variables(case)), ()))
    return PlainCalls(writer.modules, tuple(writer.functions), lines, environment, interpreted)


def require_plain(case: Case) -> int:
    """The number of the call that shows the failure.

    Raises:
        ValueError: as `plain_calls`.
    """
    failure = case.failure
    if case.model:
        _refuse("repro.py is a script for the library alone already", case)
    if any(call.function.partition(".")[0].endswith("Engine") for call in case.calls):
        _refuse("a scenario runs in an engine around a forward of statecheck's own", case)
    if failure is None or failure.call is None or failure.kind in OF_ACCESSES:
        _refuse("no single call shows the failure by what it returns or raises", case)
    if case.sanitized or any(call.schedule for call in case.calls):
        _refuse("it takes statecheck to see the failure", case)
    if not case.is_decisive:
        _refuse(f"the failure depends on {case.depends_on}", case)
    # A port gets as arguments what the documented functions read of variables.
    if not case.own_calls and len(_variables(case)) > 1:
        _refuse("it takes variables that change, which the project may read once", case)
    if any(isinstance(outcome, Refusal) for outcome in case.expected[: failure.call]):
        _refuse("calls before it are refused", case)
    return failure.call


def _variables(case: Case) -> set[tuple[tuple[str, str], ...]]:
    """The environments of the calls that may read variables."""
    return {call.environment for call in case.calls if reference.reads_variables(call.function)}


@dataclass
class _Writer:
    """The lines of a case up to the call that fails."""

    case: Case
    subject: Subject | None
    number: int
    modules: dict[str, str] = field(default_factory=dict)
    functions: dict[str, None] = field(default_factory=dict)

    def of_port(self) -> Iterator[str]:
        """Calls of a port's functions with numbers and lists, each as it was made."""
        case, subject, number = self.case, self.subject, self.number
        module = subject.module.__name__ if subject is not None else case.subject
        function = case.calls[number].function
        name = subject.own_name(function) if subject is not None else ""
        written = case.own_calls[number].splitlines() if number < len(case.own_calls) else []
        if not written or not written[-1].startswith(f"{name}(" if name else ""):
            _refuse(f"{function} is no call of a function of the port", case)
        pools: set[str] = set()
        calls = [
            [self._own_call(module, line, pools) for line in text.splitlines()]
            for text in case.own_calls[: number + 1]
        ]
        rules = Follower(recorded(case.expected))
        at = 0
        for step, asked in rules.follow(case.steps):
            memory = rules.memory
            if asked is not None:
                if at == number:
                    yield from calls[at][:-1]
                    expected, actual = case.expected[number], case.actual[number]
                    yield from self._compared(calls[at][-1], expected, actual, memory=memory, shown=pools)
                    return
                yield from calls[at]
                at += 1
            elif isinstance(step, Let) and step.name in pools:
                self._require_free(step.name)
                yield f"{step.name} = {self._literal(step.value, memory)}"
            elif isinstance(step, Overwrite):
                bound = memory.names[step.name]
                if (bound.of if isinstance(bound, View) else step.name) in pools:
                    yield self._overwrite(step, memory)

    def _own_call(self, module: str, line: str, pools: set[str]) -> str:
        """A recorded call as Python; the pools that its states are views of are added to `pools`."""
        try:
            call = ast.parse(_EMPTY_TENSOR.sub(r"\1[()]", line), mode="eval").body
            # The line may come from an untrusted file.
            assert isinstance(call, ast.Call)
            assert isinstance(call.func, ast.Name)
            assert not call.args
            given = ", ".join(
                f"{keyword.arg}={_source_of(keyword.value, pools)}" for keyword in call.keywords
            )
        except (AssertionError, SyntaxError, ValueError):
            name = line.partition("(")[0]
            _refuse(f"the call {name} has values that are no numbers, lists and tensors", self.case)
        return f"{self._imported(module, call.func.id)}({given})"

    def of_documents(self) -> Iterator[str]:
        """Calls of documented functions, as the project itself has them, with the values that they take."""
        rules = Follower(recorded(self.case.expected))
        for call in self.case.calls[: self.number + 1]:
            if call.function != _LAUNCH:
                self._own(call.function)
        calls = 0
        for step, asked in rules.follow(self.case.steps):
            if isinstance(step, Let):
                self._require_free(step.name)
                yield f"{step.name} = {self._literal(step.value, rules.memory)}"
            elif isinstance(step, Overwrite):
                yield self._overwrite(step, rules.memory)
            else:
                assert asked is not None
                last = calls == self.number
                calls += 1
                yield from self._call(step, rules.memory, last=last)
                if last:
                    return

    def _overwrite(self, step: Overwrite, memory: KnownMemory) -> str:
        bound = memory.names[step.name]
        if not isinstance(bound, Tensor) or not bound.is_dense:
            _refuse(f"{step.name} is a part of a tensor that is written in place", self.case)
        new = literal(Tensor(bound.dtype, bound.shape, step.elements, on="host"))
        return f"{step.name}.copy_({new})"

    def _call(self, call: Call, memory: KnownMemory, *, last: bool) -> Iterator[str]:
        named, given = call.named, list[str]()
        texts = {name: self._literal(value, memory) for name, value in named.items()}
        for name, text in texts.items():
            # What the assertion names, and what would make the call hard to read.
            if len(text) > _LONGEST_ARGUMENT and not isinstance(named[name], (Name, dict)):
                variable = f"{name}_" if name in _TAKEN or name in memory.names or name == "self" else name
                self._require_free(variable)
                given.append(f"{variable} = {text}")
                texts[name] = variable
        receiver = named.get("self")
        if any(isinstance(part, BufferMaker) for value in named.values() for part in _inside(value)):
            self._require_free("make_buffer")
            place = f'device=torch.device("{self.case.device}"), pin_memory={self.case.device != "cpu"}'
            buffer = self._own("CpuGpuBuffer")
            given.append(f"make_buffer = lambda *size, dtype: {buffer}(*size, dtype=dtype, {place})")
        if call.function == _LAUNCH:
            kernel, grid = self._own(str(named["kernel"])), ", ".join(map(repr, named["grid"]))
            passed = {**named["arguments"], **named["constexprs"]}
            if not all(str(name).isidentifier() for name in passed):
                _refuse("an argument of the kernel has no name", self.case)
            arguments = ", ".join(f"{name}={self._literal(value, memory)}" for name, value in passed.items())
            written = f"{kernel}[({grid},)]({arguments})"
        else:
            function = self._own(call.function)
            if isinstance(receiver, Name) and not call.function.endswith((".fget", "__")):
                function = f"{texts.pop('self')}.{call.function.rpartition('.')[2]}"
            positional = [texts[name] for name, _ in call.arguments if name in texts]
            keywords = [f"{name}={texts[name]}" for name, _ in call.keywords if name in texts]
            written = f"{function}({', '.join([*positional, *keywords])})"
        if not last:
            yield from (*given, f"{call.bind} = {written}" if call.bind else written)
            return
        expected, actual = self.case.expected[self.number], self.case.actual[self.number]
        variables = {name: text for name, text in texts.items() if text.isidentifier()}
        yield from self._compared(written, expected, actual, given, variables, memory)

    def _compared(
        self,
        written: str,
        expected: Expected,
        actual: Outcome,
        given: Sequence[str] = (),
        variables: Mapping[str, str] = MappingProxyType({}),
        memory: KnownMemory | None = None,
        shown: Collection[str] | None = None,
    ) -> Iterator[str]:
        """The last call, and assertions. An assertion fails while the call has the same wrong result.

        Args:
            shown: names of tensors that the lines have; None for all of the case.

        Raises:
            ValueError: none would fail.
        """
        if isinstance(expected, Refusal):
            if not expected.exception.isidentifier() or not f"_{expected.argument}".isidentifier():
                _refuse("what it should raise has no name", self.case)
            yield "try:"
            # The class of an argument may refuse it already.
            yield from (f"    {line}" for line in (*given, f"result = {written}"))
            yield f"except {expected.exception} as error:"
            # As a word: x is none in "max".
            pattern = rf"(?<!\w){re.escape(expected.argument)}(?!\w)"
            yield f"    assert re.search({pattern!r}, str(error)), f'{{error}}, but should name {expected.argument}'"
            yield "else:"
            wanted = f"{expected.exception} that names {expected.argument}"
            yield f'    raise AssertionError(f"result = {{result}}, but should be a {wanted}")'
            return
        if actual.changed:
            _refuse("it writes where it may not", self.case)
        before, behind = list[str](), list[str]()
        seen_after = dict(actual.after)
        for name, known in expected.after if memory is not None else ():
            found = seen_after.get(name)
            # What was not observed shows nothing.
            if found is not None and isinstance(actual, Returned) and (shown is None or name in shown):
                assert memory is not None
                bound = memory.names.get(name)
                if isinstance(bound, dict | list) or (bound is None and _is_path(name, memory.names)):
                    for place, want, got in _leaves(name, known, found, variables, self.case):
                        behind += _asserted(place, want) if want != got else ()
                    continue
                if known == found:
                    continue
                if (
                    not isinstance(known, Tensor)
                    or not isinstance(found, Tensor)
                    or not isinstance(bound, Tensor | View)
                ):
                    _refuse(f"{name} is nothing that a line can compare", self.case)
                lines = _memory(name, bound, memory.contents(name), known, self.case)
                before += lines[0]
                behind += lines[1]
        seen = actual.value if isinstance(actual, Returned) else _Other()
        leaves = list(_leaves("result", expected.value, seen, variables, self.case))
        differing = [(place, want) for place, want, got in leaves if want != got]
        # Numbers that are equal may have another type, such as a list in place of a tensor.
        differing = differing or ([] if behind else list(_other_types("result", expected.value, seen)))
        if not differing and not behind:
            _refuse("what differs is no number and no type of the result", self.case)
        yield from (*given, *before)
        if differing and differing[0][0] == "result" and isinstance(differing[0][1], (list, dict)):
            yield f"result = as_lists({written})"
            yield from _asserted("result", differing[0][1], form="result")
        else:
            yield f"result = {written}" if differing else written
            for place, want in differing:
                yield from _asserted(place, want)
        yield from behind

    def _literal(self, value: Value, memory: KnownMemory) -> str:
        for inside in _inside(value):
            if isinstance(inside, Fake):
                _refuse("it takes a Fake of statecheck's own", self.case)
            if isinstance(inside, View):
                pool = memory.names.get(inside.of)
                if (
                    not isinstance(pool, Tensor)
                    or not pool.is_dense
                    or pool.elements is None
                    or pool.dtype != "uint8"
                ):
                    _refuse(f"{inside.of} is no memory that a line can make", self.case)
                if pool.storage_size % 8 and inside.dtype not in ("uint8", "int8", "bool"):
                    _refuse(f"{inside.of} is not divided into elements of {inside.dtype}", self.case)
        text = literal(value, self._own)
        if self.case.device == "cpu":
            return text.replace(", device=DEVICE", "").replace("torch.device(DEVICE)", 'torch.device("cpu")')
        return text.replace("device=DEVICE", f"device={self.case.device!r}").replace(
            "torch.device(DEVICE)", f"torch.device({self.case.device!r})"
        )

    def _own(self, name: str) -> str:
        """What the project itself calls what the documents call so; its module is imported."""
        if not all(part.isidentifier() for part in name.split(".")):
            _refuse(f"{name!r} is no name", self.case)
        if name == _CANARY:
            return self._imported("statecheck.execution.in_process", "canary_identity")
        if name.startswith("harness."):
            _refuse(f"{name} is statecheck's own", self.case)
        if self.subject is None:
            if name[:1].isupper():
                _refuse("its subject cannot be imported here", self.case)
            return self._imported(self.case.subject, name)
        root, dot, rest = name.partition(".")
        if not self.subject.has(root):
            if not dot and root[:1].isupper():
                # As an example builds an object of a class that the subject does not have.
                return "SimpleNamespace"
            _refuse(f"{self.subject.name} has no {name}", self.case)
        found = self.subject.resolve(root)
        if not self.subject.is_adapter:
            return self._imported(self.subject.module.__name__, name)
        module = str(getattr(found, "__module__", ""))
        own_name = str(getattr(found, "__qualname__", root))
        # An adapter's function may have the names of the function that it wraps.
        there: Any = sys.modules.get(module)
        for part in own_name.split("."):
            there = getattr(there, part, None)
        if there is not found or module.partition(".")[0] in _OF_ADAPTERS:
            _refuse(f"an adapter stands between {name} and the project's own code", self.case)
        return self._imported(module, f"{own_name}{dot}{rest}")

    def _imported(self, module: str, name: str) -> str:
        alias = module.rpartition(".")[2]
        if self.modules.setdefault(alias, module) != module:
            _refuse(f"two modules of the project are called {alias}", self.case)
        self.functions[f"{alias}.{name}"] = None
        return f"{alias}.{name}"

    def _require_free(self, name: str) -> None:
        if name in _TAKEN or name in self.modules:
            _refuse(f"{name} is the name of something else in a script", self.case)


def _source_of(node: ast.expr, pools: set[str]) -> str:
    """A value as a recorded call has it, as Python: `int32[0, 5]` is a tensor, and `int32[2, 2, 2] [...]` one with its shape before it.

    A view of a pool is Python already, and a list such as `[pool0 + 4]` is a tensor of addresses; the names of the pools are added to `pools`.

    Raises:
        ValueError: anything but numbers, texts, lists, views and addresses of pools, and tensors of numbers.
    """
    if isinstance(node, ast.List) and node.elts:
        addresses = [_ADDRESS.fullmatch(ast.unparse(element)) for element in node.elts]
        if all(addresses):
            found = [address for address in addresses if address is not None]
            pools.update(address["pool"] for address in found)
            listed = ", ".join(f"{address['pool']}.data_ptr() + {address['offset']}" for address in found)
            return f"torch.tensor([{listed}], dtype=torch.int64)"
    if isinstance(node, (ast.List, ast.Tuple)):
        items = [_source_of(element, pools) for element in node.elts]
        return f"[{', '.join(items)}]" if isinstance(node, ast.List) else f"({', '.join([*items, ''])})"
    if view := _VIEW.fullmatch(ast.unparse(node)):
        pools.add(view["pool"])
        return view[0]
    if not isinstance(node, ast.Subscript):
        return repr(ast.literal_eval(node))
    dtype, shape = node.value, ""
    if isinstance(dtype, ast.Subscript):
        sizes = ast.literal_eval(dtype.slice)
        dtype, shape = dtype.value, f".reshape({sizes if isinstance(sizes, tuple) else (sizes,)})"
    if not isinstance(dtype, ast.Name) or dtype.id not in ITEM_SIZES:
        raise ValueError("no tensor")
    elements = ast.literal_eval(node.slice)
    # Several elements are a tuple, a single one stands alone; behind a shape, all stand in brackets of their own.
    elements = list(elements) if isinstance(elements, tuple) else [elements]
    return f"torch.tensor({elements!r}, dtype=torch.{dtype.id}){shape}"


def _inside(value: Value) -> Iterator[Value]:
    """The value, and all that it is made of."""
    yield value
    items: Any = ()
    if isinstance(value, dict):
        items = value.values()
    elif isinstance(value, (list, tuple)):
        items = value
    elif isinstance(value, Record):
        items = [item for _, item in value.fields]
    else:
        items = [getattr(value, name) for name in ("of", "value") if hasattr(value, name)]
    for item in items:
        yield from _inside(item)


def _asserted(place: str, want: Any, *, form: str = "") -> Iterator[str]:
    """An assertion on a place, in the form in which it is compared."""
    if " is " in place:
        yield f"assert {place}"
        return
    form = form or (f"as_lists({place})" if isinstance(want, (list, dict)) else place)
    yield f"expected = {want!r}"
    yield f'assert {form} == expected, f"{place} = {{{form}}}, but should be {{expected}}"'


def _is_path(name: str, names: Mapping[str, Value]) -> bool:
    """Whether the name of something observed is an expression, such as an attribute of a named object."""
    root = name.partition(".")[0]
    return root in names and all(part.isidentifier() for part in name.split("."))


def _memory(
    name: str, bound: Tensor | View, before: Value | None, known: Tensor, case: Case
) -> tuple[list[str], list[str]]:
    """Lines before and behind a call that may write to a named tensor."""
    if isinstance(bound, Tensor) and not bound.is_dense:
        _refuse(f"{name} has memory beside its elements", case)
    flat = f"{name}.reshape(-1)"
    if "float" in bound.dtype:
        flat = f"{name}.contiguous().view(torch.uint8).reshape(-1)"
    wanted = list(known.elements or ())
    if (
        len(wanted) <= _MOST_ELEMENTS
        or not isinstance(before, Tensor)
        or len(before.elements or ()) != len(wanted)
    ):
        return [], list(_asserted(name, wanted, form=f"as_lists({flat})"))
    lines = [f"wanted = {flat}.clone()"]
    old = list(before.elements or ())
    at = 0
    while at < len(wanted):
        end = at
        while end < len(wanted) and wanted[end] != old[end]:
            end += 1
        if end > at:
            lines.append(
                f"wanted[{at}:{end}] = torch.tensor({elements_of(wanted[at:end])}, dtype=wanted.dtype)"
            )
        at = end + 1
    return lines, [
        f"places = ({flat} != wanted).nonzero().flatten().tolist()",
        f'assert not places, f"{name} differs from what it should hold at {{places[:8]}}"',
    ]


def _leaves(
    place: str, want: Value, got: Value, variables: Mapping[str, str], case: Case
) -> Iterator[tuple[str, Any, Any]]:
    """Places of a result that are compared, what should be there, and what was."""
    if _is_data(want):
        yield place, as_lists(want), as_lists(got) if _is_data(got) else _Other()
    elif isinstance(want, SameAs):
        if not want.path.startswith("result") and not variables.get(want.path):
            _refuse(f"{want.path} has no name in a script", case)
        path = want.path if want.path.startswith("result") else variables[want.path]
        yield f"{place} is {path}", True, got == want
    elif isinstance(want, Address):
        if not variables.get(want.argument):
            _refuse(f"{want.argument} has no name in a script", case)
        there = isinstance(got, Address) and got.argument == want.argument
        yield (
            f"{place} - {variables[want.argument]}.data_ptr()",
            want.offset,
            got.offset if there and isinstance(got, Address) else _Other(),
        )
    elif isinstance(want, Record):
        if isinstance(got, Record) and got.type != want.type:
            _refuse("the result is of another class", case)
        fields = dict(got.fields) if isinstance(got, Record) else {}
        for name, item in want.fields:
            yield from _leaves(f"{place}.{name}", item, fields.get(name), variables, case)
    elif isinstance(want, dict):
        for key, item in want.items():
            found = got.get(key) if isinstance(got, dict) else None
            yield from _leaves(f"{place}[{key!r}]", item, found, variables, case)
    elif isinstance(want, (list, tuple)):
        if isinstance(got, (list, tuple)) and len(got) != len(want):
            _refuse("the result has another length", case)
        for number, item in enumerate(want):
            found = got[number] if isinstance(got, (list, tuple)) else None
            yield from _leaves(f"{place}[{number}]", item, found, variables, case)
    else:
        _refuse(f"the result has a {type(want).__name__}", case)


def _other_types(place: str, want: Value, got: Value) -> Iterator[tuple[str, Any]]:
    """Expressions for the types of a result that are others than they should be, each with what it should be."""
    if isinstance(want, Tensor) and isinstance(got, Tensor):
        yield from [(f"str({place}.dtype)", f"torch.{want.dtype}")] * (want.dtype != got.dtype)
        yield from [(f"list({place}.shape)", list(want.shape))] * (want.shape != got.shape)
    elif isinstance(want, Tensor):
        yield f"str(getattr({place}, 'dtype', type({place}).__name__))", f"torch.{want.dtype}"
    elif type(want) is not type(got):
        yield f"type({place}).__name__", type(want).__name__
    elif isinstance(want, (list, tuple)) and isinstance(got, (list, tuple)):
        for number, (item, found) in enumerate(zip(want, got, strict=True)):
            yield from _other_types(f"{place}[{number}]", item, found)


class _Other:
    """Stands for something that is equal to nothing."""


def _is_data(value: Value) -> bool:
    if isinstance(value, Tensor):
        return value.elements is not None and all(map(_is_data, value.elements))
    if isinstance(value, (list, tuple)):
        return all(map(_is_data, value))
    if isinstance(value, Mapping):
        return all(map(_is_data, value.values()))
    if isinstance(value, float):
        # It differs from itself.
        return not math.isnan(value)
    return value is None or isinstance(value, (bool, int, str))


def as_lists(value: Value) -> Any:
    """The value in the form to which the lines bring a result."""
    if isinstance(value, Tensor):
        flat = [number.item() if hasattr(number, "item") else number for number in value.values()]
        return _shaped(flat, value.shape)
    if isinstance(value, (list, tuple)):
        return [as_lists(item) for item in value]
    if isinstance(value, dict):
        return {key: as_lists(item) for key, item in value.items()}
    return value


def _shaped(flat: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return flat[0]
    if len(shape) == 1:
        return flat
    size = len(flat) // shape[0] if shape[0] else 0
    return [_shaped(flat[at * size : (at + 1) * size], shape[1:]) for at in range(shape[0])]


def _refuse(reason: str, case: Case) -> NoReturn:
    raise ValueError(
        f"case = {case.property_id}, but should be one that a plain call shows: {reason} [upstream]"
    )


# Values as Python source, in terms of torch and of the documents' names.

_RUN = 8
"""Equal elements at the end of a list, from which on they are written as a product."""


def literal(value: Value, own: Callable[[str], str] = str) -> str:
    """`value` as Python source in terms of torch and `DEVICE`, the device of the run.

    Args:
        own: what the subject's function or class of that name is called in the source.
    """
    match value:
        case list() | tuple():
            inner = ", ".join(literal(item, own) for item in value)
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
        case dict():
            items = (f"{literal(key, own)}: {literal(item, own)}" for key, item in value.items())
            return "{" + ", ".join(items) + "}"
        case bytes():
            return elements_of(value)
        case Tensor():
            return _tensor(value)
        case View():
            return f"{value.of}.view(torch.{value.dtype}){_view(value)}"
        case Fake():
            strides = value.strides or Tensor(value.dtype, value.shape, None).contiguous_strides
            return f"fake_tensor(torch.{value.dtype}, {value.shape}, {strides}, {value.address:#x}, DEVICE)"
        case Record():
            fields = ", ".join(f"{name}={literal(item, own)}" for name, item in value.fields)
            return f"{own(value.type)}({fields})"
        case DType():
            return f"torch.{value.name}"
        case Device():
            return "torch.device(DEVICE)"
        case Name():
            return value.name
        case Returns():
            return f"lambda: {literal(value.value, own)}"
        case Function():
            return own(value.name)
        case BufferMaker():
            return "make_buffer"
        case Rows():
            return f"lambda count: {literal(value.of, own)}[:count]"
        case NumPy():
            return f"{literal(value.of, own)}.numpy()"
        case Attribute():
            return f"{literal(value.of, own)}.{value.path}"
        case _:
            return repr(value)


def _tensor(tensor: Tensor) -> str:
    place = ", device=DEVICE" if tensor.on == "device" else ""
    options = f"dtype=torch.{tensor.dtype}{place}"
    if tensor.elements is None:
        return f"torch.empty({tensor.storage_size}, {options}){_view(tensor)}"
    if not tensor.is_dense:
        return f"torch.tensor({elements_of(tensor.elements)}, {options}){_view(tensor)}"
    if len(tensor.shape) == 2 and 0 not in tensor.shape:
        return f"torch.tensor([{', '.join(map(elements_of, tensor.rows()))}], {options})"
    flat = f"torch.tensor({elements_of(tensor.elements)}, {options})"
    return flat if len(tensor.shape) == 1 else f"{flat}.reshape({tensor.shape})"


def _view(view: Tensor | View) -> str:
    strides = view.strides or Tensor(view.dtype, view.shape, None).contiguous_strides
    return f".as_strided({view.shape}, {strides}, {view.offset})"


def elements_of(elements: Any) -> str:
    """A list display, of many bytes as hexadecimal digits; a long run of one number at the end is written as a product."""
    items = list(elements)
    run = 0
    while run < len(items) and items[-1 - run] == items[-1]:
        run += 1
    if isinstance(elements, bytes) and len(elements) - run > _RUN:
        return f"list(bytes.fromhex({elements.hex(' ')!r}))"
    if run <= _RUN:
        return repr(items)
    head = items[: len(items) - run]
    tail = f"[{items[-1]}] * {run}"
    return f"{head!r} + {tail}" if head else tail
