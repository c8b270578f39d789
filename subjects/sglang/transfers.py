"""The release's own managers of disaggregated serving, which send states from the ranks of a prefill to those of a decode.

The pools, the description of their states, the pairs of ranks and the slices are the release's. What moves bytes is the adapter's.
"""

import dataclasses
import importlib
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from oracle.shards import layouts_of, shard_of_layers
from subjects.kit.objects import bare
from subjects.kit.wire import (
    Block,
    NixlAgent,
    Wire,
    count_written,
    fill_others,
    read_numbers,
    write_numbers,
)
from subjects.sglang.release import RELEASE, NotOffered, find
from subjects.sglang.shapes import LAYERS, cache_params, ranks

__all__ = ["StateTransfer"]
_DISAGGREGATION = "sglang.srt.disaggregation"
_POOL = "sglang.srt.mem_cache.memory_pool"
_SLOTS = 4
_SINCE = (0, 5, 23)


class _Rank:
    """A rank of an engine: its pool of states, and what it says of it to the other engine."""

    def __init__(
        self, number: int, size: int, model: str, sizes: dict[str, int], dtypes: tuple[str, str]
    ) -> None:
        self.number, self.size = number, size
        with ranks(size, number):
            params = cache_params(model, sizes)
            kinds = [getattr(torch, name) for name in dtypes]
            params = dataclasses.replace(params, dtype=type(params.dtype)(conv=kinds[0], temporal=kinds[1]))
            self.pool = find(f"{_POOL}:MambaPool")(
                size=_SLOTS - 1,
                spec_state_size=_SLOTS - 1,
                cache_params=params,
                mamba_layer_ids=LAYERS,
                device="cpu",
            )
            self.arguments = find(f"{_DISAGGREGATION}.base.conn:KVArgs")()
            self.arguments.engine_rank, self.arguments.gpu_id = number, 0
            keys = bare(
                find(f"{_POOL}:HybridLinearKVPool"), mamba_pool=self.pool, full_kv_pool=None, use_dsa=False
            )
            find(f"{_DISAGGREGATION}.utils:setup_state_kv_args")(self.arguments, keys)
        self.rows_first = getattr(params.shape, "conv_slice_axis", 0) == 1

    def memory(self) -> list[torch.Tensor]:
        """The tensors of all states, each of (layers, slots, …)."""
        states = self.pool.mamba_cache
        return [memory for memory in (*states.conv, states.temporal) if memory.numel()]

    def states(self, slot: int) -> list[torch.Tensor]:
        """The states in a slot: of each layer all, convolutions first, with channels before rows."""
        conv = len(self.pool.mamba_cache.conv)
        return [
            memory[layer, slot].transpose(-1, -2)
            if self.rows_first and number < conv
            else memory[layer, slot]
            for layer in range(len(LAYERS))
            for number, memory in enumerate(self.memory())
        ]


def _target_info(cls: Any, rank: _Rank, **named: Any) -> Any:
    """The prefill's description of a rank of the decode."""
    described = rank.arguments
    known = {
        "dst_state_data_ptrs": described.state_data_ptrs,
        "dst_state_item_lens": described.state_item_lens,
        "dst_state_dim_per_tensor": described.state_dim_per_tensor,
        "dst_state_layer_ids": described.state_layer_ids,
        "dst_state_data_lens": described.state_data_lens,
        **named,
    }
    fields = {field.name: known.get(field.name) for field in dataclasses.fields(cls)}
    return bare(cls, **fields)


def _manager(cls: Any, rank: _Rank, **named: Any) -> Any:
    """A manager of that rank, which neither listens nor has threads."""
    return bare(
        cls,
        kv_args=rank.arguments,
        attn_tp_size=rank.size,
        state_tp_size=rank.size,
        attn_cp_size=1,
        attn_cp_rank=0,
        pp_size=1,
        pp_rank=0,
        dcp_size=1,
        is_mla_backend=False,
        is_hybrid_mla_backend=False,
        enable_all_cp_ranks_for_transfer=False,
        **named,
    )


def _sources(target: _Rank, source_tp: int) -> Sequence[int]:
    """The ranks of the prefill that a rank of the decode asks for its states."""
    info = find(f"{_DISAGGREGATION}.common.conn:PrefillServerInfo")(
        attn_tp_size=source_tp,
        attn_cp_size=1,
        dp_size=1,
        pp_size=1,
        page_size=1,
        kv_cache_dtype="auto",
        follow_bootstrap_room=False,
    )
    _manager(find(f"{_DISAGGREGATION}.common.conn:CommonKVManager"), target)._resolve_rank_mapping(info)
    found: Sequence[int] = info.target_tp_ranks
    return found


def _send_by_mooncake(wire: Wire, source: _Rank, target: _Rank, slots: tuple[int, int]) -> None:
    def send(_: str, sources: list[int], targets: list[int], sizes: list[int]) -> int:
        wire.copy(list(zip(sources, sizes, strict=True)), list(zip(targets, sizes, strict=True)))
        return 0

    module = f"{_DISAGGREGATION}.mooncake.conn"
    if module not in sys.modules:
        # It counts what fails.
        with mock.patch.object(
            importlib.import_module("prometheus_client"), "Counter", mock.Mock(), create=True
        ):
            importlib.import_module(module)
    engine = SimpleNamespace(batch_transfer_sync=send)
    manager = _manager(find(f"{module}:MooncakeKVManager"), source, engine=engine)
    info = _target_info(
        find(f"{module}:KVArgsRegisterInfo"), target, dst_tp_rank=target.number, dst_attn_tp_size=target.size
    )
    request = bare(
        find(f"{module}:TransferInfo"),
        mooncake_session_id="target",
        dst_state_indices=[[slots[1]]],
        is_dummy=False,
    )
    failed = manager.maybe_send_extra(request, [[slots[0]]], None, info)
    if failed:
        raise RuntimeError(f"maybe_send_extra = {failed}, but should be 0 [mooncake]")


def _send_by_nixl(wire: Wire, source: _Rank, target: _Rank, slots: tuple[int, int]) -> None:
    module = f"{_DISAGGREGATION}.nixl.conn"
    manager = _manager(
        find(f"{module}:NixlKVManager"),
        source,
        agent=NixlAgent(wire),
        _prepared_state_plans={},
        _state_layout_rejections={},
        _use_strided_descs=True,
        # All components are, where the release has descriptors of them prepared.
        _prepared_state_components=frozenset(range(len(source.arguments.state_types))),
    )
    peer = _target_info(
        find(f"{module}:KVArgsRegisterInfo"),
        target,
        agent_name="target",
        gpu_id=0,
        decode_tp_size=target.size,
        decode_tp_rank=target.number,
        dst_dcp_size=1,
        requires_dcp_relayout=False,
    )
    manager._prepare_state_xfer(peer)
    sent = manager.maybe_send_extra(
        peer.agent_name,
        [[slots[0]]],
        peer.dst_state_data_ptrs,
        [[slots[1]]],
        peer.gpu_id,
        target.size,
        target.number,
        peer.dst_state_item_lens,
        peer.dst_state_dim_per_tensor,
        peer.dst_state_layer_ids,
    )
    for _ in sent:
        """Each handle is posted when the next one is asked for."""


def _send_by_moriio(wire: Wire, source: _Rank, target: _Rank, slots: tuple[int, int]) -> None:
    """The descriptor of memory is where it begins, and its size; a write behind its end is refused, as the library does."""

    def write(
        sources: list[Block], starts: Any, targets: list[Block], ends: Any, sizes: Any, _: list[int]
    ) -> list[None]:
        for (here, held), (there, room), reads, writes, lengths in zip(
            sources, targets, starts, ends, sizes, strict=True
        ):
            for read, written, length in zip(reads, writes, lengths, strict=True):
                if read + length > held or written + length > room:
                    raise ValueError(f"{length} bytes lie behind the end of a memory [moriio]")
                wire.copy([(here + read, length)], [(there + written, length)])
        return [None] * len(sources)

    module = f"{_DISAGGREGATION}.mori.conn"
    manager = _manager(
        find(f"{module}:MoriKVManager"),
        source,
        engine=SimpleNamespace(batch_write=write, allocate_transfer_uid=lambda: 0),
        state_mem_descs=_memories(source),
        _submission_local=SimpleNamespace(statuses=None),
    )
    peer = _target_info(
        find(f"{module}:KVArgsRegisterInfo"),
        target,
        decode_tp_size=target.size,
        decode_tp_rank=target.number,
        dst_state_mem_descs=_memories(target),
    )
    manager.send_state(peer, [np.array([slots[0]])], [np.array([slots[1]])])


def _memories(rank: _Rank) -> list[list[Block]]:
    """The memory of each kind of state, tensor by tensor."""
    described = rank.arguments
    return [
        list(zip(*kind, strict=True))
        for kind in zip(described.state_data_ptrs, described.state_data_lens, strict=True)
    ]


Send = Callable[[Wire, _Rank, _Rank, tuple[int, int]], None]


def _sent(
    send: Send,
    family: str,
    model: str,
    sizes: Sequence[tuple[str, int]],
    source_tp: int,
    target_tp: int,
    slots: tuple[int, int],
    dtypes: tuple[str, str],
    padding: int,  # noqa: ARG001 - slots have none
) -> tuple[tuple[Any, int], ...]:
    """As the rule says it: by rank of the target its states, and how many bytes of other slots are not 0."""
    if RELEASE < _SINCE:
        raise NotOffered("transfers of releases before 0.5.23")
    given = dict(sizes)
    wire, layouts = Wire(), layouts_of(family, given)
    engines = [
        [_Rank(number, size, model, given, dtypes) for number in range(size)]
        for size in (source_tp, target_tp)
    ]
    for engine in engines:
        for rank in engine:
            for memory in rank.memory():
                wire.register(memory)
    for rank in engines[0]:
        for memory in rank.memory():
            fill_others(memory)
        held = [state for layer in shard_of_layers(layouts, rank.size, rank.number) for state in layer]
        for memory, numbers in zip(rank.states(slots[0]), held, strict=True):
            write_numbers(memory, numbers)
    for target in engines[1]:
        for number in _sources(target, source_tp):
            send(wire, engines[0][number], target, slots)
    return tuple(_seen(rank, slots[1], len(layouts)) for rank in engines[1])


def _seen(rank: _Rank, slot: int, states: int) -> tuple[Any, int]:
    numbers = [read_numbers(state) for state in rank.states(slot)]
    for memory in rank.memory():
        memory[:, slot] = 0
    by_layer = tuple(tuple(numbers[at : at + states]) for at in range(0, len(numbers), states))
    return by_layer, sum(count_written(memory) for memory in rank.memory())


class StateTransfer:
    """Functions that send a request's states from one engine to another; the arguments are those of `_sent`."""

    @staticmethod
    def mooncake(*given: Any, **named: Any) -> Any:
        """By Mooncake."""
        return _sent(_send_by_mooncake, *given, **named)

    @staticmethod
    def nixl(*given: Any, **named: Any) -> Any:
        """By NIXL."""
        return _sent(_send_by_nixl, *given, **named)

    @staticmethod
    def moriio(*given: Any, **named: Any) -> Any:
        """By MORI-IO."""
        return _sent(_send_by_moriio, *given, **named)
