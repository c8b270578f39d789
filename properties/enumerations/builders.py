"""Steps that metadata builders are handed, up to a bound: of decodes with computed tokens, as a runner has them, and of prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, product
from typing import Any

from properties.enumerations.sizes import sequences, sums
from properties.strategies.builder_sessions import Session
from properties.strategies.builders import BuildCall, BuilderSetup, StepRequest
from statecheck.execution.enumerations import Enumeration

Rows = tuple[StepRequest, ...]
_BLOCK_SIZE = 2
# Lengths lie on the host, where the rules refuse wrong ones, which on other devices would keep them from being read beside tables.


def with_prefixes(bound: int) -> Iterator[Mapping[str, Any]]:
    """Rows of a builder of mode all; rows, tokens before and in the step and block size add up to the bound."""
    for size in range(bound + 1):
        block_size = 1 + bound - size
        for rows in _rows_with_prefixes(size):
            for kind in ("mamba2", "mamba1"):
                setup = BuilderSetup(kind, "all", block_size, chunk_size=block_size)
                yield {"session": Session(setup, (BuildCall(rows, host_lengths=True),))}


def _rows_with_prefixes(size: int) -> Iterator[Rows]:
    def decodes(size: int) -> Iterator[StepRequest]:
        return (replace(one, prefilling=False) for one in _started(size))

    return _in_order(size, decodes)


def _in_order(size: int, decodes: Callable[[int], Iterator[StepRequest]]) -> Iterator[Rows]:
    """Rows as a runner orders them: decodes, chunks of prompts that were begun, first chunks."""
    for parts in sums(size, 3):
        yield from map(_joined, product(*map(_rows_of, parts, (decodes, _started, _first))))


def _joined(parts: tuple[Rows, ...]) -> Rows:
    return tuple(chain.from_iterable(parts))


def _rows_of(size: int, kind: Callable[[int], Iterator[StepRequest]]) -> Iterator[Rows]:
    """Rows of a kind, each of which takes one more than what its tokens do."""
    for sizes in sequences(size):
        yield from product(*map(kind, sizes))


def _started(size: int) -> Iterator[StepRequest]:
    return (
        (StepRequest(1 + more, 1 + computed, True) for more, computed in sums(size - 1, 2))
        if size
        else iter(())
    )


def _first(size: int) -> Iterator[StepRequest]:
    yield StepRequest(1 + size, 0, True)


def with_drafts(bound: int) -> Iterator[Mapping[str, Any]]:
    """Rows of a builder of mode align; rows, tokens before and in the step, accepted drafts, drafts that there may be and rows of
    padding add up to the bound.
    """
    for size in range(bound + 1):
        for spec, padded in sums(bound - size, 2):
            for rows in _rows_with_drafts(size, spec):
                for kind, marks in product(("gdn", "mamba2"), (True, False)):
                    setup = BuilderSetup(kind, "align", _BLOCK_SIZE, spec)
                    yield {
                        "session": Session(setup, (BuildCall(rows, padded, marks=marks, host_lengths=True),))
                    }


def _rows_with_drafts(size: int, spec: int) -> Iterator[Rows]:
    def decodes(size: int) -> Iterator[StepRequest]:
        for more, computed, accepted in sums(size - 1, 3) if size else ():
            for drafts in (more, -1) if accepted <= spec else ():
                yield StepRequest(1 + more, 1 + computed, False, 1 + accepted, drafts)

    return _in_order(size, decodes)


ENUMERATIONS = (
    Enumeration(
        "prefixes",
        "builder/fields",
        with_prefixes,
        bound="rows, tokens before the step, tokens behind the first of each row and block size - 1",
        symmetry="blocks are numbered in order",
        left_out="rows in another order than a runner's, full graphs, padding, steps without prompt marks or host lengths",
        device="cpu",
    ),
    Enumeration(
        "rows with drafts",
        "builder/fields",
        with_drafts,
        bound="rows, tokens before the step, tokens behind the first of each row, accepted and possible drafts, rows of padding",
        symmetry="blocks are numbered in order",
        left_out=f"rows in another order than a runner's, Mamba-1, full graphs, block sizes but {_BLOCK_SIZE}, padded tokens, modes all and none",
        device="cpu",
    ),
)
