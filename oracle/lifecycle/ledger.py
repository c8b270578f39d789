"""What every block of recurrent state stands for, at each moment of a scenario."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from oracle.lifecycle.blocks import NULL_BLOCK
from oracle.lifecycle.prefixes import Prefixes
from oracle.lifecycle.requests import Geometry, ScheduledRequest
from oracle.rules import rule
from oracle.types import cdiv


@dataclass(frozen=True)
class ConvRows:
    """Conv rows: from row 0 on those of a state after a prefix, and behind them a row for each of `newest` more tokens.

    `end` is the prefix with these tokens. Of a conv kernel with K taps, row r is the conv input of token
    n - (K - 1) + r, where n = length of `end` - `newest`. Rows behind are stale. Source: contract 2.1, I4.
    """

    end: int
    newest: int = 0


@dataclass(frozen=True)
class Held:
    """A block: the prefix of its temporal state, and its conv rows; None where nothing is promised."""

    temporal: int | None = None
    window: ConvRows | None = None


NOTHING = Held()


class StateLedger:
    """The laws I1 to I7 as bookkeeping: by group and block what must be there, by request where its state is.

    `tables[id][group]` are the worker's block lists, aliases in columns that moved included. A decode leaves one state
    per token, each in a column of its own; whatever comes after must not lose the accepted one.
    Source: contract 2.1; for the modes none and all contracts 3.1 and 3.2.
    """

    def __init__(self, geometry: Geometry, prefixes: Prefixes) -> None:
        self.geometry = geometry
        self.prefixes = prefixes
        self.held: dict[tuple[int, int], Held] = {}
        self.tables: dict[str, list[list[int]]] = {}
        self.columns: dict[str, int] = {}

    def lose(self, blocks: Iterable[int]) -> None:
        """The contents of blocks that are used again are gone."""
        gone = set(blocks)
        self.held = {place: held for place, held in self.held.items() if place[1] not in gone}

    def begin(self, rows: Sequence[ScheduledRequest]) -> None:
        """Tell the worker of new blocks; a request that comes in has the column of its hit, or none."""
        for row in rows:
            if row.is_new or row.is_resumed:
                self.tables[row.id] = [list(blocks) for blocks in row.new_blocks]
                self.columns[row.id] = self.column_of(row.computed)
            else:
                for table, blocks in zip(self.tables[row.id], row.new_blocks, strict=True):
                    table.extend(blocks)

    def column_of(self, num_tokens: int) -> int:
        """The column of the last of `num_tokens` tokens, -1 without one."""
        return cdiv(num_tokens, self.geometry.block_size) - 1

    def before_forward(self, rows: Sequence[ScheduledRequest]) -> None:
        """I6: a request that goes to another column takes its state along, to the front of it."""
        for row in rows:
            source, run = self.columns[row.id], self.column_of(row.end)
            if self.geometry.mode == "align" and source not in (-1, run):
                self._put(row.id, run, self._exactly(self.prefixes.parent(row.prefixes[0])))
            self.columns[row.id] = run

    def after_forward(self, rows: Sequence[ScheduledRequest]) -> None:
        """I4: where the states of a step's tokens are."""
        for row in rows:
            if row.is_prefilling:
                self._full_blocks(row)
                self._put(row.id, self.columns[row.id], self._exactly(row.prefixes[-1]))
            else:
                self._decoded(row)

    def _full_blocks(self, row: ScheduledRequest) -> None:
        """In mode all, kernels leave the state at every boundary on their way in its own column."""
        size = self.geometry.block_size
        if self.geometry.mode == "all":
            for boundary in self.boundaries_on_the_way(row):
                prefix = row.prefixes[boundary - row.computed - 1]
                self._put(row.id, boundary // size - 1, self._exactly(prefix))

    @rule
    def boundaries_on_the_way(self, row: ScheduledRequest) -> range:
        """The boundaries, in tokens, that a step's tokens pass."""
        size = self.geometry.block_size
        return range((row.computed // size + 1) * size, row.end + 1, size)

    def _decoded(self, row: ScheduledRequest) -> None:
        """A state per token in a column of its own; of conv states all rows in the running one."""
        run = self.columns[row.id]
        for group, table in enumerate(self.tables[row.id]):
            for offset, prefix in enumerate(row.prefixes):
                place = group, table[run + offset]
                self.held[place] = Held(prefix, self.held.get(place, NOTHING).window)
            self.held[group, table[run]] = Held(row.prefixes[0], ConvRows(row.prefixes[-1], row.length - 1))

    def after_sampling(self, rows: Sequence[ScheduledRequest], accepted: Mapping[str, int]) -> None:
        """I7: if a boundary lies among the accepted states, that state is at the front of the boundary's column."""
        if self.geometry.mode != "align":
            return
        size = self.geometry.block_size
        for row in rows:
            boundary = self.boundary_among(row, accepted[row.id])
            if boundary is not None:
                prefix = row.prefixes[boundary - row.computed - 1]
                self._put(row.id, boundary // size - 1, self._exactly(prefix))

    @rule
    def boundary_among(self, row: ScheduledRequest, accepted: int) -> int | None:
        """The boundary, in tokens, among the states of a step's accepted tokens, which are no more than a block has; None without one."""
        first = row.end - len(row.drafts)
        available = range(first, first + accepted)
        return next((end for end in available if end % self.geometry.block_size == 0), None)

    def at(self, request: str, group: int, column: int) -> Held:
        """What the block in a request's column holds."""
        return self.held.get((group, self.tables[request][group][column]), NOTHING)

    @staticmethod
    def _exactly(prefix: int) -> Held:
        """The state after the prefix, and no more rows than its window."""
        return Held(prefix, ConvRows(prefix))

    def _put(self, request: str, column: int, held: Held) -> None:
        for group, table in enumerate(self.tables[request]):
            if table[column] != NULL_BLOCK:
                self.held[group, table[column]] = held
