"""Shapes of states, the page that they share, and the run that a copy of one takes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from subjects.plain.port import ask, ints, read_as, state_layout

__all__ = [
    "MambaCopySpec",
    "MambaSpec",
    "MambaStateShapeCalculator",
    "get_conv_copy_spec",
    "get_temporal_copy_spec",
]

_DOCUMENTED = {"column": "cur_block_idx"}


def _family(name: str) -> Callable[..., tuple[tuple[int, ...], ...]]:
    def shapes(num_spec: int = 0, **sizes: int) -> tuple[tuple[int, ...], ...]:
        tp_argument = "tp_size" if name == "linear_attention" else "tp_world_size"
        found = ask(
            "state_shapes",
            {"tp_size": tp_argument},
            family=name,
            tp_size=sizes.pop(tp_argument),
            sizes=_with_key_heads(sizes) if name == "kda" else sizes,
            num_spec=num_spec,
            layout=state_layout(),
        )
        return read_as(lambda shapes: tuple(tuple(ints(shape)) for shape in shapes), found)

    return shapes


def _with_key_heads(sizes: dict[str, int]) -> dict[str, int]:
    """Keys are as values, and kernels 4 wide, where nothing else is said."""
    defaults = {
        "num_k_heads": sizes["num_heads"],
        "head_k_dim": sizes["head_dim"],
        "conv_kernel_size": 4,
    }
    return defaults | sizes


class MambaStateShapeCalculator:
    """The shapes of a block's states, by family."""

    linear_attention_state_shape = staticmethod(_family("linear_attention"))
    mamba1_state_shape = staticmethod(_family("mamba1"))
    mamba2_state_shape = staticmethod(_family("mamba2"))
    short_conv_state_shape = staticmethod(_family("short_conv"))
    gated_delta_net_state_shape = staticmethod(_family("gated_delta_net"))
    kda_state_shape = staticmethod(_family("kda"))


@dataclass(frozen=True)
class MambaSpec:
    """What the layers of a group keep in a block, with the documents' fields."""

    block_size: int
    shapes: Sequence[Sequence[int]]
    dtypes: Sequence[torch.dtype]
    page_size_padded: int | None = None
    mamba_type: str = "mamba2"
    mamba_cache_mode: str = "none"
    num_speculative_blocks: int = 0

    @property
    def page_size_bytes(self) -> Any:
        return ask(
            "page_size",
            {"padded": "page_size_padded", "itemsizes": "dtypes"},
            shapes=[list(shape) for shape in self.shapes],
            itemsizes=[dtype.itemsize for dtype in self.dtypes],
            padded=self.page_size_padded,
        )


@dataclass
class MambaCopySpec:
    """Where a copy starts, as an address, and how many elements it takes."""

    start_addr: int
    num_elements: int


def _asked(function: str, state: torch.Tensor, **place: Any) -> MambaCopySpec:
    def spec(run: Any) -> MambaCopySpec:
        offset, count = ints(run)
        return MambaCopySpec(state.data_ptr() + offset * state.element_size(), count)

    run = ask(function, _DOCUMENTED, shape=list(state.shape), block_stride=state.stride(0), **place)
    return read_as(spec, run)


def get_conv_copy_spec(
    state: torch.Tensor, block_ids: list[int], cur_block_idx: int, num_accepted_tokens: int
) -> MambaCopySpec:
    place = {"block_ids": block_ids, "column": cur_block_idx, "num_accepted_tokens": num_accepted_tokens}
    return _asked("conv_copy", state, **place, layout=state_layout())


def get_temporal_copy_spec(
    state: torch.Tensor, block_ids: list[int], cur_block_idx: int, num_accepted_tokens: int
) -> MambaCopySpec:
    place = {"block_ids": block_ids, "column": cur_block_idx, "num_accepted_tokens": num_accepted_tokens}
    return _asked("temporal_copy", state, **place)
