"""The scheduler's side of the connector of scenarios: what it offers of its store, and what it asks the worker to load and to save.

With prefix caching every full block that may be hit is saved under its hash, either as soon as it may be hit, and then it is counted as
in use until that is done, or when its request is gone. Without, a prompt is saved as a whole when it is computed, as an instance
that computes prompts for another one does.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

from subjects.vllm.engine.settings import LiveSettings
from subjects.vllm.engine.transfers import BlockMove, LiveTransfer


class LiveOffers:
    """Follows the store and the transfers under way.

    Args:
        sizes: tokens of a block, group by group.
        published: (group, block of the pool, hash, request, tokens) of each block that may be hit.
    """

    def __init__(
        self,
        settings: LiveSettings,
        sizes: list[int],
        hash_size: int,
        published: Callable[[], Iterable[tuple[Any, ...]]],
    ) -> None:
        self.settings, self.sizes, self.hash_size, self.published = settings, sizes, hash_size, published
        self.pool: Any = None
        self.manager: Any = None
        self.loads: dict[str, LiveTransfer] = {}
        """By request, loads that the scheduler does not know to be done, but for those within a step."""
        self.saves: dict[int, LiveTransfer] = {}
        self._stored: set[tuple[int, Any]] = set()
        self._asked: set[tuple[int, Any]] = set()
        self._offered: dict[str, int] = {}
        self._lookups: Counter[str] = Counter()
        self._requests: dict[str, Any] = {}
        self._numbers = [0, 0]
        self._next_loads: list[LiveTransfer] = []
        self._next_saves: list[LiveTransfer] = []

    @property
    def kept(self) -> Counter[int]:
        """How often blocks are counted for saves."""
        return Counter(move.block for one in self.saves.values() if one.pinned for move in one.blocks)

    def matched(self, request: Any, computed: int) -> tuple[int | None, bool]:
        """How many tokens behind those that are computed can be loaded, None for later, and whether while others run."""
        name = request.request_id
        self._requests[name] = request
        if self._lookups[name] < self.settings.late_lookups:
            self._lookups[name] += 1
            return None, False
        ends = sorted(count for count in self._ends(request) if computed < count < request.num_tokens)
        most = next((count for count in reversed(ends) if self._has(request, computed, count)), 0)
        if not most:
            return 0, False
        self._offered[name] = computed
        return most - computed, self.settings.connector == "async"

    def _ends(self, request: Any) -> Iterable[int]:
        """Counts of tokens that a load may end at."""
        if self.settings.prefix_caching:
            unit = math.lcm(*self.sizes)
            return range(unit, request.num_tokens, unit)
        return [len(prefix) for group, prefix in self._stored if group]

    def _has(self, request: Any, computed: int, count: int) -> bool:
        pieces = self._pieces(request, computed, count)
        return all((group, prefix) in self._stored for group, _, prefix, _ in pieces)

    def _pieces(self, request: Any, computed: int, count: int) -> Iterator[tuple[int, int, Any, int]]:
        """(group, column, prefix, tokens) of each block that a load of the tokens from `computed` to `count` writes."""
        size = self.sizes[0]
        for column in range(computed // size, -(-count // size)):
            tokens = min((column + 1) * size, count)
            yield 0, column, self._prefix(request, tokens), tokens
        for group, recurrent in enumerate(self.sizes[1:], 1):
            yield group, (count - 1) // recurrent, self._prefix(request, count), count

    def _prefix(self, request: Any, tokens: int) -> Any:
        if self.settings.prefix_caching:
            return bytes(request.block_hashes[tokens // self.hash_size - 1])
        return tuple(request.all_token_ids[:tokens])

    def allocated(self, request: Any, blocks: tuple[list[int], ...], count: int) -> None:
        """The request has blocks for so many tokens that were offered."""
        if not count:
            return
        name = request.request_id
        computed = self._offered.pop(name)
        moves = self._moves(request, blocks, computed, computed + count)
        number = self._number(0)
        late = self.settings.connector == "async"
        steps = self.settings.load_steps[number % len(self.settings.load_steps)] if late else 0
        fails = late and number in self.settings.failing_loads
        load = LiveTransfer(number, name, moves, steps, sync=not late, fails=fails)
        self._next_loads.append(load)
        if late:
            self.loads[name] = load

    def _moves(
        self, request: Any, blocks: tuple[list[int], ...], first: int, last: int
    ) -> tuple[BlockMove, ...]:
        return tuple(
            BlockMove(group, blocks[group][column], prefix, request.request_id, tokens)
            for group, column, prefix, tokens in self._pieces(request, first, last)
        )

    @property
    def saving(self) -> frozenset[tuple[int, int]]:
        """(group, block) of saves that go on after the step that asked for them."""
        late = (one for one in self.saves.values() if one.pinned or one.request)
        return frozenset((move.group, move.block) for one in late for move in one.blocks)

    def asked(self, scheduled: Any) -> SimpleNamespace:
        """What the worker is to do in the step."""
        if not self.settings.prefix_caching:
            self._save_prompts(scheduled)
        elif not self.settings.saves_at_end:
            self._save_published()
        loads, self._next_loads = self._next_loads, []
        saves, self._next_saves = self._next_saves, []
        return SimpleNamespace(loads=tuple(loads), saves=tuple(saves))

    def _full(self) -> Iterator[tuple[Any, ...]]:
        """Of what may be hit, the blocks that are full. A request goes on in its last one, though it may be hit."""
        return (one for one in self.published() if one[-1] and one[-1] % self.sizes[one[0]] == 0)

    def _save_published(self) -> None:
        blocks, moves = [], []
        for group, block, prefix, name, count in self._full():
            if (group, prefix) not in self._asked:
                self._asked.add((group, prefix))
                blocks.append(block)
                moves.append(BlockMove(group, block.block_id, prefix, name, count))
        if moves:
            self.pool.touch(blocks)
            self._save(tuple(moves), pinned=True)

    def _save_prompts(self, scheduled: Any) -> None:
        """Prompts of which the step computes the last tokens, but for those whose request is saved when it is gone."""
        for name, count in scheduled.num_scheduled_tokens.items():
            request = self._requests[name]
            drafts = len(scheduled.scheduled_spec_decode_tokens.get(name, ()))
            ends = request.num_computed_tokens + count - drafts == request.num_prompt_tokens
            if ends and not self._waits_for_its_end(request):
                # The state goes on in its block, so that it is read in the step itself.
                self._save(self._prompt(request, self.manager.get_block_ids(name)), steps=0)

    def _waits_for_its_end(self, request: Any) -> bool:
        return self.settings.saves_at_end and request.max_tokens == 1

    def _prompt(self, request: Any, blocks: tuple[list[int], ...]) -> tuple[BlockMove, ...]:
        return self._unasked(self._moves(request, blocks, 0, request.num_prompt_tokens))

    def _unasked(self, moves: Iterable[BlockMove]) -> tuple[BlockMove, ...]:
        found = tuple(one for one in moves if (one.group, one.prefix) not in self._asked)
        self._asked |= {(one.group, one.prefix) for one in found}
        return found

    def _save(
        self,
        moves: tuple[BlockMove, ...],
        keeper: str = "",
        steps: int | None = None,
        *,
        pinned: bool = False,
    ) -> bool:
        if not moves:
            return False
        number = self._number(1)
        if steps is None:
            steps = self.settings.save_steps[number % len(self.settings.save_steps)]
        self.saves[number] = LiveTransfer(number, keeper, moves, steps, pinned=pinned)
        self._next_saves.append(self.saves[number])
        return True

    def _number(self, which: int) -> int:
        self._numbers[which] += 1
        return self._numbers[which] - 1

    def finished(self, request: Any, blocks: tuple[list[int], ...]) -> bool:
        """Whether blocks of a request that is gone are kept until they are saved."""
        name = request.request_id
        self._requests.pop(name, None)
        # Preempted while its last step was in flight, it has none.
        if name in self.loads or not self.settings.saves_at_end or not any(blocks):
            return False
        if not self.settings.prefix_caching:
            ends = self._waits_for_its_end(request) and len(request.output_token_ids) == 1
            return ends and self._save(self._prompt(request, blocks), name)
        own = {(group, block) for group, several in enumerate(blocks) for block in several if block}
        moves = [
            BlockMove(group, block.block_id, prefix, owner, count)
            for group, block, prefix, owner, count in self._full()
            if (group, block.block_id) in own
        ]
        return self._save(self._unasked(moves), name)

    def transferred(self, loaded: Iterable[str], saved: Iterable[int]) -> None:
        """The worker is done with loads of these requests, and with saves of these numbers."""
        for name in loaded:
            self.loads.pop(name, None)
        for number in saved:
            save = self.saves.pop(number)
            self._stored |= {(move.group, move.prefix) for move in save.blocks}
            if save.pinned:
                self.pool.free_blocks([self.pool.blocks[move.block] for move in save.blocks])
