"""The release's engine: its own scheduler, cache manager and worker, with a forward that names tokens in its states.

A scenario is a sequence of calls with plain values. `step` observes what the scheduler decided, what each row of the forward read
where the metadata sent it, and what then stands in every block that may be hit; the laws say what of it is broken.

A worker is made of settings, the release's two configurations, the memory, and the plan of drafts. It has `execute`, which takes
a scheduler's output, returns a model runner's and says what its forward read; `drafts`, for the scheduler; and `slots`.
"""

import collections
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from oracle.lifecycle.broken_laws import Broken, in_sentences
from oracle.lifecycle.live import LiveLaws
from oracle.lifecycle.named_states import advanced, next_token
from oracle.lifecycle.observed import Decided, GroupAccess, ObservedStep, Place
from oracle.lifecycle.stages import StagedLaws
from statecheck.subject.subject import NotOffered
from subjects.kit.drafts import chain_of
from subjects.vllm.engine.config import block_sizes, kv_cache_config, vllm_config
from subjects.vllm.engine.connector import LiveConnection
from subjects.vllm.engine.released_connectors import ReleasedConnection
from subjects.vllm.engine.rests import LiveRests
from subjects.vllm.engine.scheduler import block_hasher, hash_lookahead, keys_of, made_scheduler
from subjects.vllm.engine.settings import CONV_WIDTH, RELEASED, LiveSettings, require_mode
from subjects.vllm.engine.stages import LivePipeline
from subjects.vllm.engine.states import LiveMemory
from subjects.vllm.engine.step import LiveStep, accessed, held
from subjects.vllm.engine.v1 import LiveWorkerV1
from subjects.vllm.engine.v2 import LiveWorkerV2
from subjects.vllm.release import RELEASE, RELEASE_NAME, find

__all__ = ["LiveEngine", "LiveSettings", "LiveStep"]


class LiveEngine:
    """The release's engine core, as far as states go.

    Args:
        settings: see `LiveSettings`.

    Raises:
        NotOffered: the release has no such engine, or none that runs without a GPU.
    """

    def __init__(self, settings: LiveSettings) -> None:
        require_mode(settings)
        self.settings = settings
        dim_first = find("vllm.model_executor.layers.mamba.mamba_utils:get_conv_state_layout")() == "DS"
        self.config = vllm_config(settings)
        self.caches = kv_cache_config(settings, dim_first)
        scheduler, hashes = block_sizes(self.config, self.caches)
        sizes = [group.kv_cache_spec.block_size for group in self.caches.kv_cache_groups]
        if settings.prefix_caching and any(size % hashes for size in sizes):
            raise NotOffered(f"release {RELEASE_NAME} hashes no parts of blocks")
        self.hash_block_size = hashes
        self.memory = LiveMemory(settings, dim_first)
        self.connection: LiveConnection | ReleasedConnection | None = None
        if settings.connector in RELEASED:
            self.connection = ReleasedConnection(
                settings, self.config, self.caches, self.memory, self._owners, self._named
            )
        elif settings.connector:
            self.connection = LiveConnection(
                settings, self.config, self.caches, self.memory, hashes, self._named_blocks
            )
        self.turns: dict[str, int] = {}
        self.preempted: list[str] = []
        self.finished: list[str] = []
        self.loading: dict[Place, str] = {}
        self.requests: list[Any] = []
        self.known: dict[bytes, tuple[str, int]] = {}
        """By block hash, the request and the number of its tokens that it stands for."""
        self.scheduler = made_scheduler(settings, self.config, self.caches, scheduler, hashes)
        self.pool = self.scheduler.kv_cache_manager.block_pool
        if self.connection is not None:
            self.connection.bind(self.scheduler)
        self.worker = _worker(settings)(settings, self.config, self.caches, self.memory, self._drafts)
        if isinstance(self.connection, ReleasedConnection):
            self.connection.attach(self.worker.connector)
        self.hasher = block_hasher(settings, self.config, hashes)
        self.in_flight: collections.deque[Any] = collections.deque()
        self.laws: LiveLaws | StagedLaws = LiveLaws(
            sizes,
            CONV_WIDTH - 1,
            settings.num_blocks,
            # The release takes the last block of attention out of a hit.
            recomputed=settings.kv_block_size if settings.method == "eagle" and settings.num_spec else 0,
            lookahead=hash_lookahead(self.config),
            sliding_window=settings.sliding_window,
        )
        if settings.stages > 1:
            self.laws = StagedLaws(sizes, CONV_WIDTH - 1, settings.num_blocks, settings.stages)
        self.dummies: list[GroupAccess] = []
        """What rows of dummy batches did since the last step."""
        self.rests = LiveRests(
            self.scheduler,
            self.memory,
            self.in_flight,
            self._keeps_blocks,
            self._dummy_batch,
            self._initialize_caches,
        )

    def add_request(
        self,
        id: str,  # noqa: A002
        prompt: tuple[int, ...],
        max_tokens: int,
        sends: bool = False,
        loads: str = "",
    ) -> None:
        """A request comes in.

        Args:
            sends: it computes the prompt for another request, as on a server for prefills.
            loads: it loads the prompt from the blocks of this request, which has ended, as on a server for decodes.
        """
        # The last token of a prompt is the other request's to compute, where a model has recurrent states.
        self.laws.add(id, prompt[: max(1, len(prompt) - 1)] if sends else prompt)
        parameters = find("vllm.sampling_params:SamplingParams")(
            max_tokens=max_tokens, temperature=0.0, ignore_eos=True
        )
        Item = find("vllm.multimodal.inputs:MultiModalFeatureSpec")
        Place = find("vllm.multimodal.inputs:PlaceholderRange")
        items = [
            Item(None, "image", str(prompt[offset]), Place(offset=offset, length=length))
            for offset, length in self.settings.items
            if len(prompt) >= offset + length
        ]
        priorities = self.settings.priorities or (0,)
        request = find("vllm.v1.request:Request")(
            request_id=id,
            prompt_token_ids=list(prompt),
            sampling_params=parameters,
            pooling_params=None,
            arrival_time=float(len(self.laws.requests)),
            block_hasher=self.hasher,
            priority=priorities[(len(self.laws.requests) - 1) % len(priorities)],
            **({"mm_features": items} if items else {}),
        )
        if sends:
            request.kv_transfer_params = {"do_remote_decode": True, "do_remote_prefill": False}
        elif loads and isinstance(self.connection, ReleasedConnection):
            request.kv_transfer_params = self.connection.loads(id, loads)
        self.requests.append(request)
        self.scheduler.add_request(request)
        self._remember()

    def abort(self, id: str) -> None:  # noqa: A002
        """A client goes away, whatever its request is doing."""
        status = find("vllm.v1.request:RequestStatus").FINISHED_ABORTED
        self.scheduler.finish_requests([id], status)

    def reset_prefix_cache(self, preempt: bool, external: bool = False) -> None:
        """Empty the prefix cache, and that of a connector with `external`; with `preempt`, running requests are preempted for it.

        The latter is refused, as "not supported yet", while blocks are kept for a connector by requests that do not run.
        """
        stores = {"reset_connector": True} if external else {}
        if external:
            self._empty_store()
        self.scheduler.reset_prefix_cache(preempt and not self._keeps_blocks(), **stores)

    def update_weights(self, sleep: bool) -> None:
        """Give the model other weights, as the release does for it: all requests that run are preempted, and caches are emptied.

        Args:
            sleep: the engine sleeps meanwhile, so that what stands in its blocks is lost. Nothing is done in an engine in stages.
        """
        if isinstance(self.laws, LiveLaws):
            self.rests.begin(2 if sleep else None, "keep", self._new_weights)

    def sleep(self, level: int, mode: str, anew: bool = False) -> None:
        """Sleep, and wake up: see `EngineCore.sleep` for level and mode. An engine in stages only pauses.

        Args:
            anew: behind a sleep in which caches were lost they are initialised again, at other addresses.
        """
        level = level if isinstance(self.laws, LiveLaws) else 0
        self.rests.begin(level, mode, self._empty_store, anew=anew)

    def _initialize_caches(self) -> None:
        """Nothing where a connector or a port knows the addresses of the caches, or where the adapter does not know how the release takes caches away."""
        settings = self.settings
        if not (settings.connector or settings.inside or settings.kernels) and RELEASE >= (0, 33):
            self.memory.renew()
            self.worker.initialize_again()

    def _dummy_batch(self) -> None:
        if self.settings.dummy_batches:
            self.dummies += self.worker.execute_dummy_batch()

    def _empty_store(self) -> None:
        if isinstance(self.laws, LiveLaws):
            self.laws.empty_store()

    def _new_weights(self) -> None:
        assert isinstance(self.laws, LiveLaws)
        self.memory.weights += 1
        self.laws.update_weights()

    def _keeps_blocks(self) -> bool:
        """Whether blocks are kept for a connector, so that the release refuses to empty its caches."""
        return self.connection is not None and self.connection.keeps(self._owners())

    def step(self, turns: dict[str, int]) -> LiveStep:
        """A step of the engine.

        Args:
            turns: of each request, how many of the drafts that are proposed in this step the model will accept.
        """
        seen, findings = self.advance(turns)
        known, page = self.laws.known, self.settings.kv_block_size
        return LiveStep(
            {name: asdict(decided) for name, decided in seen.scheduled.items()},
            tuple(self.preempted),
            tuple(self.finished),
            seen.outputs,
            tuple(seen.owners_after),
            tuple(stored[:4] for stored in seen.published),
            seen.free,
            seen.idle,
            in_sentences(findings),
            findings,
            tuple(seen.owners),
            accessed(seen.rows, known, page),
            held(seen.owners_after, self.memory, known, page),
            *(
                ()
                if self.connection is None or seen.transfers is None
                else self.connection.report(seen.transfers)
            ),
        )

    def advance(self, turns: dict[str, int]) -> tuple[ObservedStep, tuple[Broken, ...]]:
        """A step as the laws see it, and what of it breaks them; see `step`."""
        self.turns = turns
        link = self.connection
        saving = frozenset() if link is None else link.saving
        self.preempted, self.finished, self.loading = [], [], {}
        seen = ObservedStep()
        self.rests.go_on()
        if not self._step(seen):
            self._dummy_batch()
        # Those of a pause, too, which began before the step.
        seen.dummies, self.dummies = self.dummies, []
        self._observe(seen)
        seen.transfers = None if link is None else link.moved(saving, self.loading)
        return seen, tuple(self.laws.step(seen))

    def _step(self, seen: ObservedStep) -> bool:
        """Whether a batch was executed."""
        if self.scheduler.has_requests():
            seen.in_flight = sum(before.total_num_scheduled_tokens > 0 for before, _ in self.in_flight)
            scheduled = self.scheduler.schedule()
            self._remember()
            seen.scheduled = self._decided(scheduled)
            self.preempted = sorted(scheduled.preempted_req_ids or ())
            seen.owners = self._owners()
            if isinstance(self.worker, LivePipeline):
                seen.published = self._published(self.memory)
            if self.connection is not None:
                self.loading = self.connection.begin_step(seen.scheduled, seen.owners)
            output = self.worker.execute(scheduled, seen)
            self.in_flight.append((scheduled, output))
            executed = scheduled.total_num_scheduled_tokens > 0
            depth = self.config.max_concurrent_batches
            if depth > 1 and len(self.in_flight) < depth and (executed or self.scheduler.has_requests()):
                return executed
            self._update(seen)
            if executed and self.settings.num_spec and not self.settings.async_scheduling:
                drafts = self.worker.drafts()
                if drafts is not None:
                    self.scheduler.update_draft_token_ids(drafts)
            return executed
        if self.in_flight:
            self._update(seen)
        return False

    def _update(self, seen: ObservedStep) -> None:
        scheduled, output = self.in_flight.popleft()
        output = output.get_output() if hasattr(output, "get_output") else output
        for outputs in self.scheduler.update_from_output(scheduled, output).values():
            for result in outputs.outputs:
                seen.outputs[result.request_id] = tuple(result.new_token_ids)
                if result.finish_reason is not None:
                    self.finished.append(result.request_id)
                if isinstance(self.connection, ReleasedConnection) and result.kv_transfer_params:
                    self.connection.keep(result.request_id, result.kv_transfer_params)
        self._remember()

    def _decided(self, scheduled: Any) -> dict[str, Decided]:
        """The scheduler's decision for each request of the step."""
        computed = {request.req_id: request.num_computed_tokens for request in scheduled.scheduled_new_reqs}
        fresh = set(computed)
        again = scheduled.scheduled_cached_reqs
        computed |= dict(zip(again.req_ids, again.num_computed_tokens, strict=True))
        drafts = scheduled.scheduled_spec_decode_tokens
        return {
            name: Decided(
                computed=computed[name],
                tokens=count,
                drafts=len(drafts.get(name, ())),
                begins=name in fresh or name in again.resumed_req_ids,
            )
            for name, count in scheduled.num_scheduled_tokens.items()
        }

    def _drafts(self, name: str, tokens: list[int], count: int) -> list[int]:
        """Drafts after these tokens, of which the model will accept as many as the request's turn says."""
        state = 0
        for token in tokens:
            state = advanced(state, token, self.memory.weights)
        right = []
        for _ in range(count):
            right.append(next_token(state))
            state = advanced(state, right[-1], self.memory.weights)
        return chain_of(right, self.turns.get(name, 0))

    def _remember(self) -> None:
        for request in self.requests:
            hashes = request.block_hashes
            if (getattr(request, "kv_transfer_params", None) or {}).get("do_remote_decode"):
                # A prompt that is sent is cut after it was hashed.
                hashes = hashes[: request.num_prompt_tokens // self.hash_block_size]
            for at, found in enumerate(hashes):
                self.known.setdefault(bytes(found), (request.request_id, (at + 1) * self.hash_block_size))
        self.requests = [request for request in self.requests if not request.is_finished()]

    def _owners(self) -> list[tuple[str, int, int, int]]:
        """(request, group, column, block) of each block that a request has."""
        managers = self.scheduler.kv_cache_manager.coordinator.single_type_managers
        return [
            (name, group, at, block.block_id)
            for group, manager in enumerate(managers)
            for name, blocks in manager.req_to_blocks.items()
            for at, block in enumerate(blocks)
            if not block.is_null
        ]

    def _observe(self, seen: ObservedStep) -> None:
        """Note the memory after the step, and the requests that own it."""
        counts = {
            block.block_id: block.ref_cnt for block in self.pool.blocks if block.ref_cnt and not block.is_null
        }
        seen.owners_after = self._owners()
        seen.references = sorted(counts.items())
        seen.free = self.pool.get_num_free_blocks()
        seen.slots = self.worker.slots
        seen.idle = not (self.scheduler.has_requests() or self.in_flight or self.rests.under_way)
        seen.published = self._published(self.memory)
        if isinstance(self.worker, LivePipeline):
            seen.stages = self.worker.observed()

    def _published(self, memory: LiveMemory) -> list[tuple[Any, ...]]:
        """Of each block that may be hit: group, block, a request and how many of its tokens it stands for, contents."""
        found = [
            (group, block.block_id, name, count, memory.contents(group, block.block_id))
            for group, block, _, name, count in self._named_blocks()
        ]
        return sorted(found, key=lambda block: block[:4])

    def _named_blocks(self) -> Iterator[tuple[int, Any, bytes, str, int]]:
        """Of each block that may be hit: group, block, hash, a request and how many of its tokens it stands for."""
        for group, block, prefix in keys_of(self.pool):
            yield group, block, prefix, *self._named(prefix)

    def _named(self, prefix: bytes) -> tuple[str, int]:
        """The request and the number of its tokens that a hash stands for."""
        return self.known.get(prefix, ("", 0))


def _worker(settings: LiveSettings) -> Any:
    if settings.stages > 1:
        return LivePipeline
    return LiveWorkerV1 if settings.runner == "V1" else LiveWorkerV2
