"""Ranks of an engine of the release, with the memory of their blocks and the description of it, for what sends states between engines."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from oracle.shards import LAYERS
from statecheck.subject.not_offered import NotOffered
from subjects.kit.wire import Wire, count_written, read_numbers, write_numbers
from subjects.vllm.release import find

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
    with ExitStack() as stack:
        for module in (_UTILITIES, f"{CONNECTORS}.v1.ssm_conv_transfer_utils"):
            names = vars(__import__(module, fromlist=["_"]))
            if "is_conv_state_dim_first" in names:
                stack.enter_context(mock.patch.dict(names, {"is_conv_state_dim_first": lambda: True}))
        yield


class TransferEngine:
    """What the ranks of an engine have in common: shapes, pages, and the groups of its cache.

    Args:
        heads: of attention, of all ranks together.
    """

    def __init__(
        self, name: str, tp_size: int, family: str, sizes: Sizes, dtypes: tuple[str, str], heads: int
    ) -> None:
        self.name, self.tp_size, self.family, self.heads = name, tp_size, family, heads
        self.dtypes = [getattr(torch, one) for one in dtypes]
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
        parallel = {f"{one}_parallel_size": 1 for one in sizes} | {"tensor_parallel_size": self.tp_size}
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
        """What a block holds, and how many bytes of other blocks are not 0."""
        count = len(self.engine.dtypes)
        numbers = [read_numbers(state) for state in self.states(block)]
        for memory in self.memory:
            # What lies behind the states in their own block belongs to no state.
            memory[block] = 0
        layers = tuple(tuple(numbers[at : at + count]) for at in range(0, len(numbers), count))
        return layers, sum(count_written(memory) for memory in self.memory)
