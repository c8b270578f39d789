"""Memory that every copy of align mode leaves alone, and bytes that it moves: conditions on bytes alone, for which no rule is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from properties.strategies.align.batches import BatchAfterForward, BatchBeforeForward
from properties.strategies.align.pointers import COLLECT, DO_COPY, MovedRuns, do_copies, runs
from properties.strategies.align.runner import COPY_BUFFERS
from properties.test_align_copies import BOUND, Steps, postprocesses, precopy, spell
from statecheck.execution.example import Example
from statecheck.execution.registry import prop

Batch = BatchAfterForward | BatchBeforeForward


def same_bytes(trial: Example, pool: str, seen: bytes, wanted: bytes, at: Iterable[int], place: str) -> None:
    """The bytes of a pool at these offsets are the wanted ones."""
    wrong = next((offset for offset in at if seen[offset] != wanted[offset]), None)
    first = wrong or 0
    observed, expected = f"{pool}[{first}] = {seen[first]:#04x}", f"should be {wanted[first]:#04x}"
    trial.holds(wrong is None, observed, expected, place=place)


@prop([*postprocesses("red-zone"), precopy("red-zone")], "red zone", *BOUND)
def nothing_else_changes(trial: Example, batch: Batch, steps: Callable[[Any], Steps]) -> None:
    """Nothing outside of the states of requests changes.

    The null block, blocks of no request, and what lies between states and pages keep their bytes.
    """
    left = trial.leaves(*batch.prepared(), *steps(batch))
    for pool in batch.setup.pools:
        before, after = batch.cache.contents(pool), bytes(left[pool].elements)
        same_bytes(trial, pool, after, before, batch.cache.outside_of_states(pool), "outside of states")


@prop([*postprocesses("own-blocks"), precopy("own-blocks")], "ownership", *BOUND)
def no_other_block_changes(trial: Example, batch: Batch, steps: Callable[[Any], Steps]) -> None:
    """No block changes but those before boundaries, and those where requests go on."""
    left = trial.leaves(*batch.prepared(), *steps(batch))
    before, after = batch.cache.first_states, batch.cache.states(left)
    changed = {cell[1:] for cell in before if before[cell] != after[cell]}
    foreign = sorted(changed - batch.written())
    trial.holds(
        not foreign,
        f"(request, column) {foreign} changed",
        f"should be {sorted(batch.written())} at most",
        place="blocks",
    )


@prop(postprocesses("shifted-rows", in_place=True), "memmove", *BOUND)
def shifted_rows_arrive(trial: Example, batch: BatchAfterForward, steps: Callable[[Any], Steps]) -> None:
    """Conv rows that are shifted in their block arrive as they were.

    Each row of the accepted tokens' window takes the place of an earlier one, and the last rows keep their bytes.
    """
    left = trial.leaves(*batch.prepared(), *steps(batch))
    before, after = batch.cache.first_states, batch.cache.states(left)
    for layer, group, _ in batch.setup.named_layers():
        for request, column, bias in batch.shifted():
            pairs = zip(before[layer, request, column], after[layer, request, column], strict=True)
            for kept, (old, new) in zip(batch.setup.groups[group].states, pairs, strict=True):
                if kept.kind == "conv":
                    wanted = kept.shifted(old, bias, batch.setup.layout)
                    where = f"{layer}, column {column} of request {request}"
                    observed, expected = f"{where} = {spell([new])}", f"should be {spell([wanted])}"
                    trial.holds(new == wanted, observed, expected, place="states")


@prop("copy-meta/every-byte", "memmove", COLLECT, DO_COPY, COPY_BUFFERS, runs=runs())
def test_copy_meta_every_byte(trial: Example, runs: MovedRuns) -> None:
    """Every byte of a run arrives as it was and no other byte changes."""
    left = trial.leaves(*runs.steps(), runs.collect(), do_copies(["pool0"], schedule=runs.schedule))
    after, wanted = bytes(left["pool0"].elements), runs.moved_through_a_temporary()
    same_bytes(trial, "pool0", after, wanted, range(len(wanted)), "pool0")
