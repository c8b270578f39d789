"""The scheduler of an engine: which tokens of which requests a step computes, in which blocks."""

from collections.abc import Iterable, Mapping, Sequence

from oracle.lifecycle.blocks import NULL_BLOCK, BlockPool, Key
from oracle.lifecycle.prefixes import Prefixes
from oracle.lifecycle.requests import (
    Geometry,
    Request,
    ScheduledRequest,
    ScheduleRequest,
    SchedulerStep,
    Stage,
)
from oracle.rules import rule
from oracle.types import cdiv


@rule
def aligned_length(computed: int, length: int, num_tokens: int, block_size: int) -> int:
    """How many of `length` tokens of a prompt are computed now, so that chunks end where blocks do; 0: none.

    The last chunk of the `num_tokens` known tokens may end anywhere, but begins at a boundary if it crosses one.
    Source: contract 2.7, for models without a draft head.
    """
    last, end = num_tokens // block_size * block_size, computed + length
    if end < last:
        return length // block_size * block_size
    return last - computed if computed < last else length


class Scheduler:
    """Requests from their arrival to their end, and the blocks that they hold.

    A step is `schedule`d, executed by a worker, and `commit`ted with what was sampled. Source: contracts 2.7 and 2.8.
    """

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.prefixes = Prefixes()
        self.pool = BlockPool(geometry.num_blocks)
        self.requests: dict[str, Request] = {}
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self._finished: list[str] = []
        self._reset: list[str] = []
        self._registered: dict[int, Key] = {}

    def arrive(self, request_id: str, prompt: Sequence[int]) -> Request:
        """A new request; its prompt has at least a token."""
        prefixes = [0, *self.prefixes.path(0, prompt)]
        request = Request(request_id, list(prompt), len(prompt), prefixes, self.geometry.num_groups)
        self.requests[request_id] = request
        self.waiting.append(request)
        return request

    @rule
    def finish(self, request_id: str) -> None:
        """The request's end, for whatever reason; what is registered of it stays in the prefix cache."""
        request = self.requests[request_id]
        (self.running if request.stage is Stage.RUNNING else self.waiting).remove(request)
        request.stage = Stage.FINISHED
        self._free(request)
        request.forget_blocks()
        if request.seen:
            self._finished.append(request_id)

    @rule
    def reset(self) -> None:
        """Empty the prefix cache, for which every running request is preempted; workers do not learn of it."""
        self._reset += [request.id for request in self.running]
        for request in reversed(self.running):
            self._wait_again(request)
        self.running.clear()
        self.pool.forget_all()

    @rule
    def schedule(self, wishes: Iterable[ScheduleRequest], preempted: Iterable[str] = ()) -> SchedulerStep:
        """The next step; requests in `preempted` are preempted first, and others where blocks run short.

        Running requests are scheduled before waiting ones, which are admitted only in a step without preemption.
        """
        wished = {wish.id: wish for wish in wishes}
        preempted_now = [self._preempt(self.requests[request_id]) for request_id in preempted]
        self._registered, rows = {}, []
        for request in list(self.running):
            if request in self.running and request.id in wished:
                rows += self._row(request, wished[request.id], preempted_now)
        for request in [] if preempted_now else list(self.waiting):
            if request.id in wished and len(self.running) < self.geometry.max_num_seqs:
                rows += self._come_in(request, wished[request.id])
        for row in rows:
            self.requests[row.id].seen = True
        gone = tuple(self._finished), tuple(preempted_now), tuple(self._reset)
        self._finished, self._reset = [], []
        return SchedulerStep(tuple(rows), *gone, tuple(self.pool.drain()), self._registered)

    def commit(self, step: SchedulerStep, sampled: Mapping[str, Sequence[int]]) -> None:
        """What a step's requests sampled: accepted drafts and a token more, or nothing in the middle of a prompt."""
        for row in step.rows:
            request, new = self.requests[row.id], sampled[row.id]
            request.computed = row.end - len(row.drafts) + max(len(new), 1) - 1
            request.tokens += new
            request.prefixes += self.prefixes.path(request.prefixes[-1], new)

    def writable(self, step: SchedulerStep) -> set[tuple[int, int]]:
        """I3: the (group, block) that a step may write: held by one of its requests alone, and not registered before."""
        return {
            (group, block)
            for row in step.rows
            for group, blocks in enumerate(self.requests[row.id].lists)
            for block in blocks.columns
            if self.pool.holders(block) == 1
            and (block not in self.pool.registered or block in step.registered)
        }

    def _preempt(self, request: Request) -> str:
        self.running.remove(request)
        self._wait_again(request)
        return request.id

    def _wait_again(self, request: Request) -> None:
        request.stage = Stage.WAITING
        self._free(request)
        request.forget_blocks()
        self.waiting.insert(0, request)

    def _free(self, request: Request) -> None:
        for blocks in request.lists:
            blocks.drop_all(self.pool)

    def _row(self, request: Request, wish: ScheduleRequest, preempted: list[str]) -> list[ScheduledRequest]:
        """The request's part in the step, if it has one; the last running requests are preempted for it where blocks run short."""
        length, drafts = self._length(request, wish)
        if length == 0:
            return []
        for blocks in request.lists:
            blocks.drop_old(self.pool, request.computed, self.geometry.block_size, self.geometry.num_spec)
        while self._missing(request, request.computed + length) > self.pool.num_free:
            if self.preempt_last(request, preempted):
                return []
        return [self._scheduled(request, length, drafts)]

    @rule
    def preempt_last(self, request: Request, preempted: list[str]) -> bool:
        """Preempt the last of the running requests for `request`; whether that is `request` itself."""
        last = self.running[-1]
        preempted.append(self._preempt(last))
        return last is request

    def _come_in(self, request: Request, wish: ScheduleRequest) -> list[ScheduledRequest]:
        """The part of a request that was waiting, with what the prefix cache has of it."""
        hit = self.hit(request)
        if self.is_of_this_step(hit):
            return []
        request.computed = (len(hit[0]) if hit else 0) * self.geometry.block_size
        length, drafts = self._length(request, wish)
        taken = sum(not self.pool.holders(block) for blocks in hit for block in blocks if block != NULL_BLOCK)
        for own, columns in zip(request.lists, hit, strict=False):
            own.hit(columns)
        if length == 0 or not self.has_room(request, length, taken):
            request.forget_blocks()
            return []
        for blocks in hit:
            for block in blocks:
                if block != NULL_BLOCK:
                    self.pool.hold(block)
        self.waiting.remove(request)
        self.running.append(request)
        request.stage = Stage.RUNNING
        return [self._scheduled(request, length, drafts, hit=len(hit[0]) if hit else 0)]

    @rule
    def is_of_this_step(self, hit: list[list[int]]) -> bool:
        """Whether a block of a hit is one that the step itself is to fill."""
        return any(block in self._registered for blocks in hit for block in blocks)

    @rule
    def has_room(self, request: Request, length: int, taken: int) -> bool:
        """Whether there are blocks for `length` tokens beside the `taken` free ones that are hit."""
        return self._missing(request, request.computed + length) <= self.pool.num_free - taken

    @rule
    def hit(self, request: Request) -> list[list[int]]:
        """By group, the columns of the longest prefix that every group has; none where nothing is known."""
        groups = range(self.geometry.num_groups)
        for count in range((len(request.tokens) - 1) // self.geometry.block_size, 0, -1):
            columns = [self._columns(request, group, count) for group in groups]
            if all(columns):
                return columns
        return []

    def _columns(self, request: Request, group: int, count: int) -> list[int]:
        """Columns that hold `count` full blocks; in mode align the last one is all that is needed."""
        size, first = self.geometry.block_size, 1 if self.geometry.mode == "all" else count
        keys = [(group, request.prefixes[number * size]) for number in range(first, count + 1)]
        blocks = [block for block in map(self.pool.find, keys) if block is not None]
        return [NULL_BLOCK] * (first - 1) + blocks if len(blocks) == len(keys) else []

    def _length(self, request: Request, wish: ScheduleRequest) -> tuple[int, tuple[int, ...]]:
        """How many tokens are scheduled, drafts among them, and the drafts, which only decoding requests have."""
        if request.is_decoding:
            room = self.geometry.max_model_len - len(request.tokens)
            drafts = wish.drafts[: max(0, min(self.geometry.num_spec, room))]
            return 1 + len(drafts), drafts
        length = min(request.uncomputed, wish.tokens)
        if self.geometry.mode == "align":
            length = aligned_length(request.computed, length, len(request.tokens), self.geometry.block_size)
        return length, ()

    def _needed(self, num_tokens: int) -> int:
        """Columns that a request with so many tokens has, speculative ones among them."""
        return cdiv(num_tokens, self.geometry.block_size) + self.geometry.num_spec

    def _missing(self, request: Request, num_tokens: int) -> int:
        needed, num_spec = self._needed(num_tokens), self.geometry.num_spec
        if self.geometry.mode == "align":
            return sum(blocks.missing_aligned(needed, num_spec) for blocks in request.lists)
        return sum(blocks.missing(needed) for blocks in request.lists)

    def _scheduled(
        self, request: Request, length: int, drafts: tuple[int, ...], hit: int = 0
    ) -> ScheduledRequest:
        first, known = request.computed, length - len(drafts)
        comes_in = not request.lists[0].allocated
        sent = [0 if comes_in else len(blocks.returned) for blocks in request.lists]
        self._allocate(request, first + length)
        self._register(request, first + known)
        prefixes = request.prefixes[first + 1 : first + 1 + known]
        # A resumed request computes its outputs again: several known tokens in a row are a prompt to its metadata, not a
        # decode with drafts. To compare with the prompt alone, would break I1 (contract 1.6).
        is_prefilling = first < request.num_prompt or known > 1
        return ScheduledRequest(
            request.id,
            first,
            length,
            drafts,
            (*request.tokens[first : first + known], *drafts),
            (*prefixes, *self.prefixes.path(prefixes[-1], drafts)),
            tuple(tuple(blocks.returned[start:]) for blocks, start in zip(request.lists, sent, strict=True)),
            is_new=not request.seen,
            is_resumed=request.seen and comes_in,
            is_prefilling=is_prefilling,
            samples=known == request.uncomputed,
            hit=hit,
        )

    def _allocate(self, request: Request, num_tokens: int) -> None:
        needed = self._needed(num_tokens)
        for blocks in request.lists:
            if self.geometry.mode == "align":
                blocks.extend_aligned(self.pool, needed, self.geometry.num_spec)
            else:
                blocks.extend(self.pool, needed)

    def _register(self, request: Request, num_tokens: int) -> None:
        """Register the blocks that are full with `num_tokens` known tokens, and have not been looked at before."""
        if self.geometry.mode == "none":
            return
        size = self.geometry.block_size
        for group, blocks in enumerate(request.lists):
            for column in range(blocks.published, num_tokens // size):
                block = blocks.columns[column]
                if block != NULL_BLOCK:
                    key = (group, request.prefixes[(column + 1) * size])
                    self.pool.register(block, key)
                    self._registered[block] = key
            blocks.published = max(blocks.published, num_tokens // size)
