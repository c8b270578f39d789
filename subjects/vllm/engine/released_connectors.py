"""The release's own connectors, with nothing but the copy of bytes replaced.

Both sides of a connector run as they are: what it finds in its host memory, which blocks of a request's table it saves and under which key,
what it loads and where. Ours are the streams and events of a device, which there is none of, and the copies, which are carried out some steps of
the worker after they were asked for.
"""

import contextlib
import ctypes
import dataclasses
import importlib
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import torch

from oracle.lifecycle.observed import Decided, Owner, Place, Stored, Transfers
from statecheck.subject.subject import NotOffered
from subjects.kit.wire import NixlAgent, Wire
from subjects.vllm.engine.connector import freed_late
from subjects.vllm.engine.scheduler import keys_of
from subjects.vllm.engine.settings import LiveSettings, layer_names, page_size
from subjects.vllm.engine.states import LiveMemory
from subjects.vllm.engine.v1 import HostTorch, one_rank
from subjects.vllm.release import RELEASE, RELEASE_NAME, find, optional
from subjects.vllm.transfers import NIXL_SINCE, NIXL_WORKER, nixl_names

HOST = 1000
"""First number of blocks of host memory, beside those of the pool."""
_SIMPLE = "vllm.v1.simple_kv_offload.worker"
_OFFLOADING = "vllm.v1.kv_offload.cpu"
_SPEC = "statecheck_offloading"
_MOONCAKE = "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store"
_NIXL = "vllm.distributed.kv_transfer.kv_connector.v1.nixl"
_OTHER = "another engine"
"""The name under which the engine finds its own blocks, as NIXL's worker takes them for another engine's."""
_LEASE = 10**9
"""Seconds for which blocks of a prompt are kept until they are read: no scenario lasts so long."""
_KEY = re.compile(r"@group:(\d+)@([0-9a-f]+)$")


class Copy:
    """A copy of blocks, done behind the copy `after` and so many `steps` of the worker after it was asked for."""

    def __init__(self, run: Callable[[], None], steps: int, after: "Copy | None") -> None:
        self._run, self.steps, self.after, self.done = run, steps, after, False
        self.freed: set[int] = set()
        """Blocks of the pool that have been free behind a step since it was asked for."""

    def finish(self) -> None:
        if self.done:
            return
        if self.after is not None:
            self.after.finish()
        self._run()
        self.done, self.after = True, None


class Event:
    """An event behind the last copy of a stream by then; what else is on a stream is done at once."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.copy: Copy | None = None

    def record(self, stream: Any = None) -> None:
        self.copy = getattr(stream, "last", None)

    def query(self) -> bool:
        return self.copy is None or self.copy.done

    def synchronize(self) -> None:
        if self.copy is not None:
            self.copy.finish()

    def elapsed_time(self, _: Any) -> float:
        return 0.0


class Stream:
    """Of copies, one after the other. Copies are asked for on the `current` one."""

    current: "Stream"

    def __init__(self, *_: Any, **__: Any) -> None:
        self.last: Copy | None = None

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, 0

    def wait_event(self, event: Event) -> None:
        if event.copy is not None:
            self.last = event.copy

    def wait_stream(self, _: Any) -> None: ...

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        Stream.current = self
        yield


@dataclasses.dataclass
class Copies:
    """The copies of one engine, and what they move.

    Args:
        memory: whose blocks are copied from and to host memory.
        owners: see `Owner`, of this moment.
    """

    settings: LiveSettings
    memory: LiveMemory
    owners: Callable[[], list[Owner]]
    loading: dict[Copy, dict[Place, str]] = dataclasses.field(default_factory=dict)
    """By load that is not done, the request of each place."""
    loaded: list[tuple[int, int, str, int]] = dataclasses.field(default_factory=list)
    """Group, block, request and tokens of what was loaded since this was taken."""
    freed: set[int] = dataclasses.field(default_factory=set)
    """Blocks that copies have read since this was taken, and that were free before; see `Transfers`."""
    errors: list[Exception] = dataclasses.field(default_factory=list)
    """What the release would log, and go on."""
    _waiting: list[Copy] = dataclasses.field(default_factory=list)
    _numbers: Counter[bool] = dataclasses.field(default_factory=Counter)
    _save: Copy | None = None
    """The save that is being carried out."""

    def tick(self) -> None:
        """A step of the worker begins."""
        for copy in self._waiting:
            copy.steps -= 1
            if copy.steps <= 0 and (copy.after is None or copy.after.done):
                copy.finish()
        self._waiting = [copy for copy in self._waiting if not copy.done]

    def add(
        self,
        run: Callable[[], None],
        blocks: Iterable[int],
        *,
        load: bool,
        stream: Stream,
        source: Iterable[int] = (),
    ) -> None:
        """A copy to or from these blocks of the pool; `source` are those that a load reads."""
        steps = self.settings.load_steps if load else self.settings.save_steps
        late = steps[self._numbers[load] % len(steps)]
        self._numbers[load] += 1
        stream.last = copy = Copy(run, late, stream.last)
        if load:
            self._note_load(copy, set(blocks), set(source))
        else:
            self._note_save(copy, set(blocks))
        if late == 0 and (copy.after is None or copy.after.done):
            copy.finish()
        else:
            self._waiting.append(copy)

    def _note_load(self, copy: Copy, blocks: set[int], source: set[int]) -> None:
        owned = [owner for owner in self.owners() if owner[-1] in blocks]
        places = {(group, block): name for name, group, _, block in owned}
        sizes = [self.settings.kv_block_size] + [self.settings.mamba_block_size] * len(self.settings.kinds)
        found = [(group, block, name, (column + 1) * sizes[group]) for name, group, column, block in owned]
        run = copy._run

        def noted() -> None:
            run()
            self.loading.pop(copy, None)
            self.loaded += found
            self.freed |= copy.freed & source

        copy._run, self.loading[copy] = noted, places

    def _note_save(self, copy: Copy, blocks: set[int]) -> None:
        run = copy._run

        def noted() -> None:
            before, self._save = self._save, copy
            self.read(blocks)
            try:
                run()
            finally:
                self._save = before

        copy._run = noted

    def read(self, blocks: Iterable[int]) -> None:
        """The save that is being carried out reads these blocks of the pool."""
        if self._save is not None:
            self.freed |= self._save.freed & set(blocks)

    def note_free(self, blocks: set[int]) -> None:
        """A step is over, and these blocks are free."""
        for copy in self._waiting:
            copy.freed |= blocks

    def block_at(self, address: int) -> int:
        """The block of the pool that has this address, in whichever layer."""
        first = self.memory.pools[0]
        return (address - first.data_ptr()) // (first.nbytes // len(first)) % len(first)

    @property
    def under_way(self) -> dict[Place, str]:
        return {place: name for places in self.loading.values() for place, name in places.items()}

    def swap(self, source: torch.Tensor, target: torch.Tensor, sizes: torch.Tensor, load: bool) -> None:
        """Copy so many bytes from each address to the one beside it, all in one copy."""
        moves = list(zip(target.tolist(), source.tolist(), sizes.tolist(), strict=True))
        blocks = {self.block_at(to if load else start) for to, start, _ in moves}

        def run() -> None:
            for to, start, size in moves:
                ctypes.memmove(to, start, size)

        self.add(run, blocks, load=load, stream=Stream.current)


class SimpleCopies:
    """The backend of the simple connector's worker, which has a thread and a device's copies."""

    def __init__(self, copies: Copies) -> None:
        self.copies = copies

    def init(self, gpu_caches: Any, cpu_caches: Any, _: Any, load_stream: Any, store_stream: Any) -> None:
        self._pairs = [(gpu_caches[name], cpu_caches[name]) for name in gpu_caches]
        self._streams = {True: store_stream, False: load_stream}

    def launch_copy(
        self,
        src_blocks: list[int],
        dst_blocks: list[int],
        is_store: bool,
        event_idx: int,
        events_list: list[tuple[int, Event]],
        wait_event: Any = None,  # noqa: ARG002 - the release's
    ) -> None:
        source, target, stream = list(src_blocks), list(dst_blocks), self._streams[is_store]

        def run() -> None:
            for pool, host in self._pairs:
                to, start = (host, pool) if is_store else (pool, host)
                to[target] = start[source]

        self.copies.add(run, source if is_store else target, load=not is_store, stream=stream)
        event = Event()
        event.record(stream)
        events_list.append((event_idx, event))


class _OnDevice(torch.Tensor):
    """Memory that the release's worker takes for a device's."""

    is_cuda = True


def device_torch() -> HostTorch:
    """PyTorch with streams and events that stand behind the copies."""
    host = HostTorch(torch)
    vars(host)["Event"] = Event
    host.cuda.Stream, host.cuda.current_stream = Stream, lambda *_: None
    return host


def _offloading_spec(copies: Copies) -> Any:
    """The release's specification of host memory, whose worker copies without a device."""

    class LiveOffloading(find(f"{_OFFLOADING}.spec:CPUOffloadingSpec")):  # type: ignore[misc]
        _worker: Any

        def get_worker(self, kv_caches: Any) -> Any:
            if self._worker is None:
                for cache in kv_caches.tensors:
                    object.__setattr__(cache, "tensor", cache.tensor.as_subclass(_OnDevice))
                self._worker = self.create_worker(kv_caches)
            return self._worker

    module = vars(importlib.import_module(f"{_OFFLOADING}.gpu_worker"))
    module["torch"] = device_torch()
    module["current_platform"] = SimpleNamespace(
        Stream=Stream,
        current_stream=lambda: None,
        stream=Stream.entered,
        is_xpu=lambda: False,
        is_rocm=lambda: False,
    )
    module["ops"] = SimpleNamespace(
        swap_blocks_batch=lambda source, target, sizes, is_src_access_order_any: copies.swap(
            source, target, sizes, load=is_src_access_order_any
        )
    )
    return LiveOffloading


def _noting(method: Callable[..., Any]) -> Callable[..., Any]:
    """The release logs what its store or its agent raises, and goes on."""

    def called(self: Any, *given: Any, **named: Any) -> Any:
        try:
            return method(self, *given, **named)
        except Exception as error:
            self.errors.append(error)
            raise

    return called


class MooncakeStore:
    """In the place of the package `mooncake`: by key, the bytes of each buffer. Nothing is given up: a key that was looked up has a lease."""

    def __init__(self, copies: Copies) -> None:
        self.copies, self.errors = copies, copies.errors
        self.kept: dict[str, list[bytes]] = {}

    @_noting
    def batch_is_exist(self, keys: list[str]) -> list[int]:
        return [int(key in self.kept) for key in keys]

    @_noting
    def batch_put_from_multi_buffers(
        self, keys: list[str], addresses: list[list[int]], sizes: list[list[int]], _: Any
    ) -> list[int]:
        for key, starts, lengths in zip(keys, addresses, sizes, strict=True):
            self.copies.read(map(self.copies.block_at, starts))
            values = [ctypes.string_at(start, length) for start, length in zip(starts, lengths, strict=True)]
            self.kept.setdefault(key, values)
        return [0] * len(keys)

    @_noting
    def batch_get_into_multi_buffers(
        self, keys: list[str], addresses: list[list[int]], sizes: list[list[int]]
    ) -> list[int]:
        """Of each key how many bytes were copied, or -1 where it has none, or buffers of other sizes."""
        copied = []
        for key, starts, lengths in zip(keys, addresses, sizes, strict=True):
            values = self.kept.get(key)
            if values is None or len(starts) != len(values) or [*map(len, values)] != list(lengths):
                copied.append(-1)
                continue
            for start, value in zip(starts, values, strict=True):
                ctypes.memmove(start, value, len(value))
            copied.append(sum(lengths))
        return copied

    def remove_all(self, force: bool) -> None:  # noqa: ARG002 - the package's
        self.kept.clear()

    def register_buffer(self, *_: int) -> int:
        return 0

    def close(self) -> None: ...

    def stored(self) -> Iterator[tuple[int, bytes, list[bytes]]]:
        """(group, hash, bytes of each layer) of what may be loaded."""
        for key, found in self.kept.items():
            group, prefix = _KEY.findall(key)[0]
            yield int(group), bytes.fromhex(prefix), found


class _Requests:
    """The queue of a thread of the release, which handles a request when it is due as a copy; there is no thread. As in the thread, exceptions end the request alone."""

    def __init__(self, copies: Copies) -> None:
        self.copies, self.stream, self.unfinished_tasks = copies, Stream(), 0
        self.thread: Any = None

    def put(self, request: Any) -> None:
        def handle() -> None:
            try:
                self.thread._handle_request(request)
            except Exception as error:
                self.copies.errors.append(error)

        spec = request.load_spec if self.thread.name.startswith("KVCacheStoreRecv") else None
        # The blocks of a save are noted when the store reads them.
        blocks = [
            block
            for database, column in zip(self.thread.token_databases, request.block_ids, strict=True)
            for block in column[spec.vllm_cached_tokens // database.block_size if spec else len(column) :]
            if block
        ]
        self.copies.add(handle, blocks, load=spec is not None, stream=self.stream)

    def join(self) -> None:
        if self.stream.last is not None:
            self.stream.last.finish()

    def task_done(self) -> None: ...


def _start(thread: Any) -> None:
    thread.request_queue.thread = thread
    thread.ready_event.set()


def install_store(copies: Copies) -> MooncakeStore:
    """Have the connector that is made next use this store, and no thread and no socket."""
    store, worker = MooncakeStore(copies), list[Any]()

    class Lookups:
        """The client of the scheduler's side."""

        def lookup(self, _: str, num_tokens: int, hashes: Any, non_block: bool) -> Any:  # noqa: ARG002
            return worker[-1].lookup(num_tokens, list(hashes))

        def discard(self, _: str) -> None: ...

        def reset(self) -> bool:
            worker[-1].kv_send_thread.request_queue.join()
            store.remove_all(force=True)
            return True

    package = SimpleNamespace(MooncakeDistributedStore=lambda: store, ReplicateConfig=SimpleNamespace)
    sys.modules["mooncake.store"] = package  # type: ignore[assignment]
    module = vars(importlib.import_module(f"{_MOONCAKE}.worker"))
    config = SimpleNamespace(
        mode="embedded", enable_offload=False, global_segment_size=1, local_buffer_size=1, tenant_id="default"
    )
    module.update(
        torch=device_torch(),
        queue=SimpleNamespace(Queue=lambda: _Requests(copies)),
        LookupKeyServer=lambda made, _: worker.append(made),
        MooncakeStoreConfig=SimpleNamespace(load_from_config=lambda: config),
        setup_mooncake_store=lambda *_: None,
        get_ip=lambda: "localhost",
        get_tensor_model_parallel_rank=lambda: 0,
        get_tensor_model_parallel_world_size=lambda: 1,
        get_pcp_group=one_rank,
        get_dcp_group=one_rank,
    )
    module["KVTransferThread"].start = _start
    vars(importlib.import_module(f"{_MOONCAKE}.scheduler"))["LookupKeyClient"] = lambda _: Lookups()
    return store


class NixlRead(Event):
    """A transfer of NIXL: what it reads, where it writes that, and what it tells the engine that it has read from."""

    def __init__(self, source: Any, target: Any, message: bytes) -> None:
        super().__init__()
        self.source, self.target, self.message = source, target, message


class NixlCopies(NixlAgent):
    """In the place of NIXL's agent: it reads blocks of the engine itself, and its messages come back to the engine."""

    def __init__(self, copies: Copies) -> None:
        wire = Wire()
        wire.register(copies.memory.pools[0])
        super().__init__(wire)
        self.copies, self.errors = copies, copies.errors
        self.messages: list[bytes] = []

    @_noting
    def make_prepped_xfer(self, *given: Any, notif_msg: bytes, **named: Any) -> Any:
        return NixlRead(*super().make_prepped_xfer(*given, **named), notif_msg)

    @_noting
    def transfer(self, handle: Any) -> str:
        def run() -> None:
            self._wire.copy(handle.source, handle.target)
            self.messages.append(handle.message)

        source, target = (
            {self.copies.block_at(address) for address, _ in blocks}
            for blocks in (handle.source, handle.target)
        )
        stream = Stream()
        self.copies.add(run, target, load=True, stream=stream, source=source)
        handle.record(stream)
        return self.check_xfer_state(handle)

    def check_xfer_state(self, handle: NixlRead) -> str:
        return "DONE" if handle.query() else "PROC"

    def get_xfer_telemetry(self, _: NixlRead) -> None:
        """Nothing is measured."""

    def send_notif(self, _: str, notif_msg: bytes) -> None:
        self.messages.append(notif_msg)

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        messages, self.messages = self.messages, []
        return {"remote": messages}


def install_nixl(copies: Copies) -> None:
    """Have the connector that is made next copy blocks of this memory, with no handshake and no thread."""
    split = find("vllm.distributed.kv_transfer.kv_connector.v1.ssm_conv_transfer_utils:MambaConvSplitInfo")

    def whole(spec: Any, _: int) -> Any:
        """The convolution in one part, since scenarios have one rank, and no channels of a model."""
        sizes = [
            math.prod(shape) * dtype.itemsize for shape, dtype in zip(spec.shapes, spec.dtypes, strict=True)
        ]
        (channels, rows), itemsize = spec.shapes[0], spec.dtypes[0].itemsize
        return split(
            conv_rows=rows, local_proj_dims=(channels,), conv_dtype_size=itemsize, ssm_sizes=tuple(sizes)
        )

    names = nixl_names(lambda *_: NixlCopies(copies), ranks=1, rank=0, split=1)
    vars(importlib.import_module(NIXL_WORKER)).update(names | {"derive_mamba_conv_split": whole})


def pools_of(found: list[list[bytes]]) -> list[torch.Tensor]:
    """Of each layer, the blocks of these values."""
    return [
        torch.frombuffer(bytearray(b"".join(layer)), dtype=torch.int64).view(len(found), -1)
        for layer in zip(*found, strict=True)
    ]


class CountedPool:
    """The pool of blocks as a connector has it, and how often the connector counts a block as in use."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.kept: Counter[int] = Counter()

    def touch(self, blocks: Iterable[Any]) -> None:
        several = list(blocks)
        self.kept.update(block.block_id for block in several)
        self.pool.touch(several)

    def free_blocks(self, blocks: Iterable[Any], *more: Any, **named: Any) -> None:
        several = list(blocks)
        self.kept.subtract(block.block_id for block in several)
        self.pool.free_blocks(several, *more, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pool, name)


class ReleasedConnection:
    """The connector of the release that the settings name; see `LiveConnection`.

    Args:
        owners: see `Copies`.
        named: the request and the number of its tokens that a hash stands for.

    Raises:
        NotOffered: the release has no such connector, or not for these settings.
    """

    def __init__(
        self,
        settings: LiveSettings,
        config: Any,
        caches: Any,
        memory: LiveMemory,
        owners: Callable[[], list[Owner]],
        named: Callable[[bytes], tuple[str, int]],
    ) -> None:
        self.settings, self.memory, self.named = settings, memory, named
        self.sizes = [group.kv_cache_spec.block_size for group in caches.kv_cache_groups]
        self.copies = Copies(settings, memory, owners)
        self.external: dict[str, int] = {}
        """By request, the tokens that are loaded into the blocks that it got."""
        self.kept: dict[str, Any] = {}
        """By request that is over, what another request loads its prompt with."""
        self.arrived: list[Stored] = []
        self.sent = set[str]()
        """Requests that have not begun, and are to load what another request has computed of their prompt."""
        self.begun = frozenset[str]()
        """Those of them that begin in this step."""
        self.saving: frozenset[Place] = frozenset()
        """Always empty: what is saved is judged where it stands in host memory, and blocks of saves when they are read."""
        self.scheduler: Any = None
        self.pool: CountedPool | None = None
        self.worker: Any = None
        self._host: LiveMemory | None = None
        if settings.stages > 1 or not (settings.prefix_caching or settings.connector == "nixl"):
            raise NotOffered(
                "a connector of the release with stages, or one for blocks of prefixes without prefix caching"
            )
        self._configure(config, caches)

    def _configure(self, config: Any, caches: Any) -> None:
        """Name the connector in the release's configuration, and have its worker copy without a device."""
        settings = self.settings
        lays_out = optional("vllm.v1.kv_cache_interface:KVCacheTensor")
        if optional(f"{_SIMPLE}:DmaCopyBackend") is None or "layer_stride" not in getattr(
            lays_out, "__dataclass_fields__", ()
        ):
            raise NotOffered(f"release {RELEASE_NAME} has no connector for host memory that is run here")
        page = page_size(settings, self.memory.dim_first)
        span = page * settings.num_blocks
        caches.kv_cache_tensors = [
            lays_out(
                size=span * settings.layers,
                layers=layer_names(settings, group),
                layer_stride=span,
                block_stride=page,
            )
            for group in range(1 + len(settings.kinds))
        ]
        host = max(2, settings.host_blocks)
        extra: dict[str, Any] = {"cpu_bytes_to_use": host * page * settings.layers}
        if settings.connector == "offloading":
            name = "OffloadingConnector"
            sys.modules[_SPEC] = SimpleNamespace(LiveOffloading=_offloading_spec(self.copies))  # type: ignore[assignment]
            # The release rounds a block up to a page of the host's memory.
            extra["cpu_bytes_to_use"] = host * 4096 * -(-page * settings.layers // 4096)
            extra |= {"spec_name": "LiveOffloading", "spec_module_path": _SPEC}
        elif settings.connector == "mooncake":
            if optional(f"{_MOONCAKE}.worker:setup_mooncake_store") is None:
                raise NotOffered(f"release {RELEASE_NAME} sets up Mooncake's store in another way")
            name, extra = "MooncakeStoreConnector", {}
            self.store = install_store(self.copies)
        elif settings.connector == "nixl":
            if RELEASE < NIXL_SINCE:
                raise NotOffered(f"NIXL of release {RELEASE_NAME}, whose descriptors the agent does not have")
            if not self.memory.dim_first or "short_conv" in settings.kinds:
                raise NotOffered(
                    "NIXL with convolutions in layout SD, or without temporal states, which it refuses"
                )
            name, extra = "NixlConnector", {"kv_lease_duration": _LEASE}
            object.__setattr__(config.cache_config, "kv_cache_layout", "LBHNC")
            install_nixl(self.copies)
        else:
            name = "SimpleCPUOffloadConnector"
            module = vars(importlib.import_module(_SIMPLE))
            module["torch"] = device_torch()
            module["DmaCopyBackend"] = lambda: SimpleCopies(self.copies)
            extra |= {"lazy_offload": settings.connector == "simple-lazy"}
        config.kv_transfer_config = find("vllm.config:KVTransferConfig")(
            kv_connector=name,
            kv_role="kv_both",
            engine_id="statecheck",
            kv_buffer_device="cuda",
            kv_load_failure_policy="recompute",
            kv_connector_extra_config=extra,
        )
        config.scheduler_config.disable_hybrid_kv_cache_manager = False

    def bind(self, scheduler: Any) -> None:
        """The scheduler that the connector is beside."""
        self.scheduler = scheduler
        self.pool = CountedPool(scheduler.kv_cache_manager.block_pool)
        connector = scheduler.connector
        connector.bind_gpu_block_pool(self.pool)
        released = connector.update_state_after_alloc

        def noting(request: Any, blocks: Any, num_external_tokens: int) -> Any:
            # When the load is done the request gets its blocks once more, with nothing to load.
            if num_external_tokens:
                self.external[request.request_id] = num_external_tokens
            return released(request, blocks, num_external_tokens)

        connector.update_state_after_alloc = noting

    def attach(self, worker: Any) -> None:
        """The worker's instance. That for NIXL knows its own blocks by another engine's name, too, as a handshake would tell it at once."""
        self.worker = worker
        if self.settings.connector != "nixl":
            return
        reads = worker.connector_worker
        log = reads._log_failure

        def noted(*given: Any, **named: Any) -> Any:
            # The release logs what setting up a read raises, and computes the prompt anew.
            if named.get("error") is not None:
                self.copies.errors.append(named["error"])
            return log(*given, **named)

        reads._log_failure = noted
        decoder = find("msgspec.msgpack:Decoder")(find(f"{_NIXL}.metadata:NixlAgentMetadata"))

        def handshake(*_: Any) -> tuple[dict[tuple[int, int], str], float]:
            described = decoder.decode(reads.xfer_handshake_metadata.agent_metadata_bytes)
            described.engine_id = _OTHER
            return {(0, 0): reads.add_remote_agent(described)}, 0.0

        def submitted(*_: Any) -> Future[Any]:
            done = Future[Any]()
            done.set_result(handshake())
            return done

        reads._handshake_initiation_executor = SimpleNamespace(submit=submitted, shutdown=lambda **_: None)

    def keep(self, name: str, parameters: Any) -> None:
        """A request is over, and its blocks are kept for another request, which gets these parameters."""
        self.kept[name] = parameters | {"remote_engine_id": _OTHER}

    def loads(self, name: str, other: str) -> Any:
        """The parameters of a request that comes in to load the prompt that another one has computed; None where nothing was kept."""
        parameters = self.kept.pop(other, None)
        if parameters is not None:
            self.sent.add(name)
        return parameters

    def begin_step(self, scheduled: Mapping[str, Decided], owners: Sequence[Owner]) -> dict[Place, str]:
        """The request of each place that is being loaded while the worker's next step begins; loads that are due by then are done."""
        self.copies.tick()
        self.begun = frozenset(name for name in self.sent & scheduled.keys() if scheduled[name].begins)
        self.sent -= self.begun
        self.arrived = [
            stored
            for name, decided in scheduled.items()
            if decided.begins and self.external.pop(name, 0)
            for stored in self._read_by(name, decided.computed, owners)
        ]
        return self.copies.under_way

    def _read_by(self, name: str, count: int, owners: Sequence[Owner]) -> Iterator[Stored]:
        """Contents of the blocks that a request reads if it begins behind so many tokens."""
        for owner, group, column, block in owners:
            size = self.sizes[group]
            last = (count - 1) // size
            if owner == name and (column <= last if group == 0 else column == last):
                tokens = min((column + 1) * size, count)
                yield group, block, name, tokens, self.memory.contents(group, block)

    def keeps(self, owners: Iterable[Owner]) -> bool:
        """Whether blocks are in use by the connector, or by requests that do not run."""
        running = {request.request_id for request in self.scheduler.running}
        kept = self.pool is not None and any(self.pool.kept.values())
        return kept or bool(self.copies.loading) or any(name not in running for name, *_ in owners)

    def moved(self, _: frozenset[Place], loading: dict[Place, str]) -> Transfers:
        """Transfers under way after a step and before it, and blocks that host memory may hand out.

        Raises:
            Exception: the first that a thread of the release would have logged.
        """
        if self.copies.errors:
            raise self.copies.errors[0]
        assert self.pool is not None
        kept = +self.pool.kept + freed_late(self.scheduler)
        # A block that the connector counts as in use cannot be given away, whether or not its request is gone.
        after = {place: name for place, name in self.copies.under_way.items() if not kept[place[1]]}
        freed = frozenset(self.copies.freed)
        self.copies.freed.clear()
        if self.settings.connector != "offloading":
            # That one frees such blocks, and has saves flushed before a block is written that was given away.
            self.copies.note_free({block.block_id for block in self.pool.pool.blocks if not block.ref_cnt})
        stored = list(self._stored())
        # A lazy SimpleCPUOffloadConnector saves blocks that are not full, and does not load them (`allow_partial_hash_hits`).
        lazy = self.settings.connector == "simple-lazy"
        begun, self.begun = self.begun, frozenset()
        return Transfers(
            loading,
            after,
            frozenset(),
            frozenset(),
            stored,
            kept,
            tuple(self.arrived),
            freed,
            frozenset(self.external.keys() & self.scheduler.requests.keys()),
            [block for block in stored if not lazy or block[3] % self.sizes[block[0]] == 0],
            begun,
        )

    def report(self, moved: Transfers) -> tuple[tuple[Any, ...], ...]:
        """Blocks that were loaded since the last step, and saved blocks."""
        loaded = tuple(self.copies.loaded)
        self.copies.loaded.clear()
        return loaded, tuple(save[:4] for save in moved.saved), ()

    def _stored(self) -> Iterator[Stored]:
        """Of each block of host memory that may be loaded: what it stands for, and what is in it."""
        if self.settings.connector == "nixl":
            return
        if self.settings.connector == "mooncake":
            yield from self._in_store()
            return
        for group, block, found in self._keys():
            name, count = self.named(found)
            if name and self._in_host() is not None:
                yield group, HOST + block, name, count, self._in_host().contents(group, block)

    def _keys(self) -> Iterator[tuple[int, int, bytes]]:
        """(group, block of host memory, hash) of each block that may be loaded."""
        connector = self.scheduler.connector
        if self.settings.connector == "offloading":
            split = (
                find("vllm.v1.kv_offload.base:get_offload_group_idx"),
                find("vllm.v1.kv_offload.base:get_offload_block_hash"),
            )
            for key, chunk in connector.connector_scheduler.manager._policy.chunks.items():
                if chunk.is_ready:
                    yield split[0](key), chunk.chunk_id, bytes(split[1](key))
            return
        pool = connector.scheduler_manager.cpu_block_pool
        yield from ((group, block.block_id, found) for group, block, found in keys_of(pool))

    def _in_store(self) -> Iterator[Stored]:
        """As `_stored`, of Mooncake's store, whose blocks are numbered in the order in which they came."""
        found = list(self.store.stored())
        if found:
            pools = pools_of([values for *_, values in found])
            memory = LiveMemory(self.settings, self.memory.dim_first, pools=pools)
            for at, (group, prefix, _) in enumerate(found):
                name, count = self.named(prefix)
                if name:
                    yield group, HOST + at, name, count, memory.contents(group, at)

    def _in_host(self) -> Any:
        if self._host is None:
            if self.settings.connector == "offloading":
                worker = self.worker.connector_worker.worker
                tensors = worker._store_handler.dst_tensors if worker is not None else []
            else:
                tensors = list((self.worker.worker_handler.cpu_kv_caches or {}).values())
            if not tensors:
                return None
            pools = [tensor.view(torch.int64) for tensor in tensors]
            self._host = LiveMemory(self.settings, self.memory.dim_first, pools=pools)
        return self._host
