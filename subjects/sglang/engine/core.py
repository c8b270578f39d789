"""SGLang's engine in scenarios: its own scheduler, radix tree, pools and worker, with a forward that names tokens.

A scenario is a sequence of calls with plain values. `step` is a turn of the release's own event loop. A scheduler takes a second to
be made, and the release expects one of them in a process: the next scenario with the same settings gets the same one, emptied.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from oracle.lifecycle.broken_laws import Broken, BrokenLaws, in_sentences
from oracle.lifecycle.live import LiveLaws
from oracle.lifecycle.observed import Decided, ObservedStep, Owner, Stored
from subjects.sglang.engine.checkpoints import CHECKPOINT
from subjects.sglang.engine.host import COPIES
from subjects.sglang.engine.host_tier import HOST
from subjects.sglang.engine.loop import (
    generate,
    message,
    open_session,
    release_memory,
    resume_memory,
    session_parameters,
    update_weights,
)
from subjects.sglang.engine.running import Running, running
from subjects.sglang.engine.settings import ATTENTION, CONV_WIDTH, STATES, VOCABULARY, RadixSettings
from subjects.sglang.engine.storage import Failures
from subjects.sglang.engine.tree import Prefix, prefixes
from subjects.sglang.release import NotOffered

__all__ = ["RadixEngine", "RadixSettings", "RadixStep"]


@dataclass(frozen=True)
class RadixStep:
    """A turn of the engine, and the laws that it breaks. `loaded`: behind how many tokens each state is that came from a storage; `failed_reads` of it."""

    scheduled: dict[str, dict[str, Any]]
    finished: tuple[str, ...]
    aborted: tuple[str, ...]
    outputs: dict[str, tuple[int, ...]]
    owners_after: tuple[Owner, ...]
    published: tuple[tuple[int, int, str, int], ...]
    loaded: tuple[int, ...]
    failed_reads: int
    idle: bool
    broken: BrokenLaws
    findings: tuple[Broken, ...]


class RadixEngine:
    """The release's scheduler with all that belongs to it.

    Args:
        settings: see `RadixSettings`.

    Raises:
        NotOffered: the release has no such engine.
    """

    def __init__(self, settings: RadixSettings) -> None:
        self.settings = settings
        self.running: Running = running(settings)
        self.laws = LiveLaws((settings.page_size, settings.max_model_len), CONV_WIDTH - 1, 0)
        self.laws.known.vocabulary = VOCABULARY
        self.running.forward.kernels.weights = 0
        self.inputs: list[Any] = []
        self.rest: tuple[list[Any], bool] | None = None
        """What comes behind a pause, and whether the weights are other ones then."""
        self.paused = False
        self.started: set[str] = set()
        self.closed: dict[str, float] = {}
        """Sessions that were closed, and when the engine took that in, behind its own look for closed sessions in the same turn."""
        self.idle_since: float | None = None

    def add_request(
        self,
        id: str,  # noqa: A002
        prompt: tuple[int, ...],
        max_tokens: int,
        stop_after: int = 0,
    ) -> None:
        """A request comes in. The token number `stop_after` that it says ends it, by a stop token of its own; none does with 0."""
        stop = self._add(id, prompt, max_tokens, stop_after)
        self.inputs.append(generate(id, prompt, max_tokens, stop, **self._priority()))

    def _add(self, name: str, prompt: tuple[int, ...], most: int, stop_after: int) -> int | None:
        """The stop token of a request that comes in."""
        self.laws.add(name, prompt, most)
        request = self.laws.requests[name]
        request.stop = request.token(len(prompt) + stop_after - 1) if stop_after else None
        return request.stop

    def _priority(self) -> dict[str, int]:
        """The argument of the request that came in last."""
        priorities = self.settings.priorities
        return {"priority": priorities[(len(self.laws.requests) - 1) % len(priorities)]} if priorities else {}

    def open_session(self, id: str, streaming: bool) -> None:  # noqa: A002
        """A session begins."""
        self.inputs.append(open_session(id, streaming))

    def add_turn(
        self,
        id: str,  # noqa: A002
        prompt: tuple[int, ...],
        sent: tuple[int, ...],
        max_tokens: int,
        session: str,
        after: str,
        offset: int,
        drops_output: bool,
        replaces: bool,
        stop_after: int = 0,
    ) -> None:
        """A request comes in whose prompt is what a session has, and the tokens behind it that are sent.

        Args:
            id: of the request.
            prompt: all tokens that should be computed: those that its user means, or a 0 if the session cannot take it now.
            sent: the last of them.
            max_tokens: after which it stops.
            session: of the request.
            after: the request that it continues, "" for the last one of a streaming session, and for none of another.
            offset: tokens of that one that it keeps, all with -1.
            drops_output: it keeps none that were said.
            replaces: it takes the place of all that continued that request.
            stop_after: the number of the token that it says that is its stop token, 0 for none.
        """
        stop = self._add(id, prompt, max_tokens, stop_after)
        parameters = session_parameters(session, after, offset, drops_output=drops_output, replaces=replaces)
        self.inputs.append(
            generate(id, sent, max_tokens, stop, session_params=parameters, **self._priority())
        )

    def close_session(self, id: str) -> None:  # noqa: A002
        """A session ends; the release gives back what it keeps when it looks for such sessions."""
        self.closed[id] = math.inf
        self.inputs.append(message("CloseSessionReqInput", session_id=id))

    def second_passes(self) -> None:
        """The clock by which the release looks for closed sessions goes on by more than a second."""
        self.running.sessions.second_passes()

    def delay_copies(self, to_host: int, from_host: int, storage: int = 0) -> None:
        """From now on, copies to host memory and from it are done so many turns late, or when the release waits for them; so is the work of a storage."""
        COPIES.to_host, COPIES.from_host, COPIES.storage = to_host, from_host, storage

    def fail_storage(self, pages: int, states: int, saves: int, raises: bool) -> None:
        """How many reads of a page, reads of a state and saves of a storage succeed before one fails; with -1 none fails.

        Args:
            pages: reads of pages.
            states: reads of states.
            saves: saves of both.
            raises: a failed read raises an error.
        """
        if self.running.storage is not None:
            self.running.storage.failures = Failures(pages, states, saves, raises)

    def sleep(self, level: int, mode: str) -> None:  # noqa: ARG002 - the release has one level, and here keeps all requests
        """Sleep, and wake up: all requests that run go back to the queue, and the memory of the caches is given back and taken again."""
        self._rest([release_memory(), resume_memory()])

    def update_weights(self, sleep: bool) -> None:
        """Give the model other weights: all requests that run go back to the queue before, and the release empties its caches.

        Args:
            sleep: the memory of weights and caches is given back before, so that what stands in it is lost.
        """
        released = [release_memory(), resume_memory("weights")] if sleep else []
        self._rest(
            [*released, update_weights(), *[resume_memory("kv_cache", "cuda_graph")] * sleep], updates=True
        )

    def _rest(self, messages: list[Any], *, updates: bool = False) -> None:
        """Pause; the messages come in the next turn, behind the results of steps in flight.

        Raises:
            NotOffered: the adapter does not know how the release gives memory back.
        """
        if not self.running.can_rest:
            raise NotOffered("memory that is given back")
        self.inputs.append(message("PauseGenerationReqInput", mode="retract"))
        self.rest = messages, updates

    def _woken(self) -> list[Any]:
        """What comes first in a turn behind a pause. Memory is given back by an idle engine alone."""
        rest, self.rest = self.rest, None
        if rest is None:
            return []
        messages, updates = rest
        if not self.running.scheduler.is_fully_idle(ignore_waiting=True):
            messages, updates = [], False
        if updates:
            self.laws.update_weights()
            self.running.forward.kernels.weights += 1
        return [*messages, message("ContinueGenerationReqInput")]

    def abort(self, id: str) -> None:  # noqa: A002
        """A client goes away, whatever its request is doing."""
        self.inputs.append(message("AbortReq", rid=id))

    def reset_prefix_cache(self, preempt: bool) -> None:  # noqa: ARG002 - the release does it when nothing runs
        """Empty the prefix cache; the release refuses while anything runs."""
        self.inputs.append(message("FlushCacheReqInput"))

    def pause(self, retract: bool) -> None:
        """Generation pauses and goes on at once: in place, or with all requests that run sent back to the queue."""
        self.inputs.append(message("PauseGenerationReqInput", mode="retract" if retract else "in_place"))
        self.inputs.append(message("ContinueGenerationReqInput"))

    def step(self, turns: dict[str, int]) -> RadixStep:
        """A turn of the engine's loop."""
        self.running.propose(self.laws.known, turns)
        seen, findings = self.advance()
        return RadixStep(
            {name: asdict(decided) for name, decided in seen.scheduled.items()},
            tuple(self.running.finished),
            tuple(self.running.aborted),
            seen.outputs,
            tuple(seen.owners_after),
            tuple(stored[:4] for stored in seen.published),
            self.running.loaded_states(self._histories()),
            self.running.failed_reads(),
            seen.idle,
            in_sentences(findings),
            findings,
        )

    def advance(self) -> tuple[ObservedStep, tuple[Broken, ...]]:
        """A turn as the laws see it, and what of it breaks them."""
        inputs, self.inputs = [*(self._woken() if self.paused else []), *self.inputs], []
        self.paused = self.rest is not None
        now = self.running
        self.closed = {name: min(at, now.sessions.now) for name, at in self.closed.items()}
        now.turn(inputs)
        seen = ObservedStep(rows=now.rows, owners=now.owners, outputs=now.outputs, idle=now.idle)
        seen.ended = [name for name in now.finished if name not in now.aborted]
        self.started -= now.queued
        seen.scheduled = {
            row.request: Decided(row.computed, len(row.tokens), now.drafts, row.request not in self.started)
            for row in now.rows
        }
        held = now.held()
        self.started = {name for name in self.started | set(seen.scheduled) if name in held}
        left = self._left(seen.idle)
        held |= now.sessions.kept(held.values())
        seen.owners_after = now.pools.owners(held)
        cached = list(prefixes(now.scheduler.tree_cache, self._histories()))
        if now.pools.checkpoints is not None:
            cached = [_in_checkpoints(prefix) for prefix in cached]
        pages = [
            slot // self.settings.page_size
            for prefix in cached
            for slot in prefix.keys[:: self.settings.page_size]
        ]
        slots = [prefix.state for prefix in cached if prefix.state is not None]
        seen.pools = now.pools.observed(held, pages, slots)
        if now.host is not None:
            seen.pools += now.host.observed(cached, now.storage.held() if now.storage else ((), ()))
            unused = [prefix for prefix in cached if prefix.state is not None and not prefix.locked]
            seen.first_host_block, seen.room = HOST, len(seen.pools[STATES].free) + len(unused)
        if now.host is None and not now.sessions.open:
            seen.locked = [len(prefix.tokens) for prefix in cached if prefix.locked]
        seen.published = [stored for prefix in cached for stored in self._published(prefix)]
        if now.storage is not None:
            seen.published += now.storage.published(self._histories(), self.laws.known.named_by)
        seen.slots = {
            name: max(now.pools.slots_of(owner), default=0)
            for name, owner in held.items()
            if name in self.laws.requests or name in left
        }
        return seen, tuple(self.laws.step(seen))

    def _histories(self) -> Iterator[tuple[int, ...]]:
        """The tokens of each request as they have to become, and as the release has them: it cuts those of a session's aborted turn."""
        for known_request in self.laws.known.requests.values():
            yield tuple(known_request.token(at) for at in range(self.settings.max_model_len))
        for request in self.running.requests.values():
            yield (*request.origin_input_ids, *request.output_ids)

    def _left(self, idle: bool) -> set[str]:
        """Closed sessions that should have given back what they keep: nothing ran for more than a second since."""
        now = self.running.sessions.now
        if not idle:
            self.idle_since = None
            return set()
        if self.idle_since is None:
            self.idle_since = now
        return {name for name, at in self.closed.items() if now > max(at, self.idle_since)}

    def _published(self, prefix: Any) -> Iterator[Stored]:
        """The data that a hit of a prefix takes: its keys, page by page, and its state."""
        name, count = self.laws.known.named_by(prefix.tokens)
        page, first = self.settings.page_size, count - len(prefix.keys)
        late_keys, late_states = self.running.pools.late_slots()
        if prefix.keys:
            layers = self.running.pools.keys_at(prefix.keys)
            for at in range(0, len(prefix.keys), page):
                if not late_keys.isdisjoint(prefix.keys[at : at + page]):
                    continue
                contents = [("keys", layer[at : at + page]) for layer in layers]
                yield ATTENTION, prefix.keys[at] // page, name, first + at + page, contents
        if prefix.state is not None and prefix.state not in late_states:
            yield STATES, prefix.state, name, count, self.running.pools.state_at(prefix.state)
        if self.running.host is not None:
            yield from self.running.host.published(name, count, prefix)


def _in_checkpoints(prefix: Prefix) -> Prefix:
    """The prefix, whose state is a checkpoint."""
    return prefix if prefix.state is None else replace(prefix, state=CHECKPOINT + prefix.state)
