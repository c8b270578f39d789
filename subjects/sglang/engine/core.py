"""SGLang's engine in scenarios: its own scheduler, radix tree, pools and worker, with a forward that names tokens.

A scenario is a sequence of calls with plain values. `step` is a turn of the release's own event loop. A scheduler takes a second to
be made, and the release expects one of them in a process: the next scenario with the same settings gets the same one, emptied.
"""

import inspect
from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from oracle.lifecycle.broken_laws import Broken, BrokenLaws, in_sentences
from oracle.lifecycle.live import LiveLaws
from oracle.lifecycle.observed import Decided, ObservedStep, Owner, Stored
from subjects.sglang.engine.running import Running, running
from subjects.sglang.engine.settings import ATTENTION, CONV_WIDTH, STATES, VOCABULARY, RadixSettings
from subjects.sglang.engine.tree import prefixes
from subjects.sglang.release import RELEASE, NotOffered, find

__all__ = ["RadixEngine", "RadixSettings", "RadixStep"]

_OLDEST_PAUSE = (0, 5, 10)


@dataclass(frozen=True)
class RadixStep:
    """What a turn of the engine was, and what of it breaks a law."""

    scheduled: dict[str, dict[str, Any]]
    finished: tuple[str, ...]
    outputs: dict[str, tuple[int, ...]]
    owners_after: tuple[Owner, ...]
    published: tuple[tuple[int, int, str, int], ...]
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
        self.inputs: list[Any] = []
        self.started: set[str] = set()

    def add_request(self, id: str, prompt: tuple[int, ...], max_tokens: int) -> None:  # noqa: A002
        """A request comes in."""
        self.laws.add(id, prompt)
        parameters = find("sglang.srt.sampling.sampling_params:SamplingParams")(
            max_new_tokens=max_tokens, temperature=0.0, ignore_eos=True
        )
        parameters.normalize(None)
        made = find("sglang.srt.managers.io_struct:TokenizedGenerateReqInput")
        known = inspect.signature(made).parameters
        given = {
            "rid": id,
            "input_ids": array("q", prompt)
            if "array" in str(known["input_ids"].annotation)
            else list(prompt),
            "sampling_params": parameters,
            "return_logprob": False,
            "logprob_start_len": -1,
            "top_logprobs_num": 0,
            "stream": True,
        }
        # Without a value of their own in some releases, and unknown in others.
        absent = dict.fromkeys(
            ("input_text", "input_embeds", "mm_inputs", "token_type_ids", "token_ids_logprob")
        )
        self.inputs.append(made(**{name: value for name, value in (absent | given).items() if name in known}))

    def abort(self, id: str) -> None:  # noqa: A002
        """A client goes away, whatever its request is doing."""
        self.inputs.append(find("sglang.srt.managers.io_struct:AbortReq")(rid=id))

    def reset_prefix_cache(self, preempt: bool) -> None:  # noqa: ARG002 - the release does it when nothing runs
        """Empty the prefix cache; the release refuses while anything runs."""
        self.inputs.append(find("sglang.srt.managers.io_struct:FlushCacheReqInput")())

    def pause(self, retract: bool) -> None:
        """Generation pauses and goes on at once: in place, or with all requests that run sent back to the queue.

        Raises:
            NotOffered: the release pauses in a way that loses its requests; see docs/findings/triage.md.
        """
        if RELEASE < _OLDEST_PAUSE:
            raise NotOffered("pauses")
        inputs = "sglang.srt.managers.io_struct"
        mode = "retract" if retract else "in_place"
        self.inputs.append(find(f"{inputs}:PauseGenerationReqInput")(mode=mode))
        self.inputs.append(find(f"{inputs}:ContinueGenerationReqInput")())

    def step(self, turns: dict[str, int]) -> RadixStep:
        """A turn of the engine's loop."""
        self.running.propose(self.laws.known, turns)
        seen, findings = self.advance()
        return RadixStep(
            {name: asdict(decided) for name, decided in seen.scheduled.items()},
            tuple(self.running.finished),
            seen.outputs,
            tuple(seen.owners_after),
            tuple(stored[:4] for stored in seen.published),
            seen.idle,
            in_sentences(findings),
            findings,
        )

    def advance(self) -> tuple[ObservedStep, tuple[Broken, ...]]:
        """A turn as the laws see it, and what of it breaks them."""
        inputs, self.inputs = self.inputs, []
        now = self.running
        now.turn(inputs)
        seen = ObservedStep(rows=now.rows, owners=now.owners, outputs=now.outputs, idle=now.idle)
        self.started -= now.queued
        seen.scheduled = {
            row.request: Decided(row.computed, len(row.tokens), now.drafts, row.request not in self.started)
            for row in now.rows
        }
        held = now.held()
        self.started = {name for name in self.started | set(seen.scheduled) if name in held}
        seen.owners_after = now.pools.owners(held)
        cached = list(prefixes(now.scheduler.tree_cache, now.requests.values()))
        pages = [
            slot // self.settings.page_size for one in cached for slot in one.keys[:: self.settings.page_size]
        ]
        slots = [one.state for one in cached if one.state is not None]
        seen.pools = now.pools.observed(held, pages, slots)
        if now.host is not None:
            seen.pools += now.host.observed(cached)
        seen.published = [stored for one in cached for stored in self._published(one)]
        seen.slots = {name: max(now.pools.slots_of(one), default=0) for name, one in held.items()}
        return seen, tuple(self.laws.step(seen))

    def _published(self, prefix: Any) -> Iterator[Stored]:
        """What a hit of a prefix takes: its keys, page by page, and its state."""
        name, count = self.laws.known.named_by(prefix.tokens)
        page, first = self.settings.page_size, count - len(prefix.keys)
        if prefix.keys:
            layers = self.running.pools.keys_at(prefix.keys)
            for at in range(0, len(prefix.keys), page):
                contents = [("keys", layer[at : at + page]) for layer in layers]
                yield ATTENTION, prefix.keys[at] // page, name, first + at + page, contents
        if prefix.state is not None:
            yield STATES, prefix.state, name, count, self.running.pools.state_at(prefix.state)
        if self.running.host is not None:
            yield from self.running.host.published(name, count, prefix)
