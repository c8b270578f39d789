"""The release's own connectors, which send states from the ranks of a prefill engine to those of a decode engine.

The workers, the description of their memory, the pairs of ranks and the slices are the release's. What moves bytes is the adapter's.
"""

import asyncio
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from oracle.shards import layouts_of, shard_of_layers
from statecheck.subject.not_offered import NotOffered
from subjects.kit.objects import bare
from subjects.kit.wire import NixlAgent, Wire
from subjects.vllm.release import RELEASE, find
from subjects.vllm.transfer_ranks import CONNECTORS, TransferEngine, TransferRank, channels_first

__all__ = ["StateTransfer"]
_SINCE = (0, 33)


def _nixl_worker(rank: TransferRank, wire: Wire) -> Any:
    """The release's worker of a connector that pulls, with NIXL's agent replaced."""
    engine, module = rank.engine, f"{CONNECTORS}.v1.nixl.base_worker"
    backend = SimpleNamespace(get_name=lambda: "FLASH_ATTN")
    replaced = {
        "NixlWrapper": lambda *_: NixlAgent(wire),
        "nixl_agent_config": None,
        "check_nixl_version": lambda *_: None,
        "get_tensor_model_parallel_rank": lambda: rank.number,
        "get_tensor_model_parallel_world_size": lambda: engine.tp_size,
        "get_current_attn_backends": lambda *_: [backend],
        "get_current_attn_backends_and_specs": lambda *_: ([backend], [None]),
        "select_common_block_size": lambda size, *_: size // engine.split,
        "compute_nixl_compatibility_hash": lambda *_, **__: "",
        "current_platform": SimpleNamespace(
            device_type="cuda", get_nixl_memory_type=lambda: None, is_rocm=lambda: False
        ),
    }
    cls = find(f"{CONNECTORS}.v1.nixl.pull_worker:NixlPullConnectorWorker")
    with mock.patch.dict(vars(__import__(module, fromlist=["_"])), replaced):
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

    one, other = sources[0].engine, targets[0].engine
    for source in sources:
        plan = mapping(source.number, one.tp_size, other.tp_size, one.heads, False, True)
        for to in plan.targets:
            for _, layer in one.layers:
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
    one, other = sources[0].engine, targets[0].engine
    workers = {
        engine.name: [_mooncake_worker(rank) for rank in ranks]
        for engine, ranks in ((one, sources), (other, targets))
    }
    with_regions = {
        name: [_mooncake_regions(regions, made) for made in found] for name, found in workers.items()
    }
    step = ratio(one.tp_size, other.tp_size)
    for number, worker in enumerate(workers[one.name]):
        paired = [number // step] if step > 0 else range(number * -step, (number + 1) * -step)
        for to in paired:
            here, there = with_regions[one.name][number], with_regions[other.name][to]
            replicated = worker._producer_cache_is_replicated()
            refused = check(here, there, one.tp_size, other.tp_size, replicated, None)
            if refused is not None:
                raise NotOffered(refused)
            reported = SimpleNamespace(
                req_blocks={"r0": ("r0", [[], [blocks[1]]])},
                remote_hostname="target",
                remote_port=0,
                remote_tp_rank=to,
                remote_tp_size=other.tp_size,
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
    if RELEASE < _SINCE:
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
    """What sends a request's states from one engine to another."""

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
