"""Physical blocks: who holds them, what the prefix cache knows them as, and when one is used again."""

from collections import Counter

from oracle.rules import rule

Key = tuple[int, int]
"""What a block is registered as: its group, and the prefix whose state it holds."""

NULL_BLOCK = 0


class OutOfBlocks(Exception):
    """Fewer blocks are free than are asked for; nothing was taken."""


class BlockPool:
    """Blocks 1 to `num_blocks` - 1; block 0 is the null block, which has no owner.

    A block without an owner is free. If it is registered it can still be hit, until it is taken for something else:
    then, or when it is freed without being registered, whatever it held is gone. Source: contract 2.8.
    """

    def __init__(self, num_blocks: int) -> None:
        self._free = dict.fromkeys(range(1, num_blocks))
        self._holders: Counter[int] = Counter()
        self._found: dict[Key, dict[int, None]] = {}
        self.registered: dict[int, Key] = {}
        self.recycled: list[int] = []

    @property
    def num_free(self) -> int:
        """Blocks without an owner, those that can still be hit among them."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """The blocks that have been free for longest.

        Raises:
            OutOfBlocks: there are not so many.
        """
        if count > len(self._free):
            raise OutOfBlocks
        taken = [block for block, _ in zip(self._free, range(count), strict=False)]
        for block in taken:
            del self._free[block]
            if block in self.registered:
                self.evict(block)
            self._holders[block] = 1
        return taken

    @rule
    def evict(self, block: int) -> None:
        """A free block that could still be hit is needed: what it holds is gone."""
        self._forget(block)
        self.recycled.append(block)

    @rule
    def hold(self, block: int) -> None:
        """One more request holds a block that is held or registered."""
        self._free.pop(block, None)
        self._holders[block] += 1

    def release(self, block: int) -> None:
        """One request fewer holds the block."""
        self._holders[block] -= 1
        if not self._holders[block]:
            self._free[block] = None
            if block not in self.registered:
                self.recycled.append(block)

    def holders(self, block: int) -> int:
        """How many requests hold the block."""
        return self._holders[block]

    @rule
    def register(self, block: int, key: Key) -> None:
        """The block holds, or will hold after the step, the state that `key` names."""
        if block not in self.registered:
            self.registered[block] = key
            self._found.setdefault(key, {})[block] = None

    def find(self, key: Key) -> int | None:
        """A block that is registered as `key`."""
        return next(iter(self._found.get(key, ())), None)

    def forget_all(self) -> None:
        """Empty the prefix cache; what has no owner is gone with it."""
        for block in list(self.registered):
            self._forget(block)
            if block in self._free:
                self.recycled.append(block)

    def _forget(self, block: int) -> None:
        key = self.registered.pop(block)
        del self._found[key][block]

    def drain(self) -> list[int]:
        """The blocks whose contents have been lost since the last call, in order."""
        lost, self.recycled = self.recycled, []
        return lost
