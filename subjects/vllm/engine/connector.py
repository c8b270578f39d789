"""The connector of scenarios, as the release makes and calls it: an instance beside the scheduler, and one beside the worker.

It is named in the release's configuration like any connector that is not the release's own.
"""

import contextlib
import functools
import importlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from statecheck.subject.not_offered import NotOffered
from subjects.vllm.engine.offers import LiveOffers
from subjects.vllm.engine.settings import LiveSettings
from subjects.vllm.engine.transfers import LiveTransfers
from subjects.vllm.release import find, optional

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
    """What the two instances are made with."""
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
