"""What the release's engine sees of its connector: the two sides of it, and what they have under way."""

import collections
from collections.abc import Callable, Iterable
from typing import Any

from oracle.lifecycle.observed import Place, Transfers
from subjects.vllm.engine.connector import configure_connector, share
from subjects.vllm.engine.offers import LiveOffers
from subjects.vllm.engine.settings import LiveSettings
from subjects.vllm.engine.states import LiveMemory
from subjects.vllm.engine.transfers import LiveTransfers


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

    def loading(self) -> dict[Place, str]:
        """The request of each (group, block) that is being loaded."""
        loads = self.offers.loads.items()
        return {(move.group, move.block): name for name, load in loads for move in load.blocks}

    def moved(self, saving: frozenset[Place], loading: dict[Place, str]) -> Transfers:
        """What is under way after a step, of which there was so much before it, and while its forward ran."""
        # What the release frees once the steps in flight are done, since a load could be written before them.
        deferred = [blocks for _, blocks in getattr(self.scheduler, "deferred_frees", ())]
        # In 0.28 a request keeps the copy of its tail that can be hit, too, until it is gone.
        tails = getattr(self.offers.manager, "_partial_tail_pins", {}).values()
        freed = (one.block_id for blocks in (*deferred, *tails) for one in blocks if not one.is_null)
        saved = tuple(self.transfers.saved)
        self.transfers.saved.clear()
        kept = self.offers.kept + collections.Counter(freed)
        return Transfers(loading, self.loading(), saving, self.offers.saving, saved, kept)

    def report(self, moved: Transfers) -> tuple[tuple[Any, ...], ...]:
        """What was loaded, what was saved, and the requests whose load failed, since the last step."""
        loaded, failed = tuple(self.transfers.written), tuple(self.transfers.unloaded)
        self.transfers.written.clear()
        self.transfers.unloaded.clear()
        return loaded, tuple(one[:4] for one in moved.saved), failed
