"""Vectors of copies through a port: caches and contexts are made from what the vectors say, and their bytes compared."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import torch

from statecheck.case.values import (
    BufferMaker,
    Call,
    Device,
    DType,
    Function,
    Let,
    Name,
    Outcome,
    Overwrite,
    Raised,
    Step,
    Tensor,
    Value,
    View,
    int32,
    int64,
    record,
)
from statecheck.execution.objects.blocks import Allocation
from statecheck.execution.port import InProcess
from statecheck.expectations.align_values import CONTEXT
from statecheck.vectors.load import Vector

_BYTES = {1: "uint8", 2: "float16", 4: "float32", 8: "float64"}
_COPY_FUNCTIONS = {"conv": "get_conv_copy_spec", "temporal": "get_temporal_copy_spec"}
_GIVEN = frozenset(
    (
        "block_size",
        "conv_state_layout",
        "states",
        "block_tables",
        "num_reqs",
        "num_accepted_tokens_out",
        "pools",
    )
)
_OUT = "ctx.num_accepted_tokens_out"


def fused_difference(port: InProcess, vector: Vector) -> str:
    """What a launch through a context leaves otherwise, in words."""
    given, after = vector["arguments"], vector["expected"]["after"]
    environment = tuple(vector["environment"].items())
    for step in (*_pools(given["pools"]), *_cache(given), *_context(given, environment)):
        outcome = port.execute(step)
        if isinstance(outcome, Raised):
            return f"{outcome.exception}: {outcome.message}"
    vectors = {name: value for name, value in given.items() if name not in _GIVEN}
    for name, value in vectors.items():
        port.execute(Let(name, _tensor(value)))
    arguments: dict[str, Value] = {"self": Name("ctx"), "num_reqs": given["num_reqs"]}
    arguments |= {name: Name(name) for name in vectors}
    observes = (*_windows(given["pools"]), *vectors, _OUT)
    call = Call(vector["function"], tuple(arguments.items()), environment=environment, observes=observes)
    return _left(port.execute(call), given, after)


def _left(outcome: Outcome | None, given: dict[str, Any], after: dict[str, Any]) -> str:
    assert outcome is not None, "a call has an outcome"
    if isinstance(outcome, Raised) or outcome.changed:
        return f"{outcome}"
    left = dict(outcome.after)
    found = _pool_difference(left, after["pools"])
    for name in set(given) - _GIVEN:
        wanted = after.get(name, given[name])
        found = found or _vector_difference(name, left[name], wanted["data"])
    if "num_accepted_tokens_out" in after:
        # A new context holds zeros; what an earlier launch left behind the rows is not there.
        wanted = after["num_accepted_tokens_out"]["data"][: given["num_reqs"]]
        held = left[_OUT].values()[: given["num_reqs"]]
        found = found or _vector_difference(_OUT, int32(held), wanted)
    return found


def _vector_difference(name: str, held: Tensor, wanted: list[int]) -> str:
    values = list(held.values())
    return "" if values == wanted else f"{name} = {values}, but should be {wanted}"


def _pool_difference(left: dict[str, Value], pools: dict[str, Any]) -> str:
    for pool, content in pools.items():
        for name, piece in zip(_windows({pool: content}), content["pieces"], strict=True):
            held = bytes(left[name].elements)
            if held != piece["bytes"]["data"]:
                return f"{name} = {held.hex()}, but should be {piece['bytes']['data'].hex()}"
    return ""


def _windows(pools: dict[str, Any]) -> list[str]:
    """What is observed of the pools: all of one that is in one piece, or each piece."""
    return [name for pool, content in pools.items() for name in _names(pool, content)]


def _names(pool: str, content: dict[str, Any]) -> list[str]:
    return [pool] if _is_whole(content) else [f"{pool}_piece{i}" for i in range(len(content["pieces"]))]


def _is_whole(content: dict[str, Any]) -> bool:
    return len(content["pieces"]) == 1 and len(content["pieces"][0]["bytes"]["data"]) == content["size"]


def _pools(pools: dict[str, Any]) -> Iterator[Step]:
    for pool, content in pools.items():
        size = content["size"]
        if _is_whole(content):
            yield Let(pool, Tensor("uint8", (size,), content["pieces"][0]["bytes"]["data"]))
            continue
        yield Let(pool, Tensor("uint8", (size,), None))
        for name, piece in zip(_names(pool, content), content["pieces"], strict=True):
            raw = piece["bytes"]["data"]
            yield Let(name, View(pool, "uint8", (len(raw),), None, piece["offset"]))
            yield Overwrite(name, raw)


def _cache(given: dict[str, Any]) -> Iterator[Step]:
    """Name the tables, the layers and the configuration."""
    for group, table in enumerate(given["block_tables"]):
        yield Let(f"table{group}", _tensor(table))
    layers = _layers(given)
    views = {
        name: record("Layer", kv_cache=[_view(one) for one in states]) for name, states in layers.items()
    }
    yield Let("layers", views)
    groups = [_group(given, layers, group) for group in range(len(given["block_tables"]))]
    yield Let("config", record("KVCacheConfig", num_blocks=0, kv_cache_tensors=[], kv_cache_groups=groups))


def _layers(given: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The states of each layer."""
    found: dict[str, list[dict[str, Any]]] = {}
    for state in given["states"]:
        found.setdefault(state["layer"], []).append(state)
    return found


def _view(state: dict[str, Any]) -> View:
    item, shape = state["itemsize"], state["block_shape"]
    dense = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    strides = (state["block_stride_bytes"] // item, *dense)
    form = ((state["num_blocks"], *shape), strides, state["offset_bytes"] // item)
    return View(state["pool"], _BYTES[item], *form)


def _group(given: dict[str, Any], layers: dict[str, list[dict[str, Any]]], group: int) -> Value:
    names = [name for name, states in layers.items() if states[0]["group"] == group]
    states = layers[names[0]]
    spec = record(
        "MambaSpec",
        block_size=given["block_size"],
        shapes=tuple(tuple(one["block_shape"]) for one in states),
        dtypes=tuple(DType(_BYTES[one["itemsize"]]) for one in states),
        mamba_type="mamba2",
        mamba_cache_mode="align",
        num_speculative_blocks=0,
    )
    return record("KVCacheGroupSpec", layer_names=names, kv_cache_spec=spec)


def _context(given: dict[str, Any], environment: tuple[tuple[str, str], ...]) -> Iterator[Call]:
    """Create a context and bind it to the cache."""
    kinds = max(([one["kind"] for one in states] for states in _layers(given).values()), key=len)
    made: dict[str, Value] = {
        "max_num_reqs": given["block_tables"][0]["shape"][0],
        "kv_cache_config": Name("config"),
        "num_state_types": len(kinds),
        "device": Device(),
        "make_buffer": BufferMaker(),
    }
    yield Call(f"{CONTEXT}.create", (), tuple(made.items()), environment, bind="ctx")
    bound: dict[str, Value] = {
        "self": Name("ctx"),
        "kv_cache_config": Name("config"),
        "forward_context": Name("layers"),
        "mamba_state_copy_funcs": tuple(Function(_COPY_FUNCTIONS[kind]) for kind in kinds),
        "block_tables": [Name(f"table{group}") for group in range(len(given["block_tables"]))],
    }
    yield Call(
        f"{CONTEXT}.initialize_from_forward_context", (), tuple(bound.items()), environment, updates="ctx"
    )


def _tensor(data: dict[str, Any]) -> Tensor:
    return Tensor(data["dtype"], tuple(data["shape"]), tuple(data["data"]))


def listed_difference(port: InProcess, vector: Vector) -> str:
    """What copies of lists leave otherwise, in words. The places become addresses of the pools of this process."""
    given, after = vector["arguments"], vector["expected"]["after"]
    for step in _pools(given["pools"]):
        port.execute(step)
    for pool in given["pools"]:
        _register(port, pool)
    sources, targets = (
        [_address(port, one[side]) for one in given["copies"]] for side in ("source", "target")
    )
    for name, values in (("sources", sources), ("targets", targets)):
        port.execute(Let(name, int64(values)))
    port.execute(Let("sizes", int64([one["size"] for one in given["copies"]])))
    arguments = (("src_ptrs", Name("sources")), ("dst_ptrs", Name("targets")), ("sizes", Name("sizes")))
    outcome = port.execute(Call("batch_memcpy", arguments, observes=tuple(_windows(given["pools"]))))
    assert outcome is not None, "a call has an outcome"
    if isinstance(outcome, Raised) or outcome.changed:
        return f"{outcome}"
    return _pool_difference(dict(outcome.after), after["pools"])


def _address(port: InProcess, place: dict[str, Any] | None) -> int:
    """The address of a place; 0 of an entry that nobody wrote."""
    if place is None:
        return 0
    return int(_memory(port, place["pool"]).data_ptr()) + int(place["offset"])


def _register(port: InProcess, pool: str) -> None:
    """Tell the sanitizer of a pool to which only numbers lead."""
    if port.watched is not None:
        port.watched.sanitizer.register(_memory(port, pool), pool)


def _memory(port: InProcess, pool: str) -> torch.Tensor:
    block = port.bound(pool)
    assert isinstance(block, Allocation), f"{pool} is no pool"
    return block.view
