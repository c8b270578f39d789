"""The storage behind host memory: the release's own in files, whose threads work when a turn begins.

The release gives pages of host memory to threads, which save them under keys of their tokens, ask for keys and load them. Each thread here takes what its
queue has for it when a turn begins, or so many turns later as a scenario says, so that an example repeats.
"""

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from queue import Queue
from types import SimpleNamespace
from typing import Any

from oracle.lifecycle.observed import Stored
from statecheck.util.temporary import folder_of_process
from subjects.kit.objects import names_in
from subjects.sglang.engine.host import COPIES
from subjects.sglang.engine.host_tier import keys_in_page, state_in_slot
from subjects.sglang.engine.settings import ATTENTION, STATES
from subjects.sglang.release import RELEASE, NotOffered, find

_OLDEST = (0, 5, 23)
_CONTROLLER = "sglang.srt.managers.cache_controller"
_HYBRID_CONTROLLER = "sglang.srt.mem_cache.hybrid_cache.hybrid_cache_controller"
_STATES_OF_A_KEY = ".mamba"
"""Ends the key of a state; keys and values have that of their tokens alone."""
Named = Callable[[tuple[int, ...]], tuple[str, int]]
"""A request that begins with these tokens, and how many they are."""
STORED = 2000
"""Offset of the numbers of what is in the storage, to tell them from slots of host memory and of the device."""


def hashed(key: Any, before: bytes | None, page: int | None = None) -> str | list[str]:
    """In the place of an extension that the release compiles: the key of tokens behind a key, or one behind each of their pages."""
    tokens, digest, found = list(getattr(key, "raw_token_ids", lambda: key)())[: len(key)], before or b"", []
    for first in range(0, len(tokens), page or max(1, len(tokens))):
        named = repr(tokens[first : first + page if page else None])
        digest = hashlib.sha256(digest + named.encode()).digest()
        found.append(digest.hex())
    return found if page else digest.hex()


class _NothingToDo(Exception):
    """Ends a thread's loop until the next turn."""


class _WorkQueue(Queue[Any]):
    """A queue of the storage's threads: what is put into it may wait for some turns."""

    def _put(self, item: Any) -> None:
        self.queue.append((COPIES.turn + COPIES.storage, item))

    def _get(self) -> Any:
        return self.queue.popleft()[1]

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """As a queue's, but a thread, which waits for a second, ends instead.

        Raises:
            _NothingToDo: a thread has nothing to do in this turn.
        """
        if timeout is not None and not (self.queue and self.queue[0][0] <= COPIES.turn):
            raise _NothingToDo
        return super().get(block, timeout)


class _StorageThread:
    """A thread of the storage, which works in turns."""

    def __init__(self, target: Callable[[], None], **_: Any) -> None:
        self.target = target

    def start(self) -> None:
        COPIES.threads.append(self.work)

    def work(self) -> None:
        with suppress(_NothingToDo):
            self.target()

    def join(self, timeout: float | None = None) -> None:  # noqa: ARG002 - it does not run now
        if self.work in COPIES.threads:
            COPIES.threads.remove(self.work)

    def is_alive(self) -> bool:
        return False


@dataclass
class Failures:
    """Which calls of the storage fail next: that many of a kind succeed, and the call behind them fails; none fails with -1."""

    pages: int = -1
    states: int = -1
    saves: int = -1
    raises: bool = False
    """A failed read raises an error, as of a file that is cut off. Otherwise it returns None, as of a file that is gone."""

    def fails(self, kind: str) -> bool:
        """Whether this call of the kind fails."""
        left = getattr(self, kind)
        setattr(self, kind, max(-1, left - 1))
        return bool(left == 0)


def storage_arguments(policy: str) -> dict[str, Any]:
    """The arguments of an engine whose requests wait for loads of a storage by this policy, "" for one without a storage.

    Raises:
        NotOffered: the adapter does not know the release's threads.
    """
    if not policy:
        return {}
    if RELEASE < _OLDEST:
        raise NotOffered("a storage behind host memory")
    names = names_in(_CONTROLLER)
    # The release logs each failed read with its traceback.
    logging.getLogger(_CONTROLLER).setLevel(logging.CRITICAL)
    logging.getLogger(_HYBRID_CONTROLLER).setLevel(logging.CRITICAL)
    names["threading"] = SimpleNamespace(**vars(threading) | {"Thread": _StorageThread})
    names["Queue"] = _WorkQueue
    names_in("sglang.srt.mem_cache.utils")["get_native_hash"] = hashed
    names_in(_HYBRID_CONTROLLER)["Queue"] = _WorkQueue
    return {
        "hicache_storage_backend": "file",
        "hicache_storage_prefetch_policy": policy,
        # Prefixes of scenarios are short.
        "hicache_storage_backend_extra_config": json.dumps({"prefetch_threshold": 1}),
        "file_storage_path": str(folder_of_process("statecheck-sglang-storage-")),
    }


class Storage:
    """What is saved in the storage of an engine.

    Args:
        tree: the release's cache, which has one.
        page: tokens of a page.
    """

    def __init__(self, tree: Any, page: int) -> None:
        self.tree, self.page = tree, page
        self.keys_of: Callable[..., list[str]] = find("sglang.srt.mem_cache.utils:get_storage_hash_str")
        self.numbers = count(STORED)
        self.saved: dict[str, Any] = {}
        """By key, the bytes that were saved since the last step."""
        self.loaded: list[str] = []
        """Keys that were loaded since the last step."""
        self.failures = Failures()
        self.failed_reads = 0
        """Since the last step."""
        save, load = self.backend.set, self.backend.get

        def note_saved(key: str, value: Any, *more: Any, **named: Any) -> Any:
            if self.failures.fails("saves"):
                return False
            self.saved[key] = value.clone()
            return save(key, value, *more, **named)

        def note_loaded(key: str, *more: Any, **named: Any) -> Any:
            if self.failures.fails("states" if key.endswith(_STATES_OF_A_KEY) else "pages"):
                self.failed_reads += 1
                if self.failures.raises:
                    raise OSError(f"short read of {key} [get]")
                return None
            value = load(key, *more, **named)
            self.loaded += [key] * (value is not None)
            return value

        self.backend.set, self.backend.get = note_saved, note_loaded

    @property
    def backend(self) -> Any:
        return self.tree.cache_controller.storage_backend

    def held(self) -> tuple[set[int], set[int]]:
        """Slots of keys and of states in host memory that loads are to fill, and those that threads have given back and that are not free yet."""
        controller = self.tree.cache_controller
        keys = [given for _, given in controller.host_mem_release_queue.queue]
        states = [
            given
            for released in controller.extra_host_mem_release_queues.values()
            for _, given in released.queue
        ]
        running = [load.operation for load in self.tree.ongoing_prefetch.values()]
        for load in running:
            keys.append(load.host_indices)
            states += [transfer.host_indices for transfer in load.pool_transfers or ()]
        for load in self._ended_loads(running):
            # What was loaded before the load was ended is given back at once, and the rest by a thread.
            if load.host_indices is not None:
                keys.append(load.host_indices[load.completed_tokens :])
            if not load.pool_transfers_done:
                states += [transfer.host_indices for transfer in load.pool_transfers or ()]
        return _slots_in(keys), _slots_in(states)

    def _ended_loads(self, running: Sequence[Any]) -> list[Any]:
        """Loads that the scheduler has ended, and that threads do not know of."""
        controller = self.tree.cache_controller
        queues = controller.prefetch_buffer, controller.prefetch_sync_queue, controller.ack_prefetch_queue
        given = [getattr(item, "operation", item) for queue in queues for _, item in queue.queue]
        return [load for load in given if all(load is not one for one in running)]

    def clear(self) -> None:
        self.backend.clear()
        self.saved.clear()
        self.loaded.clear()
        self.failures, self.failed_reads = Failures(), 0

    def loaded_states(self, histories: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
        """Of each state that was loaded since the last step, behind how many tokens it is."""
        loaded, self.loaded = {key for key in self.loaded if key.endswith(_STATES_OF_A_KEY)}, []
        ends = {
            at * self.page
            for tokens in histories
            if loaded
            for at, key in enumerate(self.keys_of_pages(tokens), 1)
            if key + _STATES_OF_A_KEY in loaded
        }
        return tuple(sorted(ends))

    def failed(self) -> int:
        """How many reads have failed since the last step."""
        failed, self.failed_reads = self.failed_reads, 0
        return failed

    def keys_of_pages(self, tokens: tuple[int, ...]) -> list[str]:
        """By page, the key of all tokens up to its end."""
        whole = tokens[: len(tokens) // self.page * self.page]
        return self.keys_of(whole, None, page_size=self.page)

    def published(self, histories: Iterable[tuple[int, ...]], named_by: Named) -> Iterator[Stored]:
        """What was saved since the last step, as the data behind tokens of a request. A block's number comes once, so that no hit of it is waited for."""
        saved, self.saved = self.saved, {}
        for tokens in histories if saved else ():
            for at, key in enumerate(self.keys_of_pages(tokens), 1):
                for group, of_group in (ATTENTION, key), (STATES, key + _STATES_OF_A_KEY):
                    if of_group in saved:
                        name, tokens_before = named_by(tokens[: at * self.page])
                        yield (
                            group,
                            next(self.numbers),
                            name,
                            tokens_before,
                            self._contents(group, saved.pop(of_group)),
                        )
        for key in saved:
            yield STATES if key.endswith(_STATES_OF_A_KEY) else ATTENTION, next(self.numbers), "", 0, ()

    def _contents(self, group: int, page: Any) -> list[tuple[str, Any]]:
        if group == ATTENTION:
            buffer = self.tree.full_kv_pool_host.kv_buffer
            return keys_in_page(*page.reshape(2, *buffer.shape[2:]))
        pool, found, first = self.tree.mamba_pool_host, [], 0
        for buffer in (pool.temporal_buffer[0], pool.conv_buffer[0][0]):
            end = first + buffer.numel() * buffer.element_size()
            found.append(page[first:end].clone().view(buffer.dtype).reshape(buffer.shape))
            first = end
        return state_in_slot(*found)


def _slots_in(listed: Iterable[Any]) -> set[int]:
    return {slot for slots in listed if slots is not None for slot in slots.tolist()}
