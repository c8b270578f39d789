"""The arithmetic agrees with what a GPU computes: every operation and type, with all operands of 8 bits and edges of wider ones.

Results agree bit by bit, but NaNs only in being NaNs, as arithmetic promises no payload, and functions that a GPU
approximates to within the error that CUDA documents. A test lists the disagreements of all its operations.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from statecheck.kernels.arithmetic import atomic
from tests.unit.kernels.cases import ATOMICS, ArithmeticCase, cases
from tests.unit.kernels.comparing import computed
from tests.unit.kernels.compiled import BLOCK, SLAB, atomics, compiled, operations
from tests.unit.kernels.values import WIDTHS, Array, decode, distance, encode, is_nan
from tests.unit.kernels.values import operands as operands_of


@pytest.fixture(autouse=True)
def compiling(device: str) -> None:
    """Only where kernels are compiled: with --device cpu they are executed, on a machine with a GPU as well."""
    if device == "cpu":
        pytest.skip("the arithmetic is compared with a GPU's: --device cuda on a machine with a GPU")


SHOWN = 12
"""Disagreements that are shown of an operation."""


def version() -> tuple[int, int]:
    import triton

    major, minor = triton.__version__.split(".")[:2]
    return int(major), int(minor)


def groups() -> list[list[ArithmeticCase]]:
    """Operations that share a kernel."""

    def key(case: ArithmeticCase) -> tuple[tuple[str, ...], str]:
        return case.operands, case.apart

    return [list(group) for _, group in itertools.groupby(sorted(cases(), key=key), key)]


def named(group: list[ArithmeticCase]) -> str:
    return "-".join([*group[0].operands, *([group[0].apart] if group[0].apart else [])])


def padded(bits: Array) -> Array:
    return np.concatenate([bits, np.zeros(-len(bits) % BLOCK, bits.dtype)])


def launched(kernel: Any, columns: list[Array], out: Array) -> Array:
    """The bytes of the results, which start as `out`."""
    arguments = [torch.from_numpy(column.view(np.uint8)).cuda() for column in columns]
    results = torch.from_numpy(out).cuda()
    kernel[(len(columns[0]) // BLOCK, 1, 1)](*(arguments + arguments[:1] * 2)[:3], results)
    return results.cpu().numpy()


def slab(out: Array, n: int, size: int, element: str) -> Array:
    """The bits of the n-th stretch of results."""
    start, width = n * size * SLAB, WIDTHS[element] // 8
    return out[start : start + size * width].view(f"u{width}")


def apart(case: ArithmeticCase, here: Array, there: Array, columns: list[Array]) -> Array:
    """Which results disagree."""
    nan = is_nan(here, case.result) & is_nan(there, case.result)
    if case.allowed is None:
        return (here != there) & ~nan
    with np.errstate(all="ignore"):
        limit = case.allowed(decode(columns[0], case.operands[0]))
    return ~(distance(here, there, case.result) <= limit) & ~nan


def shown(bits: int, element: str) -> str:
    width = WIDTHS[element]
    value = decode(np.array([bits], f"u{width // 8}"), element)[0]
    return f"{value!s} ({bits:#0{width // 4 + 2}x})"


def listed(
    what: object,
    types: tuple[str, ...],
    result: str,
    columns: list[Array],
    here: Array,
    there: Array,
    wrong: Array,
) -> list[str]:
    """A line for each of the first disagreements."""
    places = np.flatnonzero(wrong)
    lines = [f"{what}: {len(places)} of {len(wrong)} disagree"] if len(places) else []
    for n in places[:: max(1, len(places) // SHOWN)][:SHOWN]:
        given = ", ".join(shown(int(bits[n]), t) for bits, t in zip(columns, types, strict=True))
        lines.append(
            f"    of {given}: {shown(int(here[n]), result)}, on the GPU {shown(int(there[n]), result)}"
        )
    return lines


@pytest.mark.parametrize("group", groups(), ids=named)
def test_a_gpu_computes_the_same(group: list[ArithmeticCase], tmp_path: Path) -> None:
    known = [case for case in group if case.since <= version()]
    columns = [padded(bits) for bits in operands_of(group[0].operands)]
    size = len(columns[0])
    out = np.zeros(len(known) * size * SLAB, np.uint8)
    out = launched(compiled(operations(known, size), tmp_path), columns, out)
    lines = []
    for n, case in enumerate(known):
        here, there = computed(case, columns), slab(out, n, size, case.result)
        wrong = apart(case, here, there, columns)
        lines += listed(case, case.operands, case.result, columns, here, there, wrong)
    assert not lines, "\n".join(["the executor and the GPU disagree", *lines])


@pytest.mark.parametrize("element", sorted({element for _, element in ATOMICS}))
def test_a_gpu_stores_the_same(element: str, tmp_path: Path) -> None:
    ops = [op for op, of in ATOMICS if of == element]
    columns = [padded(bits) for bits in operands_of((element, element))]
    size, bytes_of_old = len(columns[0]), columns[0].view(np.uint8)
    out = np.zeros(2 * len(ops) * size * SLAB, np.uint8)
    for n in range(len(ops)):
        start = 2 * n * size * SLAB
        out[start : start + len(bytes_of_old)] = bytes_of_old
    out = launched(compiled(atomics(ops, element, size), tmp_path), columns, out)
    lines = []
    for n, op in enumerate(ops):
        compute = atomic(op, element)
        assert compute is not None, f"atomic {op} of {element} is not known"
        with np.errstate(all="ignore"):
            here = encode(compute(*(decode(bits, element) for bits in columns)), element)
        there, types = slab(out, 2 * n, size, element), (element, element)
        wrong = (here != there) & ~(is_nan(here, element) & is_nan(there, element))
        lines += listed(f"atomic {op} of {element}", types, element, columns, here, there, wrong)
        old = slab(out, 2 * n + 1, size, element)
        lines += listed(
            f"value before {op} of {element}", types, element, columns, columns[0], old, columns[0] != old
        )
    assert not lines, "\n".join(["the executor and the GPU disagree", *lines])
