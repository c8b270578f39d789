"""The laws of a whole engine, on plain values: what its scheduler decided, what its forward read, and what may be hit.

The state that a row reads is the recurrence over exactly the computed tokens of its request; a block that may be hit as k
tokens holds the state after exactly these; no block has two owners but as a shared prefix; what requests say does not depend on
any feature; when all requests are gone every block and slot is free. Source: contract 2.1, and the semantic invariant.

A layer of sliding-window attention sees the last W tokens, the one that it computes among them. So the forward behind c tokens reads the keys of the
last min(c, W - 1) of them, all in blocks of its own request; a hit of c tokens needs the blocks of these tokens alone; and a request keeps no block of
tokens that were before the window already when its last step began. Source: the semantic invariant, and `SlidingWindowManager` for what is freed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from oracle.lifecycle.broken_laws import Broken
from oracle.lifecycle.known_states import KnownStates, LiveRequest, tokens_in_words
from oracle.lifecycle.named_states import UNKNOWN
from oracle.lifecycle.observed import Decided, ForwardRow, GroupAccess, ObservedStep, Owner, Place, Stored
from oracle.lifecycle.owners import broken_by_owners
from oracle.lifecycle.pools import broken_by_pools
from oracle.lifecycle.transfers import broken_by_loads, broken_by_saves, places_written


@dataclass
class LiveLaws:
    """Follows a scenario of an engine, and says what breaks a law.

    Args:
        block_sizes: tokens of a block, for attention, then for each recurrent group, and then for sliding-window attention.
        window: conv rows that a forward reads.
        num_blocks: of the pool, with the null block.
        recomputed: tokens at the end of a hit that are computed again, since a draft model reads what the model makes of them.
        lookahead: tokens behind a block that its key covers: a request with other tokens there does not hit it. vLLM has them for draft models,
            whose keys and values at the end of a block depend on the tokens behind it.
        sliding_window: tokens that a layer of the last group sees, 0 where the last group is recurrent.
    """

    block_sizes: Sequence[int]
    window: int
    num_blocks: int
    recomputed: int = 0
    lookahead: int = 0
    sliding_window: int = 0
    known: KnownStates = field(default_factory=KnownStates)
    _offered: frozenset[tuple[int, int, int]] = frozenset()
    """(group, block, key) of what could be hit behind the step before."""
    _stored: frozenset[tuple[int, int, int]] = frozenset()
    """(group, block, key) of what a connector could load behind the step before."""
    _loading: dict[str, tuple[set[tuple[int, int]], set[tuple[int, int]]]] = field(default_factory=dict)
    """By request that waits for a load, (group, key) of what could be hit, and of what a connector had, when the load began."""
    _loads: set[str] = field(default_factory=set)
    """Requests that waited for a load behind the step before."""
    _room: int = 0
    """Slots behind the step before that a load from host memory might have taken."""
    _begun: dict[str, int] = field(default_factory=dict)
    """By request, the tokens that were computed when its last step began; none where it has begun again since."""
    _batches: list[set[int]] = field(default_factory=list)
    """Of the latest batches with rows, the blocks that each wrote: at least of those in flight."""
    _loading_before: Mapping[Place, str] = field(default_factory=dict)
    """The request of each place that was being loaded behind the step before."""

    @property
    def requests(self) -> dict[str, LiveRequest]:
        """By their names, those that are gone among them."""
        return self.known.requests

    @property
    def recurrent(self) -> range:
        """The recurrent groups."""
        return range(1, len(self.block_sizes) - bool(self.sliding_window))

    @property
    def sliding(self) -> range:
        """The groups of sliding-window attention."""
        return range(self.recurrent.stop, len(self.block_sizes))

    def add(self, name: str, prompt: Sequence[int], most: int | None = None, stop: int | None = None) -> None:
        """A request comes in; see `LiveRequest` for `most` and `stop`."""
        self.known.add(name, prompt, most, stop)

    def update_weights(self) -> None:
        """The model has other weights from now on; what is from before may neither be hit nor read."""
        self.known.update_weights()
        self._offered = frozenset()
        self.empty_store()

    def empty_store(self) -> None:
        """Ask for no load in the next step, and for none of the loads under way: the store may have been emptied."""
        self._stored = frozenset()
        self._loading = {name: (keys, set()) for name, (keys, _) in self._loading.items()}

    def step(self, seen: ObservedStep) -> list[Broken]:
        """What the step broke: reads and writes first, since the rest follows from them."""
        return [*self.forward(seen), *self.managed(seen)]

    def forward(self, seen: ObservedStep) -> list[Broken]:
        """What the forward of the step broke, and what stands in memory behind it."""
        for name, decided in seen.scheduled.items():
            if decided.begins:
                self.requests[name].computed = decided.computed
        strays = list(self._strays(seen))
        # Behind a dummy batch that wrote to blocks, laws of rows are not checked: what rows read follows from that.
        rows = [] if any(about["dummy"] for *_, about in strays) else self._rows(seen)
        return [*rows, *strays, *self._published(seen)]

    def managed(self, seen: ObservedStep) -> list[Broken]:
        """What the engine broke around the forward: owners, outputs, and what is left."""
        hits = list(self._hits(seen))
        paged = (0, *self.sliding)
        owners = broken_by_pools(seen) if seen.pools else broken_by_owners(seen, self.num_blocks, paged)
        said = [*self._outputs(seen), *self._ends(seen)]
        return [*hits, *self._sent(seen), *self._transfers(seen), *owners, *said, *self._left(seen)]

    def _hits(self, seen: ObservedStep) -> Iterator[Broken]:
        """A request that begins hits what could be hit before the step, and is still there behind it, or loads what a connector had for all of its blocks.

        The last token is computed always, since its logits are needed. The key of a state is the state behind the tokens that the key covers. A
        request that was loaded hits, and loads, what there was when its load began, too. A load from host memory needs a slot for the request and
        one for the prefix, and keeps the prefix before it in its slot: nothing there is to be hit where the requests that begin, that prefix, and a chunk
        that is cached before them, may find too few.
        """
        moved = seen.transfers
        begun = sum(decided.begins for decided in seen.scheduled.values())
        loads_fit, self._room = self._room > 2 * begun + 1, seen.room
        offered = self._keys(seen.published)
        reachable = {
            key
            for key in offered
            if seen.first_host_block is None or loads_fit or key[1] < seen.first_host_block
        }
        has = self._keys(moved.offered if moved is not None else ())
        keys, stored = (
            {(group, key) for group, _, key in now & before}
            for now, before in ((reachable, self._offered), (has, self._stored))
        )
        self._offered, self._stored = offered, has
        loads = set() if moved is None else {*moved.loading_after.values(), *moved.waiting}
        # A load that failed may be followed by another one.
        self._loading |= dict.fromkeys(loads - self._loads, (keys, stored))
        self._loads = loads
        for name, decided in seen.scheduled.items():
            request = self.requests[name]
            known = request.prompt + request.said
            sources = self._loading.pop(name, (keys, stored))
            longest = known - max(1, self.lookahead) - self.recomputed
            for count in range(longest, decided.computed, -1) if decided.begins else ():
                wanted = {(group, self._key(name, at)) for group, at in self._needed(count)}
                ways = ("may be hit", "the connector has")
                way = next((way for way, had in zip(ways, sources, strict=True) if wanted <= had), "")
                if way:
                    yield (
                        "hit",
                        f"{name} begins behind {tokens_in_words(decided.computed)}",
                        f"should begin behind {count}, which {way} in every group",
                        {"request": name, "tokens": count},
                    )
                    break

    def _sent(self, seen: ObservedStep) -> Iterator[Broken]:
        """A request begins behind all that another one has computed of its prompt, to be loaded by it alone: all tokens but the last one."""
        for name in seen.transfers.sent if seen.transfers is not None else ():
            count, computed = self.requests[name].prompt - 1, seen.scheduled[name].computed
            if computed < count:
                begins = f"{name} begins behind {tokens_in_words(computed)}"
                should = f"should begin behind {count}, which another request has computed for it"
                yield "hit", begins, should, {"request": name, "tokens": count}

    def _keys(self, blocks: Iterable[Stored]) -> frozenset[tuple[int, int, int]]:
        """(group, block, key) of these blocks."""
        return frozenset(
            (group, block, self._key(name, count)) for group, block, name, count, _ in blocks if name
        )

    def _key(self, name: str, count: int) -> int:
        """What names so many tokens of a request."""
        return self.requests[name].state(count + self.lookahead)

    def _needed(self, count: int) -> Iterator[tuple[int, int]]:
        """(group, tokens) of each block without which no request begins behind so many tokens."""
        end = count + self.recomputed
        yield from ((0, at) for at in (*range(self.block_sizes[0], end, self.block_sizes[0]), end))
        yield from ((group, count) for group in self.recurrent)
        for group in self.sliding:
            size, begin = self.block_sizes[group], max(0, count + 1 - self.sliding_window)
            yield from ((group, at) for at in (*range((begin // size + 1) * size, count, size), count))

    def _rows(self, seen: ObservedStep) -> Iterator[Broken]:
        owned = {(name, group, block) for name, group, _, block in seen.owners}
        first = 0
        run = {row.request for row in seen.rows}
        for name, decided in seen.scheduled.items():
            if decided.tokens and name not in run:
                wanted = f"should run {decided.tokens}, as scheduled"
                yield "tokens", f"the worker runs no tokens of {name}", wanted, {"request": name}
        for row in seen.rows:
            request = self.requests[row.request]
            if request.id not in seen.scheduled:
                found = f"the worker runs tokens {list(row.tokens)} of {request.id}"
                yield "tokens", found, "should run none, as scheduled", {"request": request.id}
                return
            yield from self._agreed(request, row, seen.scheduled[request.id])
            yield from self._handed(request, row, seen.scheduled[request.id])
            yield from self._attention(request, row, seen.owners)
            yield from self._slides(request, row, seen.owners, begins=seen.scheduled[request.id].begins)
            places = tuple(range(first, first + len(row.tokens)))
            yield from self._groups(request, row, places, owned)
            first += len(row.tokens)
            drafts = seen.scheduled[request.id].drafts
            request.computed += len(row.tokens) - self._rejected(request, row, drafts)

    def _rejected(self, request: LiveRequest, row: ForwardRow, drafts: int) -> int:
        """Drafts that are not what the request says, or stand behind such a draft."""
        last = len(row.tokens) - drafts - 1
        accepted = 0
        for at, token in enumerate(row.tokens):
            above = row.parents[at] if row.parents else at - 1
            following = request.computed + len(row.tokens) - drafts + accepted
            if above == last and token == request.token(following):
                last, accepted = at, accepted + 1
        return drafts - accepted

    def _agreed(self, request: LiveRequest, row: ForwardRow, decided: Decided) -> Iterator[Broken]:
        """Scheduler and worker agree on every row, and both on what is so."""
        name, computed = request.id, request.computed
        if row.computed != computed:
            yield (
                "computed",
                f"the worker's computed tokens of {name} = {row.computed}",
                f"should be {computed}",
                {"request": name},
            )
            return
        if len(row.tokens) != decided.tokens:
            yield (
                "tokens",
                f"the worker's tokens of {name} = {len(row.tokens)}",
                f"should be {decided.tokens}, as scheduled",
                {"request": name},
            )
        known = len(row.tokens) - decided.drafts
        wanted = tuple(request.token(computed + at) for at in range(known))
        if tuple(row.tokens[:known]) != wanted:
            yield (
                "tokens",
                f"the tokens of {name} = {list(row.tokens[:known])}",
                f"should be {list(wanted)}",
                {"request": name},
            )

    def _handed(self, request: LiveRequest, row: ForwardRow, decided: Decided) -> Iterator[Broken]:
        """A stage takes in what the stage before has made of the same tokens; what it makes of drafts is not known here."""
        known = len(row.tokens) - decided.drafts
        for at, state in enumerate(row.handed[:known]):
            count = request.computed + at + 1
            if state != request.state(count):
                yield (
                    "read",
                    f"the forward of {request.id} takes in {self.known.meaning(state)} from the stage before",
                    f"should take in the state after its {tokens_in_words(count)}",
                    {
                        "request": request.id,
                        "tokens": count,
                        "found": (self.known.found(state),),
                        "conv": False,
                    },
                )
                return

    def _attention(self, request: LiveRequest, row: ForwardRow, owners: Sequence[Owner]) -> Iterator[Broken]:
        # A wrong count of computed tokens breaks another law.
        count = min(request.computed, row.computed)
        wanted = [request.state(at + 1) for at in range(count)]
        for layer, keys in enumerate(row.keys):
            read = enumerate(
                zip_longest(keys if row.computed == request.computed else keys[:count], wanted, fillvalue=0)
            )
            wrong = [(at, key) for at, (key, right) in read if key != right]
            if wrong:
                at, key = wrong[0]
                column = request.id, 0, at // self.block_sizes[0]
                block = next((block for *place, block in owners if tuple(place) == column), 0)
                yield (
                    "attention",
                    f"attention layer {layer} of {request.id} reads {self.known.meaning(key)} at token {at}",
                    f"should read its own, of {request.computed} computed tokens",
                    self._about(request.id, at + 1, [key], (0, block)),
                )
                return

    def _slides(
        self, request: LiveRequest, row: ForwardRow, owners: Sequence[Owner], *, begins: bool
    ) -> Iterator[Broken]:
        """Reads, writes and blocks of sliding-window attention."""
        count, name = request.computed, request.id
        first = max(0, count + 1 - self.sliding_window)
        wanted = tuple(request.state(at + 1) for at in range(first, count))
        before = 0 if begins else self._begun.get(name, 0)
        self._begun[name] = count
        if [access.group for access in row.sliding] != [*self.sliding]:
            groups = [access.group for access in row.sliding]
            should = f"should run {[*self.sliding]}, each once"
            yield "metadata", f"{name} runs groups {groups} of sliding windows", should, {"request": name}
        # A wrong count of computed tokens breaks another law.
        for access in row.sliding if row.computed == count else ():
            group, size = access.group, self.block_sizes[access.group]
            own = {block: column for owner, of, column, block in owners if (owner, of) == (name, group)}
            read = [keys for keys in access.keys if keys != wanted]
            for keys in read[:1]:
                pairs = zip_longest(keys, wanted, fillvalue=0)
                at, key = next((first + at, key) for at, (key, right) in enumerate(pairs) if key != right)
                yield (
                    "attention",
                    f"sliding-window attention of group {group} of {name} reads {self.known.meaning(key)} at token {at}",
                    f"should read its own, of its computed tokens from {first} to {count}",
                    self._about(name, at + 1, [key], (group, 0)),
                )
            for law, does, blocks in (
                ("attention", "reads", access.read),
                ("written", "writes to", access.written),
            ):
                for block in [block for block in blocks if block not in own][:1]:
                    seen = f"the forward of {name} {does} block {block} of group {group}"
                    about = {"request": name, "group": group, "block": block}
                    yield law, seen, f"should be one of its own, {sorted(own)}", about
            old = [
                block
                for block, column in own.items()
                if (column + 1) * size <= before + 1 - self.sliding_window
            ]
            for block in old[:1]:
                seen = f"{name} has block {block} of group {group}, whose tokens end at {(own[block] + 1) * size}"
                about = {"request": name, "group": group, "block": block}
                yield "freed", seen, f"should have none from before the window of token {before}", about

    def _groups(
        self, request: LiveRequest, row: ForwardRow, places: tuple[int, ...], owned: set[Any]
    ) -> Iterator[Broken]:
        runs = Counter(access.group for access in row.groups)
        for group in self.recurrent:
            if runs[group] != 1:
                seen = f"group {group} runs {request.id} {runs[group]} times"
                yield "metadata", seen, "should run it once", {"request": request.id, "runs": runs[group]}
        for access in row.groups:
            if tuple(access.tokens) != places:
                yield (
                    "metadata",
                    f"group {access.group} runs tokens {list(access.tokens)} through the state of {request.id}",
                    f"should run {list(places)}",
                    {"request": request.id},
                )
            yield from self._read(request, access)
            for group, at, found, expected in row.wrong[:1]:
                yield (
                    "read",
                    f"the layer of group {group} makes {found:.6g} of token {request.computed + at} of {request.id}",
                    f"should make {expected.value:.6g} ± {expected.bound:.2g}, the recurrence over the tokens up to it",
                    self._about(request.id, request.computed, [UNKNOWN], (group, 0)),
                )
            for state in access.temporal:
                self.known.remember(state, row.tokens, row.parents)
            for block in access.written:
                if block and (request.id, access.group, block) not in owned:
                    yield (
                        "written",
                        f"the forward of {request.id} writes to block {block} of group {access.group}",
                        "should write to its own",
                        {"request": request.id, "group": access.group, "block": block},
                    )

    def _read(self, request: LiveRequest, access: GroupAccess) -> Iterator[Broken]:
        count = request.computed
        right, rows = request.state(count), request.window(count, self.window)
        where = (
            f"of block {access.blocks[1]} of group {access.group}" if access.initial else "without a block"
        )
        if not (access.temporal or access.windows):
            seen = f"the forward of {request.id} shows no state of group {access.group}"
            yield (
                "read",
                seen,
                "should show the state that it reads",
                {"request": request.id, "group": access.group},
            )
        for state in access.temporal:
            if state != right:
                yield (
                    "read",
                    f"the forward of {request.id} reads {self.known.meaning(state)} {where}",
                    f"should read the state after its {tokens_in_words(count, 'computed ')}",
                    self._about(request.id, count, [state], (access.group, access.blocks[1])),
                )
                return
        for window in access.windows:
            if tuple(window) != rows:
                seen = ", ".join(map(self.known.meaning, window))
                yield (
                    "read",
                    f"the forward of {request.id} reads conv rows {seen} {where}",
                    f"should read those of its last computed tokens, of {count}",
                    self._about(request.id, count, window, (access.group, access.blocks[0]), conv=True),
                )
                return

    def _strays(self, seen: ObservedStep) -> Iterator[Broken]:
        padding, dummies = (
            ((False, access) for access in seen.stray),
            ((True, access) for access in seen.dummies),
        )
        for dummy, access in (*padding, *dummies):
            if blocks := [block for block in access.written if block]:
                yield (
                    "written",
                    f"a row of {'a dummy batch' if dummy else 'padding'} writes to blocks {blocks} of group {access.group}",
                    "should skip",
                    {"group": access.group, "block": blocks[0], "dummy": dummy},
                )

    def _published(self, seen: ObservedStep) -> Iterator[Broken]:
        for group, block, name, count, contents in seen.published:
            if not name:
                yield (
                    "published",
                    f"block {block} of group {group} may be hit",
                    "should be of a request's tokens",
                    {"group": group, "block": block},
                )
                continue
            yield from self._contents("published", "which may be hit", (group, block, name, count, contents))

    def _transfers(self, seen: ObservedStep) -> Iterator[Broken]:
        """What a connector loads and saves."""
        if seen.transfers is None:
            return
        page = self.block_sizes[0]
        in_flight = {
            block for batch in self._batches[len(self._batches) - seen.in_flight :] for block in batch
        }
        yield from broken_by_loads(seen, page, self._loading_before, in_flight)
        self._loading_before = seen.transfers.loading_after
        if seen.scheduled:
            # No more of them are in flight than there were before, and this.
            written = {block for row in seen.rows for _, block in places_written(row, page)}
            self._batches = [*self._batches[len(self._batches) - seen.in_flight :], written]
        yield from broken_by_saves(seen, page)
        for arrived in seen.transfers.arrived:
            yield from self._contents("loaded", "which was loaded", arrived)
        for saved in seen.transfers.saved:
            yield from self._contents("saved", "which is saved", saved)

    def _contents(self, law: str, what: str, of: Stored) -> Iterator[Broken]:
        """What of (group, block, request, tokens, contents) is not the state after so many tokens of the request."""
        group, block, name, count, contents = of
        for kind, content in contents:
            wrong = self._wrong(self.requests[name], group, count, kind, content)
            if wrong:
                conv = kind == "conv"
                states = ("conv rows written with " if conv else "") + ", ".join(
                    map(self.known.meaning, wrong)
                )
                exactly = f"the state after exactly {tokens_in_words(count)} of {name}"
                yield (
                    law,
                    f"block {block} of group {group}, {what} as {tokens_in_words(count)} of {name}, holds {states}",
                    f"should hold {'the conv rows of ' if conv else ''}{exactly}",
                    self._about(name, count, wrong, (group, block), conv=conv),
                )
                break

    def _wrong(self, request: LiveRequest, group: int, count: int, kind: str, content: Any) -> Sequence[int]:
        """What stands in a block instead of the state after `count` tokens; nothing where it is that one."""
        if kind == "keys":
            first = (count - 1) // self.block_sizes[group] * self.block_sizes[group]
            # What is missing of the content is not there: it counts as zeros.
            pairs = zip_longest(content[: count - first], range(first, count), fillvalue=0)
            return next(([key] for key, at in pairs if key != request.state(at + 1)), [])
        if kind == "temporal":
            return [] if content == request.state(count) else [content]
        return [] if tuple(content) == request.window(count, self.window) else content

    def _outputs(self, seen: ObservedStep) -> Iterator[Broken]:
        """What requests say is what they say with every feature off."""
        for name, tokens in seen.outputs.items():
            request = self.requests[name]
            first = request.prompt + request.said
            wanted = tuple(request.token(first + at) for at in range(len(tokens)))
            request.said += len(tokens)
            if tuple(tokens) != wanted:
                yield (
                    "output",
                    f"{name} says {list(tokens)}",
                    f"should say {list(wanted)}, as with every feature off",
                    {"request": name},
                )

    def _ends(self, seen: ObservedStep) -> Iterator[Broken]:
        """A request ends behind its stop token, or after the tokens that it may say, and neither before nor behind that."""
        for name in dict.fromkeys((*seen.outputs, *seen.ended)):
            request = self.requests[name]
            end = request.end
            if end is None or request.said == end or (request.said < end and name not in seen.ended):
                continue
            said = tokens_in_words(request.said)
            ended = f"{name} ends after {said}" if name in seen.ended else f"{name} says {said}"
            by = "by its stop token" if request.said_stop(end) else "by its length"
            about = {"request": name, "said": request.said, "end": end, "ended": name in seen.ended}
            yield "output", ended, f"should end after {end}, {by}", about

    def _left(self, seen: ObservedStep) -> Iterator[Broken]:
        """Once all requests are gone, so is what they had."""
        left = {"blocks": [block for block, _ in seen.references], "slots": sorted(seen.slots)}
        for kind, names in left.items():
            if seen.idle and names:
                yield "left", f"{kind} {names} are in use when all requests are gone", "should be free", {}
        if seen.idle and seen.locked:
            locked = f"prefixes of {list(seen.locked)} tokens are locked when all requests are gone"
            yield "left", locked, "should not be", {}

    def _about(
        self, request: str, tokens: int, states: Sequence[int], place: tuple[int, int], *, conv: bool = False
    ) -> dict[str, Any]:
        found, (group, block) = tuple(map(self.known.found, states)), place
        about = {"request": request, "tokens": tokens, "found": found, "conv": conv}
        return about | {"group": group, "block": block}
