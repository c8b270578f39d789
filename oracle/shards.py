"""Shards of recurrent states on tensor-parallel ranks, and what ranks hold when a state comes from an engine with another number of them.

A state is a list of elements. Each part of it, such as the channels of the heads or those of the groups, is divided among the ranks on its
own. An element goes by its number in the states of all layers, from 1; 0 is what memory holds that no element was written to.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from oracle.rules import Refused, require, require_int, rule

LAYERS: Final = 2
Numbers = tuple[int, ...]
"""Numbers of elements, channel by channel, and in a channel row by row."""


@dataclass(frozen=True)
class Part:
    """Channels that are divided among ranks by units.

    Args:
        units: heads or groups; one unit is held by every rank.
        size: channels of a unit.
    """

    units: int
    size: int


@dataclass(frozen=True)
class StateLayout:
    """A state of a layer: its parts one behind the other, each channel with `rows` elements."""

    parts: tuple[Part, ...]
    rows: int


FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "linear": ("num_heads", "head_dim"),
    "short_conv": ("channels", "conv_kernel"),
    "mamba1": ("channels", "state_size", "conv_kernel"),
    "kda": ("num_heads", "head_dim", "conv_kernel"),
    "gdn": ("num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim", "conv_kernel"),
    "mamba2": ("n_groups", "num_heads", "head_dim", "state_size", "conv_kernel"),
    "cca": ("num_heads", "num_kv_heads", "head_dim", "conv_kernel", "hidden_size"),
}
"""Families of layers with their sizes. The last is compressed convolutional attention: a convolution of queries and keys, and the last hidden state."""


def layouts_of(family: str, sizes: Mapping[str, int]) -> tuple[StateLayout, ...]:
    """The states of a layer: convolutions first.

    Source: document 2 for the shapes of the first six families; each projection in front of a convolution is divided among the ranks on its own.
    """
    require(family in FAMILIES, "family", family, f"be one of {', '.join(FAMILIES)}")
    given = {name: _size(name, sizes.get(name)) for name in FAMILIES[family]}
    if family == "linear":
        return (StateLayout((Part(given["num_heads"], given["head_dim"] ** 2),), 1),)
    rows = given["conv_kernel"] - 1
    match family:
        case "short_conv":
            return (StateLayout((Part(given["channels"], 1),), rows),)
        case "mamba1":
            channels = (Part(given["channels"], 1),)
            return StateLayout(channels, rows), StateLayout(channels, given["state_size"])
        case "kda":
            heads = Part(given["num_heads"], given["head_dim"])
            return StateLayout((heads, heads, heads), rows), StateLayout((heads,), given["head_dim"])
        case "gdn":
            keys = Part(given["num_k_heads"], given["head_k_dim"])
            values = Part(given["num_v_heads"], given["head_v_dim"])
            return StateLayout((keys, keys, values), rows), StateLayout((values,), given["head_k_dim"])
        case "mamba2":
            heads = Part(given["num_heads"], given["head_dim"])
            groups = Part(given["n_groups"], given["state_size"])
            return StateLayout((heads, groups, groups), rows), StateLayout((heads,), given["state_size"])
        case _:
            queries, keys = (Part(given[name], given["head_dim"]) for name in ("num_heads", "num_kv_heads"))
            return StateLayout((queries, keys), rows), StateLayout((Part(1, given["hidden_size"]),), 1)


def _size(name: str, size: object) -> int:
    require_int(name, size, minimum=2 if name == "conv_kernel" else 1)
    assert isinstance(size, int)
    return size


@rule
def units_of_rank(units: int, tp_size: int, rank: int) -> range:
    """The units that a rank holds: its share, or where ranks outnumber units the one that it shares with the ranks beside it."""
    if units % tp_size == 0:
        share = units // tp_size
        return range(rank * share, (rank + 1) * share)
    if tp_size % units:
        raise Refused("tp_size", tp_size, f"divide {units} units, or be divisible by them")
    unit = rank * units // tp_size
    return range(unit, unit + 1)


def shard_of_layers(
    layouts: Sequence[StateLayout], tp_size: int, rank: int
) -> tuple[tuple[Numbers, ...], ...]:
    """By layer, the numbers of the elements that a rank holds of each state, in the order in which it holds them."""
    found, first = [], 1
    for _ in range(LAYERS):
        states = []
        for layout in layouts:
            channels = _channels(layout.parts, tp_size, rank)
            states.append(
                tuple(first + at * layout.rows + row for at in channels for row in range(layout.rows))
            )
            first += layout.rows * sum(part.units * part.size for part in layout.parts)
        found.append(tuple(states))
    return tuple(found)


def _shards(layouts: Sequence[StateLayout], tp_size: int) -> tuple[tuple[tuple[Numbers, ...], ...], ...]:
    return tuple(shard_of_layers(layouts, tp_size, rank) for rank in range(tp_size))


def _channels(parts: Sequence[Part], tp_size: int, rank: int) -> Iterator[int]:
    first = 0
    for part in parts:
        for unit in units_of_rank(part.units, tp_size, rank):
            yield from range(first + unit * part.size, first + (unit + 1) * part.size)
        first += part.units * part.size


@rule
def sent_states(
    family: str, sizes: Mapping[str, int], source_tp: int, target_tp: int
) -> tuple[tuple[tuple[Numbers, ...], ...], ...]:
    """For each rank of the target and each layer, what the rank holds of each state: its own shard of the whole, whatever the source's number of ranks.

    Refused: numbers of ranks that cannot hold the states.
    """
    require(family in FAMILIES, "family", family, f"be one of {', '.join(FAMILIES)}")
    for argument, tp_size in (("source_tp", source_tp), ("target_tp", target_tp)):
        require_int(argument, tp_size, minimum=1)
    layouts = layouts_of(family, sizes)
    # Refuses states that the ranks of the source cannot hold.
    _shards(layouts, source_tp)
    return _shards(layouts, target_tp)
