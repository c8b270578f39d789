"""A model's kernels: they read, compute and write the states that the metadata point them to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oracle.lifecycle.blocks import NULL_BLOCK
from oracle.lifecycle.requests import ScheduledRequest
from properties.engine.checks import Checks
from properties.engine.flaws import Flaw, Misled, Violation, subject_raised
from properties.engine.metadata import ForwardBatch, StateAccess, accesses, build
from properties.engine.models import Model, Read, Written
from properties.engine.places import Mirror, StatePlace
from properties.engine.report import token_count
from properties.engine.runners import Runner
from properties.engine.world import World
from statecheck.case.values import Let, Raised, Tensor

Touched = set[tuple[int, int]]


@dataclass(eq=False)
class Forward:
    """The kernels of every layer, on the host's picture of the pools: they go where the metadata send them.

    With `checks`, what is read is compared with the state of the computed tokens.
    """

    world: World
    mirror: Mirror
    model: Model
    checks: Checks | None

    def run(
        self, batch: ForwardBatch, runner: Runner, writable: Touched
    ) -> tuple[dict[str, list[int]], Touched]:
        """By request the model's token after each of its tokens; and the (group, block) that were written.

        Raises:
            Violation: the metadata make a request read or write what is not its own, or a wrong state.
        """
        by_group = [self._accesses(batch, runner, group) for group in range(self.world.num_groups)]
        reads = {row.id: self._read(row, [group[row.id] for group in by_group]) for row in batch.rows}
        following, touched = {}, set[tuple[int, int]]()
        for row in batch.rows:
            written, following[row.id] = self.model.run(reads[row.id], row.tokens, row.prefixes)
            for access, places in (
                (group[row.id], self.mirror.of_group(n)) for n, group in enumerate(by_group)
            ):
                touched |= self._write(row, access, places, reads[row.id], written, writable)
        return following, touched

    def _accesses(self, batch: ForwardBatch, runner: Runner, group: int) -> dict[str, StateAccess]:
        """By request, where the group's kernels find and leave its state.

        Raises:
            Misled: kernels cannot follow the metadata.
        """
        table = runner.table(group, batch)
        cells = tuple(block for row in table for block in row)
        runner.execute(Let(f"rows{group}", Tensor("int32", (len(table), self.world.width), cells)))
        call = build(self.world, batch, group)
        outcome = runner.execute(call)
        assert outcome is not None
        if isinstance(outcome, Raised):
            raise subject_raised(call.function, outcome)
        owners = [row for row in batch.rows for _ in row.tokens]
        starts = {row.id: start for row, start in zip(batch.rows, batch.starts, strict=False)}
        by_request: dict[str, StateAccess] = {}
        for access in accesses(self.world, group, outcome.value):
            if not access.tokens:
                continue
            if access.tokens[0] >= batch.num_tokens:
                # A row of padding.
                blocks = [block for block, _ in access.temporal if block > NULL_BLOCK]
                if blocks:
                    seen = f"a row of padding writes to block {blocks[0]} of group {group}"
                    raise Misled(seen, wanted="should be skipped", rule="a row of padding writes")
                continue
            row = owners[access.tokens[0]]
            own = tuple(range(starts[row.id], starts[row.id] + row.length))
            if access.tokens != own or row.id in by_request:
                raise Misled(
                    f"the metadata of group {group} send tokens {list(access.tokens)} through {row.id}'s state",
                    wanted=f"should send {list(own)}, once",
                    rule="tokens of a row",
                )
            by_request[row.id] = access
        missing = [row.id for row in batch.rows if row.id not in by_request]
        if missing:
            raise Misled(
                f"the metadata of group {group} leave out {', '.join(missing)}", rule="rows are left out"
            )
        return by_request

    def _read(self, row: ScheduledRequest, found: Sequence[StateAccess]) -> Read:
        states: Read = {}
        before = self.checks.ledger.prefixes.parent(row.prefixes[0]) if self.checks else 0
        for place in self.mirror.places:
            access = found[place.group]
            states[place.number] = contents = self._contents(row, place, access)
            if self.checks is not None:
                self.checks.read(row.id, place, access, contents, before)
        return states

    def _contents(self, row: ScheduledRequest, place: StatePlace, access: StateAccess) -> tuple[bytes, ...]:
        """The rows of a window, or a temporal state alone."""
        if not access.initial:
            if self.checks is not None and row.computed:
                raise Misled(
                    f"the forward of {row.id} starts from zeros",
                    wanted=f"should read the state after {token_count(row.computed)}",
                    place="read",
                    rule="zeros are read",
                )
            if place.window:
                return (bytes(place.row_bytes),) * place.window
            return (bytes(place.array.shape[1]),)
        block = access.conv_block if place.window else access.temporal_block
        if not row.computed:
            raise Misled(
                f"the forward of {row.id} reads block {block}",
                place.group,
                block,
                wanted="should start from zeros at its first token",
                place="first token",
                rule="a state is read at the first token",
            )
        if not NULL_BLOCK < block < self.world.num_blocks:
            seen = f"the forward of {row.id} reads block {block}"
            raise Misled(seen, wanted="should read one of its own", place="read", rule="no block is read")
        if not place.window:
            return (place.temporal(block),)
        rows = place.rows(block, access.first_row, place.window)
        if len(rows) < place.window:
            raise Misled(
                f"the forward of {row.id} reads rows from {access.first_row} on, behind those of block {block}",
                place.group,
                block,
                place="read",
                rule="rows behind a block are read",
            )
        return rows

    def _write(
        self,
        row: ScheduledRequest,
        access: StateAccess,
        places: Sequence[StatePlace],
        read: Read,
        written: Written,
        writable: Touched,
    ) -> Touched:
        touched = set()
        for place in places:
            # The blocks that are written, and their conv rows from the first on, or their temporal state alone.
            stored: list[tuple[int, tuple[bytes, ...]]]
            if place.window:
                rows = (*read[place.number], *(states[place.number] for states in written))
                stored = [
                    (block, rows[index + 1 : index + 1 + place.window + newest])
                    for block, index, newest in access.windows
                ]
            else:
                stored = [(block, (written[index][place.number],)) for block, index in access.temporal]
            for block, contents in stored:
                if block <= NULL_BLOCK:
                    continue
                if (place.group, block) not in writable:
                    seen = f"the forward of {row.id} writes to block {block} of group {place.group}, which is not its own"
                    raise Violation(
                        Flaw(
                            seen,
                            place.group,
                            block,
                            place="written",
                            rule="a forward writes to another block",
                        )
                    )
                if place.window:
                    place.write_rows(block, contents)
                else:
                    place.write(block, contents[0])
                touched.add((place.group, block))
        return touched
