"""Changes of expressions: each operator yields the texts that may stand for a node."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from lab.mutants.mutant import Source

Change = tuple[str, int, int, str]
"""Operator, first byte, the byte behind, new text."""

_COMPARED = {
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: (r"is\s+not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: (r"not\s+in", ("in",)),
}
_COMPUTED = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
_OPPOSITE = {"min": "max", "minimum": "maximum", "any": "all", "argmin": "argmax", "amin": "amax"}
_OPPOSITE |= {opposite: name for name, opposite in _OPPOSITE.items()}
_WIDTHS = {
    "int8": ("int16",),
    "int16": ("int32",),
    "int32": ("int64", "int16"),
    "int64": ("int32",),
    "uint8": ("int8",),
    "uint32": ("int32",),
    "uint64": ("int64",),
    "float16": ("float32",),
    "bfloat16": ("float32",),
    "float32": ("float16",),
    "float64": ("float32",),
}
_MODULES = ("tl", "torch", "np", "numpy")
_SYMMETRIC = frozenset({"min", "max", "minimum", "maximum", "zip"})
_ORDERED = frozenset(
    {"refuse", "Refused", "require", "isinstance", "issubclass", "getattr", "hasattr", "cast"}
)
"""Calls whose arguments have one order only, or are a message's."""


def name_of(function: ast.expr) -> str:
    """The last part of a called function's name; "" of another expression."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def of_triton(node: ast.AST, *names: str) -> bool:
    """Whether a node is a call of one of these functions of `triton.language`."""
    return isinstance(node, ast.Call) and name_of(node.func) in names and _module(node.func) == "tl"


def _module(node: ast.expr) -> str:
    return node.value.id if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) else ""


def _comparison(source: Source, node: ast.Compare) -> Iterator[Change]:
    for (left, right), operator in zip(pairwise([node.left, *node.comparators]), node.ops, strict=True):
        pattern, others = _COMPARED[type(operator)]
        start, end = source.span(left)[1], source.span(right)[0]
        match = re.search(pattern, source.text(start, end))
        assert match is not None, pattern
        for other in others:
            yield "comparison", start + match.start(), start + match.end(), other


def _texts_compared(source: Source, node: ast.Compare) -> Iterator[Change]:
    for operand in (node.left, *node.comparators):
        for item in operand.elts if isinstance(operand, (ast.Tuple, ast.List, ast.Set)) else (operand,):
            if isinstance(item, ast.Constant) and isinstance(item.value, str):
                yield "constant", *source.span(item), repr(f"{item.value}?")


def _constant(source: Source, node: ast.Constant) -> Iterator[Change]:
    value = node.value
    if isinstance(value, bool):
        yield "constant", *source.span(node), str(not value)
    elif isinstance(value, int):
        for other in (value + 1, value - 1) if value else (1,):
            yield "constant", *source.span(node), str(other)
    elif isinstance(value, float):
        yield "constant", *source.span(node), str(value + 1.0)


def _arithmetic(source: Source, node: ast.BinOp) -> Iterator[Change]:
    if isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
        return
    sign, other = _COMPUTED.get(type(node.op), ("", ""))
    start, end = source.span(node.left)[1], source.span(node.right)[0]
    at = source.text(start, end).find(sign) if sign else -1
    if at >= 0:
        yield "arithmetic", start + at, start + at + len(sign), other
    for operand in (node.left, node.right):
        yield "operand", *source.span(node), f"({source.of(operand)})"


def _updated(source: Source, node: ast.AugAssign) -> Iterator[Change]:
    sign, other = _COMPUTED.get(type(node.op), ("", ""))
    start = source.span(node.target)[1]
    at = source.text(start, source.span(node.value)[0]).find(sign) if sign else -1
    if at >= 0:
        yield "arithmetic", start + at, start + at + len(sign), other


def _boolean(source: Source, node: ast.BoolOp) -> Iterator[Change]:
    old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
    for left, right in pairwise(node.values):
        start, end = source.span(left)[1], source.span(right)[0]
        match = re.search(rf"\b{old}\b", source.text(start, end))
        if match is not None:
            yield "boolean", start + match.start(), start + match.end(), new
    neutral = "True" if isinstance(node.op, ast.And) else "False"
    for operand in node.values:
        yield "operand", *source.span(operand), neutral


def _unary(source: Source, node: ast.UnaryOp) -> Iterator[Change]:
    operator = "boolean" if isinstance(node.op, ast.Not) else "operand"
    yield operator, *source.span(node), f"({source.of(node.operand)})"


def _negated(source: Source, node: ast.If | ast.While | ast.IfExp) -> Iterator[Change]:
    """A comparison and a `not` have changes of their own."""
    negation = isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
    if not negation and not isinstance(node.test, (ast.Compare, ast.Constant)):
        yield "boolean", *source.span(node.test), f"(not ({source.of(node.test)}))"


def _unconditional(source: Source, node: ast.comprehension) -> Iterator[Change]:
    for condition in node.ifs:
        yield "boolean", *source.span(condition), "True"


def _call(source: Source, node: ast.Call) -> Iterator[Change]:
    name = name_of(node.func)
    if name in _OPPOSITE:
        end = source.span(node.func)[1]
        yield "arithmetic", end - len(name), end, _OPPOSITE[name]
    if name == "range" and node.args:
        yield from _off_by_one(source, node.args[min(1, len(node.args) - 1)])
    plain = not any(isinstance(argument, ast.Starred) for argument in node.args)
    if plain and name not in _SYMMETRIC | _ORDERED and _module(node.func) != "tl":
        for left, right in pairwise(node.args):
            between = source.text(source.span(left)[1], source.span(right)[0])
            swapped = f"{source.of(right)}{between}{source.of(left)}"
            if source.of(left) != source.of(right):
                yield "argument order", source.span(left)[0], source.span(right)[1], swapped


def _converted(source: Source, node: ast.Call) -> Iterator[Change]:
    """A conversion of a kernel left out."""
    if isinstance(node.func, ast.Attribute) and node.func.attr == "to" and len(node.args) == 1:
        yield "type", *source.span(node), f"({source.of(node.func.value)})"
    elif of_triton(node, "cast") and node.args:
        yield "type", *source.span(node), f"({source.of(node.args[0])})"


def _unmasked(source: Source, node: ast.Call) -> Iterator[Change]:
    if not of_triton(node, "load", "store", "atomic_add", "atomic_xchg"):
        return
    kept = [keyword for keyword in node.keywords if keyword.arg not in ("mask", "other")]
    if len(kept) < len(node.keywords) and any(keyword.arg == "mask" for keyword in node.keywords):
        arguments = ", ".join(source.of(part) for part in (*node.args, *kept))
        yield "mask", *source.span(node), f"{source.of(node.func)}({arguments})"


def _relaxed(source: Source, node: ast.Call) -> Iterator[Change]:
    is_atomic = of_triton(node, *(f"atomic_{name}" for name in ("add", "xchg", "cas", "or", "max", "min")))
    if is_atomic and not any(keyword.arg == "sem" for keyword in node.keywords):
        end = source.span(node)[1]
        yield "atomic", end - 1, end, ', sem="relaxed")'


def _width(source: Source, node: ast.Attribute) -> Iterator[Change]:
    if _module(node) in _MODULES:
        end = source.span(node)[1]
        for other in _WIDTHS.get(node.attr, ()):
            yield "type", end - len(node.attr), end, other


def _slice(source: Source, node: ast.Slice) -> Iterator[Change]:
    for bound in (node.lower, node.upper):
        if bound is not None:
            yield from _off_by_one(source, bound)


def _off_by_one(source: Source, bound: ast.expr) -> Iterator[Change]:
    """A constant has changes of its own."""
    if not isinstance(bound, ast.Constant):
        for sign in "+-":
            yield "off by one", *source.span(bound), f"({source.of(bound)}) {sign} 1"


OPERATORS: dict[type[ast.AST], tuple[Callable[..., Iterator[Change]], ...]] = {
    ast.Compare: (_comparison, _texts_compared),
    ast.Constant: (_constant,),
    ast.BinOp: (_arithmetic,),
    ast.AugAssign: (_updated,),
    ast.BoolOp: (_boolean,),
    ast.UnaryOp: (_unary,),
    ast.If: (_negated,),
    ast.While: (_negated,),
    ast.IfExp: (_negated,),
    ast.comprehension: (_unconditional,),
    ast.Call: (_call, _converted, _unmasked, _relaxed),
    ast.Attribute: (_width,),
    ast.Slice: (_slice,),
}
