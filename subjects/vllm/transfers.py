"""The release's own connectors, which send states from the ranks of a prefill engine to those of a decode engine.

The workers, the description of their memory, the pairs of ranks and the slices are the release's. What moves bytes is the adapter's.
"""

import asyncio
import importlib.util
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch

from oracle.shards import LAYERS, layouts_of, shard_of_layers
from statecheck.subject.subject import LAYOUT_VARIABLE, NotOffered
from subjects.kit.objects import bare
from subjects.kit.wire import NixlAgent, Wire, count_written, read_numbers, write_numbers
from subjects.vllm.release import RELEASE, find

__all__ = ["StateTransfer"]


CONNECTORS = "vllm.distributed.kv_transfer.kv_connector"
_INTERFACE = "vllm.v1.kv_cache_interface"
_UTILITIES = "vllm.model_executor.layers.mamba.mamba_utils"
_BLOCKS = 4
_OTHERS = 255
"""Each byte of another request's block."""
_BYTES_OF_A_HEAD = 8
"""Of one token: a key and a value of one channel in float32."""
_BACKENDS = {"mamba1": "MAMBA1", "mamba2": "MAMBA2", "gdn": "GDN_ATTN"}
Sizes = Mapping[str, int]


def _shapes(family: str, sizes: Sizes, tp_size: int) -> tuple[tuple[int, ...], ...]:
    """The release's shapes of a layer's states."""
    found = find(f"{_UTILITIES}:MambaStateShapeCalculator")
    match family:
        case "mamba1":
            shapes = found.mamba1_state_shape(
                tp_size, sizes["channels"], sizes["state_size"], sizes["conv_kernel"]
            )
        case "mamba2":
            heads, channels = sizes["num_heads"], sizes["num_heads"] * sizes["head_dim"]
            own = [sizes[name] for name in ("head_dim", "state_size", "conv_kernel")]
            shapes = found.mamba2_state_shape(tp_size, channels, sizes["n_groups"], heads, *own)
        case "gdn":
            own = [
                sizes[name]
                for name in ("num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim", "conv_kernel")
            ]
            shapes = found.gated_delta_net_state_shape(tp_size, *own)
        case _:
            raise NotOffered(f"transfers of states of {family}")
    return tuple(shapes)


@contextmanager
def channels_first() -> Iterator[None]:
    """Connectors want convolutions with channels first, which the environment chooses."""
    # A function in place of the module's own would stay in each module that is imported meanwhile.
    forget = find(f"{_UTILITIES}:get_conv_state_layout").cache_clear
    with mock.patch.dict(os.environ, {LAYOUT_VARIABLE: "DS"}):
        forget()
        try:
            yield
        finally:
            forget()


class TransferEngine:
    """The common part of the ranks of an engine: shapes, pages, and the groups of its cache.

    Args:
        heads: of attention, of all ranks together.
    """

    def __init__(
        self, name: str, tp_size: int, family: str, sizes: Sizes, dtypes: tuple[str, str], heads: int
    ) -> None:
        self.name, self.tp_size, self.family, self.heads = name, tp_size, family, heads
        self.dtypes = [getattr(torch, dtype) for dtype in dtypes]
        self.shapes = _shapes(family, sizes, tp_size)
        bytes_of_states = [
            math.prod(shape) * dtype.itemsize for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
        ]
        if bytes_of_states[0] % self.dtypes[1].itemsize:
            # No layer could look at them either.
            raise NotOffered("a temporal state at an address that its elements do not have")
        self.sizes = bytes_of_states

    @property
    def token_bytes(self) -> int:
        return _BYTES_OF_A_HEAD * max(1, self.heads // self.tp_size)

    def make_groups(self, tokens: int, split: int) -> None:
        """Choose the tokens of a block, enough for a page of attention to be no smaller than the states, and the pages of the attention kernel in it."""
        self.tokens, self.split, self.page = tokens, split, tokens * self.token_bytes
        attention = find(f"{_INTERFACE}:FullAttentionSpec")(
            block_size=tokens,
            num_kv_heads=max(1, self.heads // self.tp_size),
            head_size=1,
            dtype=torch.float32,
        )
        types = find("vllm.v1.attention.backends.registry:MambaAttentionBackendEnum")
        state = find(f"{_INTERFACE}:MambaSpec")(
            block_size=tokens,
            shapes=self.shapes,
            dtypes=tuple(self.dtypes),
            page_size_padded=self.page,
            mamba_type=getattr(types, _BACKENDS[self.family]),
        )
        group = find(f"{_INTERFACE}:KVCacheGroupSpec")
        self.layers = [(f"layers.{2 * at}.attn", f"layers.{2 * at + 1}.mixer") for at in range(LAYERS)]
        self.groups = find(f"{_INTERFACE}:KVCacheConfig")(
            num_blocks=_BLOCKS,
            kv_cache_tensors=[],
            kv_cache_groups=[
                group([names[at] for names in self.layers], spec)
                for at, spec in enumerate((attention, state))
            ],
        )

    def config(self) -> Any:
        """As much of the release's configuration as its connectors read."""
        layout = find(f"{_INTERFACE}:KVCacheLayout").LBHNC
        transfer = SimpleNamespace(
            get_from_extra_config=lambda _, default: default,
            kv_buffer_device="cuda",
            kv_role="kv_both",
            enable_permute_local_kv=False,
        )
        sizes = ("prefill_context", "decode_context", "pipeline")
        parallel = {f"{size}_parallel_size": 1 for size in sizes} | {"tensor_parallel_size": self.tp_size}
        return SimpleNamespace(
            kv_transfer_config=transfer,
            cache_config=SimpleNamespace(
                block_size=self.tokens,
                enable_prefix_caching=False,
                get_resolved_kv_cache_layout=lambda: layout,
            ),
            scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
            parallel_config=SimpleNamespace(**parallel),
            model_config=SimpleNamespace(
                enable_sleep_mode=False, use_mla=False, get_total_num_kv_heads=lambda: self.heads
            ),
            speculative_config=None,
        )


class TransferRank:
    """A rank of an engine, with the memory of its blocks: attention and states of a layer share it."""

    def __init__(self, engine: TransferEngine, number: int, wire: Wire) -> None:
        self.engine, self.number = engine, number
        self.memory = [torch.zeros(_BLOCKS, engine.page, dtype=torch.uint8) for _ in range(LAYERS)]
        for memory in self.memory:
            wire.register(memory)
        self.caches: dict[str, torch.Tensor] = {}
        for (attention, state), memory in zip(engine.layers, self.memory, strict=True):
            self.caches[attention] = memory.view(_BLOCKS * engine.split, -1)
            self.caches[state] = memory.view(_BLOCKS, 1, 1, -1)

    def states(self, block: int) -> list[torch.Tensor]:
        """Each state of each layer in a block."""
        found = []
        for memory in self.memory:
            first = 0
            for size, dtype in zip(self.engine.sizes, self.engine.dtypes, strict=True):
                found.append(memory[block, first : first + size].view(dtype))
                first += size
        return found

    def fill(self, block: int, held: Sequence[Sequence[Sequence[int]]]) -> None:
        """Write a request's states to a block, and another request's to all others."""
        for memory in self.memory:
            memory.fill_(_OTHERS)
        flat = [numbers for layer in held for numbers in layer]
        for state, numbers in zip(self.states(block), flat, strict=True):
            write_numbers(state, numbers)

    def seen(self, block: int) -> tuple[Any, int]:
        """Numbers in a block, and how many bytes of other blocks are not 0."""
        count = len(self.engine.dtypes)
        numbers = [read_numbers(state) for state in self.states(block)]
        for memory in self.memory:
            # What lies behind the states in their own block belongs to no state.
            memory[block] = 0
        layers = tuple(tuple(numbers[at : at + count]) for at in range(0, len(numbers), count))
        return layers, sum(count_written(memory) for memory in self.memory)


NIXL_SINCE = (0, 33)


NIXL_WORKER = f"{CONNECTORS}.v1.nixl.base_worker"
"""The module of the release's workers for NIXL."""


def nixl_names(agent: Callable[..., NixlAgent], ranks: int, rank: int, split: int) -> dict[str, Any]:
    """By name in `NIXL_WORKER`, what stands in the place of NIXL's agent and of a device, for a worker of this rank whose attention has `split` pages in a block."""
    backend = SimpleNamespace(get_name=lambda: "FLASH_ATTN")
    return {
        "NixlWrapper": agent,
        "nixl_agent_config": None,
        "check_nixl_version": lambda *_: None,
        # `install_nixl` puts another function into this module, for the rest of the process.
        "derive_mamba_conv_split": find(f"{CONNECTORS}.v1.ssm_conv_transfer_utils:derive_mamba_conv_split"),
        "get_tensor_model_parallel_rank": lambda: rank,
        "get_tensor_model_parallel_world_size": lambda: ranks,
        "get_current_attn_backends": lambda *_: [backend],
        "get_current_attn_backends_and_specs": lambda *_: ([backend], [None]),
        "select_common_block_size": lambda size, *_: size // split,
        "compute_nixl_compatibility_hash": lambda *_, **__: "",
        "current_platform": SimpleNamespace(
            device_type="cuda", get_nixl_memory_type=lambda: None, is_rocm=lambda: False
        ),
    }


def _nixl_worker(rank: TransferRank, wire: Wire) -> Any:
    """The release's worker of a connector that pulls, with NIXL's agent replaced."""
    engine = rank.engine
    replaced = nixl_names(lambda *_: NixlAgent(wire), engine.tp_size, rank.number, engine.split)
    cls = find(f"{CONNECTORS}.v1.nixl.pull_worker:NixlPullConnectorWorker")
    with mock.patch.dict(vars(__import__(NIXL_WORKER, fromlist=["_"])), replaced):
        made = cls(engine.config(), engine.name, engine.groups)
        made.register_kv_caches(rank.caches)
    return made


def _send_by_nixl(
    wire: Wire, sources: Sequence[TransferRank], targets: Sequence[TransferRank], blocks: tuple[int, int]
) -> None:
    metadata = f"{CONNECTORS}.v1.nixl.metadata"
    described = find("msgspec.msgpack:Decoder")(find(f"{metadata}:NixlAgentMetadata"))
    producers = [_nixl_worker(rank, wire) for rank in sources]
    source = sources[0].engine
    for target in targets:
        worker = _nixl_worker(target, wire)
        for number in worker.transfer_topo.handshake_target_ranks(source.tp_size):
            reported = described.decode(producers[number].xfer_handshake_metadata.agent_metadata_bytes)
            agent = worker.add_remote_agent(reported, number, source.tp_size)
            worker._remote_agents[source.name][0, number] = agent
        groups: list[tuple[list[int], list[int]]] = [([], [blocks[1]]), ([], [blocks[0]])]
        here, there = groups
        remote = find(f"{metadata}:RemoteMeta")(
            block_ids=there, host="source", port=0, engine_id=source.name, request_id="r0"
        )
        request = find(f"{metadata}:ReqMeta")(
            local_block_ids=here,
            local_physical_block_ids=worker._logical_to_kernel_block_ids(here, target.engine.split),
            tp_size=target.engine.tp_size,
            remote=remote,
        )
        worker._read_blocks_for_req("r0", request)


def _send_by_moriio(
    wire: Wire, sources: Sequence[TransferRank], targets: Sequence[TransferRank], blocks: tuple[int, int]
) -> None:
    parts = f"{CONNECTORS}.v1.moriio"
    mapping = find(f"{parts}.moriio_tp_mapping:compute_write_tp_mapping")
    views, layout = (
        find(f"{parts}.moriio_layout:{name}") for name in ("kda_conv_ssm", "get_mamba_state_layout")
    )
    offsets = find(f"{parts}.moriio_layout:compute_mamba_slice_offsets")
    split = find(f"{CONNECTORS}.v1.ssm_conv_transfer_utils:derive_mamba_conv_split")

    def described(rank: TransferRank, layer: str) -> tuple[list[int], Any]:
        """Where convolution and temporal state of a layer begin, and how they lie."""
        spec = rank.engine.groups.kv_cache_groups[1].kv_cache_spec
        conv, temporal = views(rank.caches[layer], spec)
        return [conv.data_ptr(), temporal.data_ptr()], layout(
            conv, temporal, split(spec, rank.engine.tp_size)
        )

    source_engine, target_engine = sources[0].engine, targets[0].engine
    for source in sources:
        plan = mapping(
            source.number, source_engine.tp_size, target_engine.tp_size, source_engine.heads, False, True
        )
        for to in plan.targets:
            for _, layer in source_engine.layers:
                here, reported = described(source, layer)
                there, known = described(targets[to.tp_rank], layer)
                slices = (to.local_slice, to.local_slices, to.remote_slice, to.remote_slices)
                read, written, sizes, convs = offsets(reported, known, [blocks[0]], [blocks[1]], *slices)
                for at, size in enumerate(sizes):
                    region = int(at >= convs)
                    wire.copy([(here[region] + read[at], size)], [(there[region] + written[at], size)])


def _import_mooncake() -> str:
    """The connector's module; what it serves handshakes with is not called, and may be absent."""
    if "uvicorn" not in sys.modules and importlib.util.find_spec("uvicorn") is None:
        sys.modules["uvicorn"] = ModuleType("uvicorn")
    return f"{CONNECTORS}.v1.mooncake.mooncake_connector"


def _send_by_mooncake(
    wire: Wire, sources: Sequence[TransferRank], targets: Sequence[TransferRank], blocks: tuple[int, int]
) -> None:
    module = _import_mooncake()
    check, regions, ratio = (
        find(f"{module}:{name}")
        for name in ("_validate_asymmetric_region_lengths", "_expand_transfer_regions", "_get_tp_ratio")
    )
    source_engine, target_engine = sources[0].engine, targets[0].engine
    workers = {
        engine.name: [_mooncake_worker(rank) for rank in ranks]
        for engine, ranks in ((source_engine, sources), (target_engine, targets))
    }
    with_regions = {
        name: [_mooncake_regions(regions, made) for made in found] for name, found in workers.items()
    }
    step = ratio(source_engine.tp_size, target_engine.tp_size)
    for number, worker in enumerate(workers[source_engine.name]):
        paired = [number // step] if step > 0 else range(number * -step, (number + 1) * -step)
        for to in paired:
            here, there = with_regions[source_engine.name][number], with_regions[target_engine.name][to]
            replicated = worker._producer_cache_is_replicated()
            refused = check(here, there, source_engine.tp_size, target_engine.tp_size, replicated, None)
            if refused is not None:
                raise NotOffered(refused)
            reported = SimpleNamespace(
                req_blocks={"r0": ("r0", [[], [blocks[1]]])},
                remote_hostname="target",
                remote_port=0,
                remote_tp_rank=to,
                remote_tp_size=target_engine.tp_size,
            )
            ready = [("r0", SimpleNamespace(local_block_ids=[[], [blocks[0]]], transfer_id="r0"))]
            read, written, sizes, failed, why = asyncio.run(
                worker._build_transfer_params(ready, reported, here, there)
            )
            if failed:
                raise RuntimeError(f"_build_transfer_params fails: {why} [mooncake]")
            wire.copy(list(zip(read, sizes, strict=True)), list(zip(written, sizes, strict=True)))


def _mooncake_worker(rank: TransferRank) -> Any:
    """The release's worker of that rank, with its blocks registered."""
    engine = rank.engine
    specs = [group.kv_cache_spec for group in engine.groups.kv_cache_groups]
    made = bare(
        find(f"{CONNECTORS}.v1.mooncake.mooncake_connector:MooncakeConnectorWorker"),
        kv_cache_config=engine.groups,
        _physical_blocks_per_logical_kv_block=engine.split,
        _layer_specs={name: spec for names in engine.layers for name, spec in zip(names, specs, strict=True)},
        _prepared_transfer_regions={},
        _layout_by_peer={},
        _acked_layout_peers=set(),
        engine=SimpleNamespace(batch_register_memory=lambda *_: 0),
        is_kv_consumer=True,
        # Its destructor ends what it has of these.
        is_kv_producer=True,
        async_zmq_ctx=SimpleNamespace(term=lambda: None),
        use_mla=False,
        tp_rank=rank.number,
        tp_size=engine.tp_size,
        model_config=engine.config().model_config,
        transfer_topo=SimpleNamespace(
            total_num_kv_heads=engine.heads, local_replicates_kv_cache=engine.tp_size > engine.heads
        ),
    )
    made.register_kv_caches(rank.caches)
    return made


def _mooncake_regions(regions: Callable[..., Any], made: Any) -> Any:
    return regions(
        made.kv_caches_base_addr,
        made.block_len_per_layer,
        made.kv_block_len_per_layer,
        made.registered_layer_names,
        made.registered_layer_indices,
        made.registered_group_indices,
        made.region_shared_groups,
        made.region_row_offsets,
    )


Send = Callable[[Wire, Sequence[TransferRank], Sequence[TransferRank], tuple[int, int]], None]


def _sent(
    send: Send,
    family: str,
    model: str,  # noqa: ARG001 - the sizes say all
    sizes: Sequence[tuple[str, int]],
    source_tp: int,
    target_tp: int,
    slots: tuple[int, int],
    dtypes: tuple[str, str],
    padding: int,
) -> tuple[tuple[Any, int], ...]:
    """As the rule says it: by rank of the target its states, and how many bytes of other blocks are not 0."""
    if RELEASE < NIXL_SINCE:
        raise NotOffered("transfers of releases before 0.33")
    given = dict(sizes)
    wire, layouts = Wire(), layouts_of(family, given)
    heads = max(source_tp, target_tp)
    with channels_first():
        engines = [
            TransferEngine(name, tp_size, family, given, dtypes, heads)
            for name, tp_size in (("source", source_tp), ("target", target_tp))
        ]
        split = 1 + padding % 2
        tokens = max(-(-sum(engine.sizes) // engine.token_bytes) for engine in engines) + padding
        for engine in engines:
            engine.make_groups(-(-tokens // split) * split, split)
        sources, targets = (
            [TransferRank(engine, number, wire) for number in range(engine.tp_size)] for engine in engines
        )
        for rank in sources:
            rank.fill(slots[0], shard_of_layers(layouts, source_tp, rank.number))
        send(wire, sources, targets, slots)
    return tuple(rank.seen(slots[1]) for rank in targets)


class StateTransfer:
    """Functions that send a request's states from one engine to another."""

    @staticmethod
    def nixl(*given: Any, **named: Any) -> Any:
        """By the connector for NIXL whose decode engine reads; the arguments are those of `_sent`."""
        return _sent(_send_by_nixl, *given, **named)

    @staticmethod
    def moriio(*given: Any, **named: Any) -> Any:
        """By the connector for MoRI-IO whose prefill engine writes."""
        return _sent(_send_by_moriio, *given, **named)

    @staticmethod
    def mooncake(*given: Any, **named: Any) -> Any:
        """By the connector for Mooncake, whose prefill engine writes."""
        return _sent(_send_by_mooncake, *given, **named)
