"""What the benches of align mode run on: state pools, block tables, and the sides that copy in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from types import SimpleNamespace
from typing import Any

import torch

from statecheck.case.values import BufferMaker
from statecheck.execution.in_process import InProcess
from statecheck.subject import LAYOUT_VARIABLE, Subject

BLOCK_SIZE, DRAFTS, CONV_ROWS = 16, 2, 5
_COLUMNS, _FIRST, _USED = 5, 1, 3
_STEP = 7
_SEED = 0

COPY_FUNCTIONS = ("get_conv_copy_spec", "get_temporal_copy_spec")
_PEER_OFFERS = (
    "MambaSpecDecodeGPUContext.create",
    "MambaSpecDecodeGPUContext.initialize_from_forward_context",
    "MambaSpecDecodeGPUContext.run_fused_postprocess",
    *COPY_FUNCTIONS,
)


@dataclass(frozen=True)
class Shape:
    """The recurrent layers of a model: each has a bfloat16 conv state and a temporal state."""

    name: str
    layers: int
    channels: int
    temporal: tuple[int, ...]
    temporal_dtype: torch.dtype

    @property
    def conv_bytes(self) -> int:
        return self.channels * CONV_ROWS * torch.bfloat16.itemsize

    @property
    def temporal_bytes(self) -> int:
        return prod(self.temporal) * self.temporal_dtype.itemsize

    @property
    def page_bytes(self) -> int:
        return self.conv_bytes + self.temporal_bytes

    def moved_bytes(self, bias: int) -> int:
        """Bytes that one request's copies read and write, in all layers together."""
        conv = self.conv_bytes * (CONV_ROWS - bias) // CONV_ROWS
        return self.layers * 2 * (self.temporal_bytes + conv)


class BenchCache:
    """The cache of a model for `rows` requests, three blocks each behind the null block.

    Per layer one pool of bytes (`pools`), a block in it holding the conv state and then the temporal state. `table` has the
    requests' blocks in its columns 1 to 3.
    """

    def __init__(self, shape: Shape, layout: str, rows: int, device: str) -> None:
        self.shape, self.layout, self.rows, self.device = shape, layout, rows, device
        conv = (CONV_ROWS, shape.channels) if layout == "SD" else (shape.channels, CONV_ROWS)
        self._states = ((conv, torch.bfloat16), (shape.temporal, shape.temporal_dtype))
        self.layer_names = [f"layers.{i}" for i in range(shape.layers)]
        size = self.pool_bytes(shape, rows)
        self.pools = [torch.empty(size, dtype=torch.uint8, device=device) for _ in self.layer_names]
        generator = torch.Generator(device).manual_seed(_SEED)
        self._noise = torch.randint(256, (size,), generator=generator, dtype=torch.uint8, device=device)
        self.table = torch.zeros(rows, _COLUMNS, dtype=torch.int32, device=device)
        blocks = torch.arange(1, 1 + rows * _USED, dtype=torch.int32, device=device)
        self._blocks = blocks.view(rows, _USED)
        self.fill()
        self.rotate(0)

    @staticmethod
    def pool_bytes(shape: Shape, rows: int) -> int:
        return (1 + rows * _USED) * shape.page_bytes

    def fill(self) -> None:
        """Noise that differs from layer to layer and is the same every time."""
        for layer, pool in enumerate(self.pools):
            torch.bitwise_xor(self._noise, layer, out=pool)

    def rotate(self, repeat: int) -> None:
        """Hand each row other blocks than in the repeats before, so that the GPU's cache has none of them."""
        self.table[:, _FIRST : _FIRST + _USED] = torch.roll(self._blocks, repeat * _STEP, 0)

    def states(self, layer: int) -> list[torch.Tensor]:
        """The layer's conv and temporal states, as a model holds them: [blocks, *shape]."""
        pool, states, offset = self.pools[layer], [], 0
        for shape, dtype in self._states:
            blocks = pool.view(dtype).view(1 + self.rows * _USED, -1)
            first, size = offset // dtype.itemsize, prod(shape)
            states.append(blocks[:, first : first + size].unflatten(1, shape))
            offset += size * dtype.itemsize
        return states

    def forward_context(self) -> dict[str, Any]:
        return {
            name: SimpleNamespace(kv_cache=self.states(layer)) for layer, name in enumerate(self.layer_names)
        }

    def config(self, side: Subject) -> Any:
        """The configuration of this cache, of the side's own classes where it has them."""
        shapes, dtypes = zip(*self._states, strict=True)
        fields = {"shapes": shapes, "dtypes": dtypes, "block_size": BLOCK_SIZE}
        options = {"mamba_cache_mode": "align", "num_speculative_blocks": DRAFTS}
        spec = side.construct("MambaSpec", fields | options)
        group = {"layer_names": self.layer_names, "kv_cache_spec": spec}
        groups = [side.construct("KVCacheGroupSpec", group)]
        blocks = {"num_blocks": 1 + self.rows * _USED, "kv_cache_tensors": []}
        return side.construct("KVCacheConfig", blocks | {"kv_cache_groups": groups})

    def context(self, side: Subject, buffers_of: Subject) -> Any:
        """The side's context for this cache, initialised; its buffers are of the class of `buffers_of`."""
        config = self.config(side)
        context = side.resolve("MambaSpecDecodeGPUContext").create(
            max_num_reqs=self.rows,
            kv_cache_config=config,
            num_state_types=len(COPY_FUNCTIONS),
            device=self.table.device,
            make_buffer=InProcess(buffers_of, self.device).materialise(BufferMaker()),
        )
        context.initialize_from_forward_context(
            config, self.forward_context(), tuple(map(side.resolve, COPY_FUNCTIONS)), [self.table]
        )
        if not hasattr(context, "num_accepted_tokens_out"):
            seen = "MambaSpecDecodeGPUContext without num_accepted_tokens_out"
            raise ValueError(f"{side.name} = {seen}, but should have it, for its counts [context]")
        return context


def offers_copies(subject: Subject) -> bool:
    """Whether it can be timed as a peer."""
    return all(map(subject.has, _PEER_OFFERS))


@contextmanager
def in_layout(sides: Sequence[Subject], layout: str) -> Iterator[None]:
    """All sides read this layout from the environment, which is as without it afterwards."""
    try:
        for side in sides:
            _set_environment(side, {LAYOUT_VARIABLE: layout})
        yield
    finally:
        for side in sides:
            _set_environment(side, {})


def _set_environment(side: Subject, variables: dict[str, str]) -> None:
    with side.environment(variables):
        # A side may have been handed this environment by the one before, and remember another.
        side.forget_environment()
