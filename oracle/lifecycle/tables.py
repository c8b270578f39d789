"""The blocks of one request in one group: a column each, as its scheduler keeps them."""

from dataclasses import dataclass, field

from oracle.lifecycle.blocks import NULL_BLOCK, BlockPool
from oracle.rules import rule
from oracle.types import cdiv


@dataclass
class BlockList:
    """`columns[j]` is the block of column j; `returned` are the ids in the order in which the worker got them.

    The worker appends the ids that it gets and does not learn that a column has moved or was freed, so its list keeps
    aliases in such columns. `last_state` is the column whose state the next step starts from, while it has to be kept
    although the request has gone on to another column; -1 without one. Source: contract 2.8.
    """

    columns: list[int] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)
    last_state: int = -1
    allocated: bool = False
    published: int = 0

    def hit(self, columns: list[int]) -> None:
        """Start with the columns that the prefix cache has."""
        self.columns, self.returned, self.published = list(columns), list(columns), len(columns)

    def missing(self, needed: int) -> int:
        """How many blocks `extend` takes."""
        return max(0, needed - len(self.columns))

    def extend(self, pool: BlockPool, needed: int) -> None:
        """Blocks up to `needed` columns, each fresh."""
        self._append(pool.take(self.missing(needed)))
        self.allocated = True

    def missing_aligned(self, needed: int, num_spec: int) -> int:
        """How many blocks `extend_aligned` takes."""
        padded = max(len(self.columns), needed - num_spec - 1)
        return max(0, needed - padded - len(self.moved(needed, num_spec)))

    def moved(self, needed: int, num_spec: int) -> range:
        """The speculative columns that lie in front of the new running column."""
        running = needed - num_spec - 1
        first = len(self.columns) - num_spec if self.allocated else running
        return range(first, max(first, min(running, len(self.columns))))

    @rule
    def extend_aligned(self, pool: BlockPool, needed: int, num_spec: int) -> None:
        """Blocks up to `needed` columns: a running column and `num_spec` behind it; those in front of it are null.

        Of a request that has blocks already, speculative ones in front of the running column move behind it, so that
        it needs one fresh block at most.
        """
        if needed <= len(self.columns):
            return
        padded, moved = max(len(self.columns), needed - num_spec - 1), self.moved(needed, num_spec)
        fresh = pool.take(self.missing_aligned(needed, num_spec))
        if self.columns:
            self.last_state = len(self.columns) - 1 - (num_spec if self.allocated else 0)
        new = [NULL_BLOCK] * (padded - len(self.columns)) + [self.columns[column] for column in moved]
        for column in moved:
            self.columns[column] = NULL_BLOCK
        self._append(new + fresh)
        self.allocated = True

    def _append(self, blocks: list[int]) -> None:
        self.columns += blocks
        self.returned += blocks

    def drop_old(self, pool: BlockPool, computed: int, block_size: int, num_spec: int) -> None:
        """Free the columns that no later step can need: of these, one that is null has none before it.

        Speculation may have been counted too far by `num_spec` tokens, so these are not relied upon.
        """
        certain = computed - num_spec
        # The column of the last certain token is kept: the next step reads its state. Columns are freed from there towards
        # the front and never come back, so those in front of a null one were freed before.
        for column in range((certain - 1) // block_size - 1, -1, -1):
            if self.columns[column] == NULL_BLOCK:
                break
            self._drop(pool, column)
        is_over = 0 <= self.last_state < cdiv(certain, block_size) - 1
        if is_over and self.columns[self.last_state] != NULL_BLOCK:
            self.drop_last_state(pool)

    @rule
    def drop_last_state(self, pool: BlockPool) -> None:
        """Free the column whose state the step before started from."""
        self._drop(pool, self.last_state)

    def _drop(self, pool: BlockPool, column: int) -> None:
        pool.release(self.columns[column])
        self.columns[column] = NULL_BLOCK

    def drop_all(self, pool: BlockPool) -> None:
        """Free everything, the last column first."""
        for block in reversed(self.columns):
            if block != NULL_BLOCK:
                pool.release(block)
