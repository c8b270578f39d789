"""Whether a kernel computes with bfloat16 numbers, by the text of its IR.

Triton's interpreter keeps the 16 bits in an integer and computes with that. What only moves the bits is right.
"""

from __future__ import annotations

import re

_OPERATION = re.compile(r'^\s*(?:%\S+ = )?"?([a-z]+\.[a-z_.0-9]+)')
_BFLOAT16 = re.compile(r"(?<!ptr<)bf16")
_MOVES = re.compile(
    r"(scf|cf)\..*|arith\.(constant|select|bitcast)|tt\.(func|call|return|load|store|splat|unsplat|broadcast"
    r"|expand_dims|reshape|trans|bitcast|addptr|cat|join|split|gather|reduce|scan|.*\.return)"
)
_EXCHANGES = re.compile(r"tt\.atomic_(cas|rmw (exch|and|or|xor))\b")


def bfloat16_arithmetic(ir: str) -> str:
    """The first operation on bfloat16 numbers that does more than move their bits, "" if there is none."""
    for line in ir.splitlines():
        operation = _OPERATION.match(line)
        if operation is None or not _BFLOAT16.search(line):
            continue
        if not _MOVES.fullmatch(operation[1]) and not _EXCHANGES.search(line):
            return operation[1]
    return ""
