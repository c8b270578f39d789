"""The connector of scenarios: what is saved outside of the cache, and loads and saves at the moments drawn.

It is named in the release's configuration like any connector that is not the release's own, and the release makes an instance beside the scheduler
and another one beside the worker. The scheduler's side (`LiveOffers`) says what may be loaded, and asks for loads and saves. With prefix caching
every full block that may be hit is saved under its hash, either as soon as it may be hit, and then it is counted as in use until that is done, or
when its request is gone. Without, a prompt is saved as a whole when it is computed, as an instance that computes prompts for another one does.
The worker's side (`LiveTransfers`) reads and writes blocks some of its steps after it was asked to.
"""

import contextlib
import dataclasses
import functools
import importlib
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from oracle.lifecycle.observed import Place, Transfers
from statecheck.subject.subject import NotOffered
from subjects.vllm.engine.settings import LiveSettings
from subjects.vllm.engine.states import LiveMemory
from subjects.vllm.release import find, optional


@dataclasses.dataclass(frozen=True)
class BlockMove:
    """A block to load or to save: of which group, what it is kept under, and as how many tokens of which request."""

    group: int
    block: int
    prefix: Any
    request: str
    tokens: int


@dataclasses.dataclass(frozen=True)
class LiveTransfer:
    """A load or a save of several blocks.

    Args:
        number: counts loads, and saves, from 0.
        request: for which it loads, or that is gone and whose blocks are kept until it is saved; else "".
        steps: of the worker until it is done; 0 is in the step that asks for it.
        sync: a load that the scheduler takes for done in the step.
        fails: a load that writes nothing.
        pinned: a save for which its blocks are counted as in use.
    """

    number: int
    request: str
    blocks: tuple[BlockMove, ...]
    steps: int
    sync: bool = False
    fails: bool = False
    pinned: bool = False


class LiveTransfers:
    """Carries out loads and saves.

    Args:
        memory: of the engine, to tell what stood in a block when it was saved.
        names: of the layers, group by group.
    """

    def __init__(self, settings: LiveSettings, memory: LiveMemory, names: Sequence[Sequence[str]]) -> None:
        self.settings, self.memory, self.names = settings, memory, names
        self.store: dict[tuple[int, Any], list[torch.Tensor]] = {}
        self.saved: list[tuple[Any, ...]] = []
        """Blocks that were read to be saved since the engine last looked: group, block, request, tokens, contents."""
        self.written: list[tuple[int, int, str, int]] = []
        """Blocks that were loaded since then: group, block, request, tokens."""
        self.unloaded: list[str] = []
        """Requests whose loads failed since then."""
        self._caches: dict[str, list[torch.Tensor]] = {}
        self._loads: dict[LiveTransfer, int] = {}
        self._saves: dict[LiveTransfer, int] = {}
        self._loaded: list[LiveTransfer] = []
        self._sent: list[LiveTransfer] = []
        self._kept: list[LiveTransfer] = []

    def register(self, caches: Mapping[str, Any]) -> None:
        """The memory of each layer, as the release hands it over: a tensor, or one for each kind of state."""
        self._caches = {
            name: [found] if isinstance(found, torch.Tensor) else list(found)
            for name, found in caches.items()
        }

    def begin(self, loads: Iterable[LiveTransfer], saves: Iterable[LiveTransfer]) -> None:
        """Begin the transfers that a step asks for."""
        self._loads |= {load: load.steps for load in loads}
        self._saves |= {save: save.steps for save in saves}

    def load(self) -> None:
        """Loads of this step."""
        for load in self._due(self._loads):
            if load.fails:
                self.unloaded.append(load.request)
            else:
                self.write(load)
            self._loaded.append(load)

    def save(self) -> None:
        """Saves of this step, after its forward."""
        for save in self._due(self._saves):
            for move in save.blocks:
                self.saved.append((*_as_published(move), self.memory.contents(move.group, move.block)))
                self.store[move.group, move.prefix] = [
                    states[move.block].clone() for states in self._states(move.group)
                ]
            self._sent.append(save)
            self._kept.append(save)

    def write(self, load: LiveTransfer) -> None:
        """Write saved states into the blocks of a load."""
        for move in load.blocks:
            kept = self.store[move.group, move.prefix]
            for states, values in zip(self._states(move.group), kept, strict=True):
                states[move.block] = values
            self.written.append(_as_published(move))

    def forget(self) -> bool:
        """Drop all saved blocks."""
        self.store.clear()
        return True

    def received(self) -> set[str]:
        """Requests whose loads were done since this was asked, also those that failed."""
        done, self._loaded = self._loaded, []
        return {load.request for load in done if not load.sync}

    def failed(self) -> set[str]:
        """Of those that `received` will name, the ones whose loads failed."""
        return {load.request for load in self._loaded if load.fails}

    def sent(self) -> set[str]:
        """Requests that are gone and whose blocks were saved since this was asked."""
        done, self._sent = self._sent, []
        return {save.request for save in done if save.request}

    def kept(self) -> tuple[int, ...]:
        """Numbers of saves that were done since this was asked."""
        done, self._kept = self._kept, []
        return tuple(save.number for save in done)

    def _states(self, group: int) -> list[torch.Tensor]:
        return [states for name in self.names[group] for states in self._caches[name]]

    def _due(self, waiting: dict[LiveTransfer, int]) -> list[LiveTransfer]:
        due = [transfer for transfer, steps in waiting.items() if steps == 0]
        for transfer in list(waiting):
            waiting[transfer] -= 1
        for transfer in due:
            del waiting[transfer]
        return due


def _as_published(move: BlockMove) -> tuple[int, int, str, int]:
    return move.group, move.block, move.request, move.tokens


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
        return Counter(move.block for save in self.saves.values() if save.pinned for move in save.blocks)

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
        late = (save for save in self.saves.values() if save.pinned or save.request)
        return frozenset((move.group, move.block) for save in late for move in save.blocks)

    def asked(self, scheduled: Any) -> SimpleNamespace:
        """Transfers of the worker in the step."""
        if not self.settings.prefix_caching:
            self._save_prompts(scheduled)
        elif not self.settings.saves_at_end:
            self._save_published()
        loads, self._next_loads = self._next_loads, []
        saves, self._next_saves = self._next_saves, []
        return SimpleNamespace(loads=tuple(loads), saves=tuple(saves))

    def _full(self) -> Iterator[tuple[Any, ...]]:
        """Of what may be hit, the blocks that are full. A request goes on in its last one, though it may be hit."""
        return (block for block in self.published() if block[-1] and block[-1] % self.sizes[block[0]] == 0)

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
        found = tuple(move for move in moves if (move.group, move.prefix) not in self._asked)
        self._asked |= {(move.group, move.prefix) for move in found}
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

    def forget(self) -> bool:
        """Whether nothing is under way, so that the store is empty from now on."""
        if self.loads or self.saves or self._next_loads or self._next_saves:
            return False
        self._stored.clear()
        self._asked.clear()
        return True

    def _number(self, kind: int) -> int:
        self._numbers[kind] += 1
        return self._numbers[kind] - 1

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


_FOLDER = "vllm.distributed.kv_transfer"
_MODULE, _SHARED = "statecheck_connector", "statecheck"


def configure_connector(config: Any, settings: LiveSettings) -> None:
    """Name the connector in the release's configuration.

    Raises:
        NotOffered: the release has no connectors that may do what is drawn.
    """
    if (
        settings.failing_loads
        and optional(f"{_FOLDER}.kv_connector.v1.base:KVConnectorTransferResults") is None
    ):
        raise NotOffered("a release that takes failed loads of models with several groups")
    sys.modules[_MODULE] = SimpleNamespace(LiveConnector=live_connector())  # type: ignore[assignment]
    config.kv_transfer_config = find("vllm.config:KVTransferConfig")(
        kv_connector="LiveConnector",
        kv_connector_module_path=_MODULE,
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config={_SHARED: SimpleNamespace(offers=None, transfers=None)},
    )
    # As the release resolves it for a connector that supports its hybrid memory allocator.
    config.scheduler_config.disable_hybrid_kv_cache_manager = False


def share(config: Any, offers: LiveOffers, transfers: LiveTransfers) -> None:
    """Arguments of the two instances."""
    shared = config.kv_transfer_config.kv_connector_extra_config[_SHARED]
    shared.offers, shared.transfers = offers, transfers


def worker_connector(config: Any, caches: Any) -> Any:
    """The worker's instance, None where there is no connector."""
    if config.kv_transfer_config is None:
        return None
    roles = find(f"{_FOLDER}.kv_connector.v1.base:KVConnectorRole")
    factory = find(f"{_FOLDER}.kv_connector.factory:KVConnectorFactory")
    return factory.create_connector(config=config, role=roles.WORKER, kv_cache_config=caches)


@contextlib.contextmanager
def in_place(connector: Any) -> Iterator[None]:
    """Within, it is the connector of the process. Another engine of the process has its own."""
    state = vars(importlib.import_module(f"{_FOLDER}.kv_transfer_state"))
    before = state["_KV_CONNECTOR_AGENT"]
    try:
        state["_KV_CONNECTOR_AGENT"] = connector
        yield
    finally:
        state["_KV_CONNECTOR_AGENT"] = before


@functools.cache
def live_connector() -> Any:
    """The class of both instances."""
    base = find(f"{_FOLDER}.kv_connector.v1.base:KVConnectorBase_V1")
    every_group = find(f"{_FOLDER}.kv_connector.v1.base:SupportsHMA")
    results = optional(f"{_FOLDER}.kv_connector.v1.base:KVConnectorTransferResults")

    class LiveConnector(base, every_group):  # type: ignore[misc, valid-type]
        requires_kv_delivery = False

        def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
            super().__init__(vllm_config, role, kv_cache_config)
            shared = vllm_config.kv_transfer_config.kv_connector_extra_config[_SHARED]
            self.offers: LiveOffers = shared.offers
            self.transfers: LiveTransfers = shared.transfers

        # Of the scheduler's instance.

        def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
            self.offers.pool = gpu_block_pool

        def get_num_new_matched_tokens(
            self, request: Any, num_computed_tokens: int
        ) -> tuple[int | None, bool]:
            return self.offers.matched(request, num_computed_tokens)

        def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
            self.offers.allocated(request, blocks.get_block_ids(), num_external_tokens)

        def build_connector_meta(self, scheduler_output: Any) -> Any:
            return self.offers.asked(scheduler_output)

        def update_connector_output(self, connector_output: Any) -> None:
            meta = connector_output.kv_connector_worker_meta
            saved = () if meta is None else meta.saved
            self.offers.transferred(connector_output.finished_recving or (), saved)

        def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, None]:
            return self.offers.finished(request, block_ids), None

        def reset_cache(self) -> bool:
            return self.offers.forget() and self.transfers.forget()

        def has_pending_push_work(self) -> bool:
            return bool(self.offers.saves)

        def has_pending_block_frees(self) -> bool:
            return bool(self.offers.kept)

        # Of the worker's.

        def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
            self.transfers.register(kv_caches)

        def bind_connector_metadata(self, connector_metadata: Any) -> None:
            super().bind_connector_metadata(connector_metadata)
            self.transfers.begin(connector_metadata.loads, connector_metadata.saves)

        def start_load_kv(self, *_: Any, **__: Any) -> None:
            self.transfers.load()

        def wait_for_layer_load(self, layer_name: str) -> None:
            """Loads of the step are done when they have started."""

        def save_kv_layer(self, *_: Any, **__: Any) -> None:
            """Blocks are saved as a whole."""

        def wait_for_save(self) -> None:
            self.transfers.save()

        def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str], set[str]]:  # noqa: ARG002 - the release's
            return self.transfers.sent(), self.transfers.received()

        def build_connector_worker_meta(self) -> Any:
            return SimpleNamespace(saved=self.transfers.kept())

    if results is not None:

        def get_transfer_results(self: Any, finished_req_ids: set[str]) -> Any:
            failed = self.transfers.failed()
            sent, received = self.get_finished(finished_req_ids)
            return results(finished_sending=sent, finished_recving=received, failed_recving=failed)

        LiveConnector.get_transfer_results = get_transfer_results
    return LiveConnector


def freed_late(scheduler: Any) -> Counter[int]:
    """The blocks that the release frees once the steps in flight are done, since a load could be written before them."""
    deferred = [blocks for _, blocks in getattr(scheduler, "deferred_frees", ())]
    return Counter(block.block_id for blocks in deferred for block in blocks if not block.is_null)


class LiveConnection:
    """The connector that the release's configuration names, before its scheduler and its worker are made.

    Args:
        caches: the release's configuration of the cache.
        hash_size: tokens of a hash.
        published: see `LiveOffers`.

    Raises:
        NotOffered: see `configure_connector`.
    """

    def __init__(
        self,
        settings: LiveSettings,
        config: Any,
        caches: Any,
        memory: LiveMemory,
        hash_size: int,
        published: Callable[[], Iterable[tuple[Any, ...]]],
    ) -> None:
        configure_connector(config, settings)
        groups = caches.kv_cache_groups
        sizes = [group.kv_cache_spec.block_size for group in groups]
        self.offers = LiveOffers(settings, sizes, hash_size, published)
        self.transfers = LiveTransfers(settings, memory, [group.layer_names for group in groups])
        self.scheduler: Any = None
        share(config, self.offers, self.transfers)

    def bind(self, scheduler: Any) -> None:
        """The scheduler that the connector is beside."""
        self.scheduler = scheduler
        self.offers.manager = scheduler.kv_cache_manager

    def keeps(self, owners: Iterable[tuple[str, int, int, int]]) -> bool:
        """Whether blocks are in use by the connector, or by requests that do not run."""
        running = {request.request_id for request in self.scheduler.running}
        return bool(self.offers.kept) or any(name not in running for name, *_ in owners)

    @property
    def saving(self) -> frozenset[Place]:
        """See `LiveOffers.saving`."""
        return self.offers.saving

    def begin_step(self, *_: Any) -> dict[Place, str]:
        """The request of each place that is being loaded while the worker's next step runs."""
        return self.loading()

    def loading(self) -> dict[Place, str]:
        """The request of each (group, block) that is being loaded."""
        loads = self.offers.loads.items()
        return {(move.group, move.block): name for name, load in loads for move in load.blocks}

    def moved(self, saving: frozenset[Place], loading: dict[Place, str]) -> Transfers:
        """Transfers under way after a step; `saving` and `loading` were under way before it."""
        saved = tuple(self.transfers.saved)
        self.transfers.saved.clear()
        kept = self.offers.kept + freed_late(self.scheduler)
        return Transfers(loading, self.loading(), saving, self.offers.saving, saved, kept)

    def report(self, moved: Transfers) -> tuple[tuple[Any, ...], ...]:
        """Loaded blocks, saved blocks, and the requests whose load failed, since the last step."""
        loaded, failed = tuple(self.transfers.written), tuple(self.transfers.unloaded)
        self.transfers.written.clear()
        self.transfers.unloaded.clear()
        return loaded, tuple(save[:4] for save in moved.saved), failed
