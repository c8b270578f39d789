"""Pools of bytes, the states in them and copies between blocks, as vectors describe them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from oracle.align.memory import StateTensor
from oracle.align.pointers import Entry
from statecheck.case.values import Tensor, Value
from statecheck.expectations.align_values import Context
from statecheck.vectors.record import RecordedCall
from statecheck.vectors.values import NotPlain, blob, plain_tensor


def pools_of(asked: RecordedCall, names: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pools before and after a call: their bytes in pieces, of which one too large to spell has a few."""
    after = dict(asked.known) | dict(asked.outcome.after)
    chosen = sorted(set(names))
    return {name: _pool(asked, name, asked.known) for name in chosen}, {
        name: _pool(asked, name, after) for name in chosen
    }


def _pool(asked: RecordedCall, pool: str, held: Mapping[str, Value]) -> dict[str, Any]:
    whole = held.get(pool)
    pieces = [(0, whole)] if whole is not None else _windows(asked, pool, held)
    return {
        "size": asked.sizes[pool],
        "pieces": [
            {"offset": start, "bytes": blob("uint8", (len(tensor.values()),), tensor.values())}
            for start, tensor in pieces
        ],
    }


def _windows(asked: RecordedCall, pool: str, held: Mapping[str, Value]) -> list[tuple[int, Tensor]]:
    """The pages that have contents, each called after its block, and all of one distance from each other."""
    blocks = {
        int(found[1]): tensor
        for name, tensor in held.items()
        if tensor is not None and (found := re.fullmatch(rf"{pool}_block(\d+)", name))
    }
    if not blocks:
        raise NotPlain("a pool that nothing is known of")
    last = max(blocks)
    page = len(blocks[last].values())
    stride = (asked.sizes[pool] - page) // last if last else page
    return [(block * stride, blocks[block]) for block in sorted(blocks)]


def states_of(context: Context) -> list[dict[str, Any]]:
    """The states of a context, in the order of its vectors."""
    assert context.bound is not None, "states are known of a bound context only"
    layers = context.bound.named["forward_context"]
    names = [name for group in context.groups if group.spec is not None for name in group.layer_names]
    owners = [name for name in names for _ in layers[name]["kv_cache"]]
    return [state_of(name, one) for name, one in zip(owners, context.states(), strict=True)]


def state_of(layer: str, state: StateTensor) -> dict[str, Any]:
    """One state of one layer: where its blocks lie, and whose table it follows."""
    geometry = state.geometry
    return {
        "layer": layer,
        "kind": state.kind,
        "group": state.group,
        "pool": state.pool,
        "offset_bytes": geometry.offset_bytes,
        "block_stride_bytes": geometry.block_stride_bytes,
        "num_blocks": geometry.num_blocks,
        "block_shape": list(geometry.block_shape),
        "itemsize": geometry.itemsize,
    }


def tables_of(context: Context, asked: RecordedCall) -> list[Any]:
    """The block tables, one per group."""
    found = []
    for rows in context.tables(dict(asked.known)):
        width = len(rows[0]) if rows else 0
        flat = tuple(block for row in rows for block in row)
        found.append(plain_tensor(Tensor("int32", (len(rows), width), flat)))
    return found


def copies_of(listed: Iterable[Entry], unused: int = 0) -> list[dict[str, Any]]:
    """Entries of lists, and behind them unused ones."""
    written = [
        {
            "source": {"pool": one.source.pool, "offset": one.source.offset},
            "target": {"pool": one.target.pool, "offset": one.target.offset},
            "size": one.size,
        }
        for one in listed
    ]
    return [*written, *({"source": None, "target": None, "size": 0} for _ in range(unused))]
