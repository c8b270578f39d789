"""The release's scheduler as it runs: its loop, what passes through it, and how it is emptied for the next scenario."""

import atexit
import gc
import os
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from oracle.lifecycle.known_states import KnownStates
from oracle.lifecycle.observed import ForwardRow, Owner
from subjects.sglang.engine.config import made_scheduler
from subjects.sglang.engine.forward import NamedForward
from subjects.sglang.engine.host import COPIES
from subjects.sglang.engine.host_tier import HostMemory
from subjects.sglang.engine.loop import Loop, Sessions, message
from subjects.sglang.engine.pools import Pools
from subjects.sglang.engine.releases import require_core, require_core_for_torch
from subjects.sglang.engine.settings import RadixSettings
from subjects.sglang.engine.storage import Storage

_LAST: list["Running"] = []
"""The scheduler of this process, if there is one that can go on."""
_MOST_TURNS = 200


class LostMemory:
    """In the place of what gives memory back to a GPU and takes it again: what stood in the caches is lost."""

    def __init__(self, pools: Pools) -> None:
        self.pools = pools

    def pause(self, tag: str) -> None:
        if tag == "kv_cache":
            self.pools.poison()

    def resume(self, tag: str) -> None:
        """Nothing is in it."""


class Running:
    """A scheduler and what it did in its last turn.

    Args:
        settings: of the engine.
    """

    def __init__(self, settings: RadixSettings) -> None:
        self.settings = settings
        require_core(settings.core)
        os.environ["SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"] = settings.core
        self.scheduler = made_scheduler(settings)
        self.pools = Pools(self.scheduler)
        if settings.core == "rust":
            require_core_for_torch(self.scheduler, settings.page_size)
        tree = self.scheduler.tree_cache
        self.sessions = Sessions(self.scheduler, settings.sessions)
        self.host = HostMemory(tree, settings.page_size) if settings.host_policy else None
        self.storage = Storage(tree, settings.page_size) if settings.storage_policy else None
        self.forward = NamedForward(
            self.scheduler.tp_worker.model_runner, self.pools, settings.mamba_chunk_size
        )
        self.requests: dict[str, Any] = {}
        self._watch()
        self.loop = Loop(self.scheduler)
        self._begin()
        self.pools.poison()
        # The release collects garbage whenever it is made and empties its cache, which takes half a second of all that is imported.
        gc.collect()
        gc.freeze()

    def _begin(self) -> None:
        self.rows: Sequence[ForwardRow] = ()
        self.drafts = 0
        self.owners: Sequence[Owner] = ()
        self.outputs: dict[str, tuple[int, ...]] = {}
        self.finished: list[str] = []
        self.aborted: list[str] = []
        """Of those that finished, the ones that did not come to their end."""
        self.queued: set[str] = set()
        """Requests that came to the queue in this turn, for the first time or sent back."""

    def _watch(self) -> None:
        """See each batch as it is run, and each output as it is sent."""
        scheduler = self.scheduler
        run, add = scheduler.run_batch, scheduler._add_request_to_queue

        def run_batch(batch: Any, *given: Any) -> Any:
            self.owners = self.pools.owners(self.held())
            self.forward.names = [request.rid for request in batch.reqs]
            result = run(batch, *given)
            self.rows, self.drafts = self.forward.rows, self.forward.drafts
            return result

        def add_request(request: Any, *given: Any, **named: Any) -> Any:
            self.requests[request.rid] = request
            self.queued.add(request.rid)
            return add(request, *given, **named)

        scheduler.run_batch, scheduler._add_request_to_queue = run_batch, add_request
        updater = getattr(scheduler, "weight_updater", None)
        self.can_rest = hasattr(updater, "_select_runners")
        if updater is not None and self.can_rest:
            updater.memory_saver_adapter = LostMemory(self.pools)
            for _, runner in updater._select_runners():
                runner.weight_updater = SimpleNamespace(update_weights_from_disk=lambda *_, **__: (True, ""))
        for name in ("send_to_detokenizer", "send_to_tokenizer"):
            getattr(scheduler.ipc_channels, name).send_output = self._sent

    def _sent(self, output: Any, *_: Any) -> None:
        if type(output).__name__ == "AbortReq":
            self.finished.append(output.rid)
            self.aborted.append(output.rid)
            return
        for at, name in enumerate(getattr(output, "rids", None) or ()):
            said = output.output_ids[at] if output.output_ids else ()
            self.outputs[name] = (*self.outputs.get(name, ()), *said)
            reason = output.finished_reasons[at]
            if reason is not None:
                self.finished.append(name)
                if reason["type"] == "abort":
                    self.aborted.append(name)

    def turn(self, inputs: Sequence[Any]) -> None:
        """A turn of the loop that begins with these inputs."""
        self._begin()
        COPIES.begin_turn()
        self.loop.turn(inputs)

    def loaded_states(self, histories: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
        """Behind how many tokens each state is that came from a storage."""
        return () if self.storage is None else self.storage.loaded_states(histories)

    def failed_reads(self) -> int:
        """Reads of a storage that failed since the last step."""
        return 0 if self.storage is None else self.storage.failed()

    def propose(self, known: KnownStates, accepted: Mapping[str, int]) -> None:
        """Have drafts be right as a scenario says, by what it knows of its requests."""
        worker = self.scheduler.draft_worker
        corpus = getattr(worker, "ngram_corpus", None) or getattr(worker, "_draft_worker", None)
        if corpus is not None:
            corpus.known, corpus.accepted = known, accepted

    @property
    def idle(self) -> bool:
        return bool(self.scheduler.is_fully_idle())

    def held(self) -> dict[str, Any]:
        """Requests that have pages or slots. A finished one gives its row back, and its slot or its state's place in the tree."""
        return {
            name: request
            for name, request in self.requests.items()
            if request.kv.req_pool_idx is not None
            or (request.kv.mamba_pool_idx is not None and not request.finished())
        }

    def emptied(self) -> bool:
        """Abort all requests and empty the cache; whether the engine is then as a new one."""
        COPIES.finish()
        try:
            ended = message("AbortReq", rid="", abort_all=True), message("ContinueGenerationReqInput")
            self.turn([*ended, *self.sessions.close_all()])
            for _ in range(_MOST_TURNS):
                if self.idle:
                    break
                self.turn([])
            self.sessions.second_passes()
            self.turn([])
            if not self.scheduler.flush_cache() or self.held() or self.sessions.open:
                return False
        except Exception:
            return False
        if self.storage is not None:
            self.storage.clear()
        self.requests.clear()
        self.pools.poison()
        return True

    def stop(self) -> None:
        """End the loop, and close its sockets."""
        self.loop.stop()
        self.scheduler.ipc_channels.recv_from_tokenizer.context.destroy()


atexit.register(gc.unfreeze)


def running(settings: RadixSettings) -> Running:
    """A scheduler with these settings that has nothing to do and an empty cache."""
    if _LAST and _LAST[0].settings == settings and _LAST[0].emptied():
        return _LAST[0]
    while _LAST:
        _LAST.pop().stop()
        # What it holds is freed with it: its sockets and groups of processes have open files. What is left is not looked through again.
        gc.unfreeze()
        gc.collect()
        gc.freeze()
    _LAST.append(Running(settings))
    return _LAST[0]
