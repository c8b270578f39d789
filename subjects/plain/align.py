"""Align mode, and shapes and specifications of states, asked of a port's plain functions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch

from statecheck.subject.subject import NotOffered
from subjects.plain.port import ask, ints, read_as, state_layout

__all__ = [
    "CpuGpuBuffer",
    "MambaBuffers",
    "MambaCopyBuffers",
    "MambaCopySpec",
    "MambaSpec",
    "MambaSpecDecodeGPUContext",
    "MambaStateShapeCalculator",
    "batch_memcpy",
    "cleanup_mamba_state_idx",
    "collect_mamba_copy_meta",
    "do_mamba_copy_block",
    "get_conv_copy_spec",
    "get_temporal_copy_spec",
    "postprocess_mamba_align_gpu",
    "preprocess_mamba",
    "preprocess_mamba_align_fused_kernel",
    "stage_postprocess_inputs_to_gpu",
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
    """The states that the layers of a group keep in a block, with the documents' fields."""

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


PlainState = tuple[torch.Tensor, str, int]
"""A view [num_blocks, ...] of all blocks, "conv" or "temporal", and the place of the group among those with states."""


def groups_with_states(kv_cache_config: Any) -> list[int]:
    """The numbers of the groups that keep states, among all groups."""
    groups = enumerate(kv_cache_config.kv_cache_groups)
    return [number for number, group in groups if hasattr(group.kv_cache_spec, "shapes")]


def plain_states(
    kv_cache_config: Any,
    group_ids: Sequence[int],
    forward_context: Mapping[str, Any],
    copy_funcs: Sequence[Any],
) -> list[PlainState]:
    """Every state of every layer, by group, layer and state; a layer may keep fewer than there are copy functions."""
    kinds = ["conv" if function is get_conv_copy_spec else "temporal" for function in copy_funcs]
    return [
        (state, kind, place)
        for place, number in enumerate(group_ids)
        for layer in kv_cache_config.kv_cache_groups[number].layer_names
        for state, kind in zip(forward_context[layer].kv_cache, kinds, strict=False)
    ]


@dataclass
class MambaSpecDecodeGPUContext:
    """States and tables between two calls. The documents' vectors that describe states to kernels stay zero."""

    state_base_addrs: torch.Tensor
    state_block_strides: torch.Tensor
    state_elem_sizes: torch.Tensor
    state_inner_sizes: torch.Tensor
    state_conv_widths: torch.Tensor
    state_group_indices: torch.Tensor
    state_dim_row_count: torch.Tensor
    state_dim_row_stride: torch.Tensor
    block_table_ptrs: torch.Tensor
    num_accepted_tokens_out: torch.Tensor
    mamba_state_idx_buf: Any
    num_scheduled_tokens_buf: Any
    num_computed_tokens_buf: Any
    num_draft_tokens_buf: Any
    block_size: int
    num_layers: int
    num_state_types: int
    mamba_group_ids: list[int]
    num_groups: int
    block_table_stride_req: int = 0
    is_initialized: bool = False
    stages: bool = False
    states: list[PlainState] = field(default_factory=list)
    tables: list[torch.Tensor] = field(default_factory=list)

    @classmethod
    def create(
        cls,
        max_num_reqs: int,
        kv_cache_config: Any,
        num_state_types: int,
        device: torch.device,
        make_buffer: Callable[..., Any],
    ) -> Self:
        group_ids = groups_with_states(kv_cache_config)
        groups = [kv_cache_config.kv_cache_groups[number] for number in group_ids]
        layers = sum(len(group.layer_names) for group in groups)
        wide = ("base_addrs", "block_strides", "inner_sizes", "dim_row_stride")
        narrow = ("elem_sizes", "conv_widths", "group_indices", "dim_row_count")
        sizes = dict.fromkeys(wide, torch.int64) | dict.fromkeys(narrow, torch.int32)
        vectors: dict[str, Any] = {
            f"state_{name}": torch.zeros(layers * num_state_types, dtype=dtype, device=device)
            for name, dtype in sizes.items()
        }
        staged = ("mamba_state_idx", "num_scheduled_tokens", "num_computed_tokens", "num_draft_tokens")
        vectors |= {f"{name}_buf": make_buffer(max_num_reqs, dtype=torch.int32) for name in staged}
        return cls(
            **vectors,
            block_table_ptrs=torch.zeros(len(groups), dtype=torch.int64, device=device),
            num_accepted_tokens_out=torch.zeros(max_num_reqs, dtype=torch.int32, device=device),
            block_size=groups[0].kv_cache_spec.block_size,
            num_layers=layers,
            num_state_types=num_state_types,
            mamba_group_ids=group_ids,
            num_groups=len(groups),
        )

    def initialize_from_forward_context(
        self,
        kv_cache_config: Any,
        forward_context: Mapping[str, Any],
        mamba_state_copy_funcs: Sequence[Any],
        block_tables: Sequence[torch.Tensor],
    ) -> None:
        if not self.is_initialized:
            self.states = plain_states(
                kv_cache_config, self.mamba_group_ids, forward_context, mamba_state_copy_funcs
            )
            self.tables = list(block_tables)
            self.is_initialized = True

    def _states(self, num_reqs: int) -> dict[str, Any]:
        """The arguments of every function that copies."""
        if not self.is_initialized:
            raise NotOffered("a plain function takes the places of states with every call")
        tables = [table[:num_reqs] for table in self.tables]
        return {"states": self.states, "block_tables": tables, "layout": state_layout()}

    def run_fused_precopy(
        self,
        num_reqs: int,
        state_idx_gpu: torch.Tensor,
        src_col_gpu: torch.Tensor,
        token_bias_gpu: torch.Tensor,
        idx_mapping: torch.Tensor,
    ) -> None:
        ask(
            "precopy_states",
            **self._states(num_reqs),
            idx_mapping=idx_mapping[:num_reqs],
            columns=state_idx_gpu,
            src_columns=src_col_gpu,
            biases=token_bias_gpu,
        )

    def run_fused_postprocess_align(
        self,
        num_reqs: int,
        num_accepted_tokens_gpu: torch.Tensor,
        state_idx_gpu: torch.Tensor,
        new_num_computed_tokens_gpu: torch.Tensor,
        idx_mapping: torch.Tensor,
    ) -> None:
        ask(
            "postprocess_by_slot",
            **self._states(num_reqs),
            idx_mapping=idx_mapping[:num_reqs],
            num_accepted_tokens=num_accepted_tokens_gpu,
            columns=state_idx_gpu,
            num_computed_tokens=new_num_computed_tokens_gpu,
            block_size=self.block_size,
        )

    def run_fused_postprocess(
        self,
        num_reqs: int,
        num_accepted_tokens_gpu: torch.Tensor,
        mamba_state_idx_gpu: torch.Tensor,
        num_scheduled_tokens_gpu: torch.Tensor,
        num_computed_tokens_gpu: torch.Tensor,
        num_draft_tokens_gpu: torch.Tensor,
    ) -> None:
        ask(
            "postprocess_by_row",
            **self._states(num_reqs),
            num_accepted_tokens=num_accepted_tokens_gpu[:num_reqs],
            columns=mamba_state_idx_gpu[:num_reqs],
            num_scheduled_tokens=num_scheduled_tokens_gpu[:num_reqs],
            num_computed_tokens=num_computed_tokens_gpu[:num_reqs],
            num_draft_tokens=num_draft_tokens_gpu[:num_reqs],
            num_accepted_tokens_out=self.num_accepted_tokens_out[:num_reqs],
            block_size=self.block_size,
        )


class CpuGpuBuffer:
    """The same numbers on the host, as `cpu` and `np`, and on the device, as `gpu`."""

    def __init__(self, *size: int, dtype: torch.dtype, device: torch.device, pin_memory: bool) -> None:
        self.cpu = torch.zeros(size, dtype=dtype, pin_memory=pin_memory)
        self.gpu = torch.zeros(size, dtype=dtype, device=device)
        self.np = self.cpu.numpy()

    def copy_to_gpu(self, n: int) -> torch.Tensor:
        return self.gpu[:n].copy_(self.cpu[:n], non_blocking=True)


@dataclass
class MambaCopyBuffers:
    """Addresses and sizes of copies, of which the first `offset` are in use."""

    src_ptrs: CpuGpuBuffer
    dst_ptrs: CpuGpuBuffer
    sizes: CpuGpuBuffer
    mamba_group_ids: list[int]
    mamba_spec: Any
    offset: int = 0

    @classmethod
    def create(
        cls,
        max_num_reqs: int,
        kv_cache_config: Any,
        copy_funcs: Sequence[Any],
        make_buffer: Callable[..., CpuGpuBuffer],
    ) -> Self:
        group_ids = groups_with_states(kv_cache_config)
        groups = [kv_cache_config.kv_cache_groups[number] for number in group_ids]
        entries = max_num_reqs * sum(len(group.layer_names) for group in groups) * len(copy_funcs)
        return cls(
            make_buffer(entries, dtype=torch.int64),
            make_buffer(entries, dtype=torch.int64),
            make_buffer(entries, dtype=torch.int64),
            group_ids,
            groups[0].kv_cache_spec,
        )


def collect_mamba_copy_meta(
    bufs: MambaCopyBuffers,
    kv_cache_config: Any,
    copy_funcs: Sequence[Any],
    group_ids: Sequence[int],
    src_col: int,
    dst_col: int,
    bias: int,
    req_state: Any,
    forward_context: Mapping[str, Any],
) -> Any:
    """None; what `list_copies` returned where these are no copies."""
    found = ask(
        "list_copies",
        {"src_column": "src_col", "dst_column": "dst_col"},
        states=plain_states(kv_cache_config, group_ids, forward_context, copy_funcs),
        block_ids=[list(req_state.block_ids[number]) for number in group_ids],
        src_column=src_col,
        dst_column=dst_col,
        bias=bias,
        layout=state_layout(),
    )
    copies = read_as(lambda runs: [(src, dst, size) for src, dst, size in map(ints, runs)], found)
    if copies is found:
        return found
    for src, dst, size in copies:
        bufs.src_ptrs.np[bufs.offset] = _as_int64(src)
        bufs.dst_ptrs.np[bufs.offset] = _as_int64(dst)
        bufs.sizes.np[bufs.offset] = size
        bufs.offset += 1
    return None


def _as_int64(address: int) -> int:
    """The same 64 bits with a sign."""
    return address - 2**64 if address >= 2**63 else address


def do_mamba_copy_block(bufs: MambaCopyBuffers) -> None:
    if bufs.offset:
        lists = (bufs.src_ptrs, bufs.dst_ptrs, bufs.sizes)
        batch_memcpy(*(vector.copy_to_gpu(bufs.offset) for vector in lists))


def batch_memcpy(src_ptrs: torch.Tensor, dst_ptrs: torch.Tensor, sizes: torch.Tensor) -> None:
    ask("copy_runs", src_ptrs=src_ptrs, dst_ptrs=dst_ptrs, sizes=sizes)


@dataclass
class MambaBuffers:
    """The runner's memory between steps."""

    preprocess: MambaCopyBuffers
    postprocess_align: MambaSpecDecodeGPUContext | None

    @classmethod
    def create(
        cls,
        max_num_reqs: int,
        kv_cache_config: Any,
        copy_funcs: Sequence[Any],
        make_buffer: Callable[..., Any],
        device: torch.device,
        with_postprocess_align: bool,
    ) -> Self:
        lists = MambaCopyBuffers.create(max_num_reqs, kv_cache_config, copy_funcs, make_buffer)
        if not with_postprocess_align:
            return cls(lists, None)
        context = MambaSpecDecodeGPUContext.create(
            max_num_reqs, kv_cache_config, len(copy_funcs), device, make_buffer
        )
        context.stages = True
        return cls(lists, context)


def cleanup_mamba_state_idx(scheduler_output: Any, mamba_state_idx: dict[str, int]) -> None:
    ask(
        "drop_columns",
        columns=mamba_state_idx,
        finished=list(scheduler_output.finished_req_ids),
        preempted=list(scheduler_output.preempted_req_ids or ()),
        resumed=list(scheduler_output.scheduled_cached_reqs.resumed_req_ids),
    )


def preprocess_mamba(
    scheduler_output: Any,
    kv_cache_config: Any,
    cache_config: Any,
    mamba_state_idx: dict[str, int],
    input_batch: Any,
    requests: Mapping[str, Any],
    forward_context: Mapping[str, Any],
    mamba_state_copy_funcs: Sequence[Any],
    copy_bufs: MambaCopyBuffers,
) -> Any:
    """None; what `preprocess_by_row` returned where that is no column of each row."""
    if not cache_config.enable_prefix_caching:
        raise NotOffered("states are precopied where prefixes are cached")
    ids, group_ids = list(input_batch.req_ids), copy_bufs.mamba_group_ids
    states = plain_states(kv_cache_config, group_ids, forward_context, mamba_state_copy_funcs)
    cleanup_mamba_state_idx(scheduler_output, mamba_state_idx)
    running = ask(
        "preprocess_by_row",
        states=states,
        block_tables=_tables(
            input_batch, [requests[request] for request in ids], group_ids, states[0][0].device
        ),
        columns=[mamba_state_idx.get(request) for request in ids],
        num_computed_tokens=[requests[request].num_computed_tokens for request in ids],
        num_scheduled_tokens=[scheduler_output.num_scheduled_tokens[request] for request in ids],
        num_accepted_tokens=torch.from_numpy(input_batch.num_accepted_tokens_cpu)[: len(ids)],
        block_size=copy_bufs.mamba_spec.block_size,
        layout=state_layout(),
    )
    columns = read_as(lambda found: dict(zip(ids, ints(found), strict=True)), running)
    if columns is running:
        return running
    mamba_state_idx.update(columns)
    return None


def _tables(
    input_batch: Any, requests: Sequence[Any], group_ids: Sequence[int], device: torch.device
) -> list[torch.Tensor]:
    """The batch's block tables; where it has none on the device, the requests' own blocks, with null blocks behind them."""
    if hasattr(input_batch, "block_table"):
        return [input_batch.block_table[number].get_device_tensor(len(requests)) for number in group_ids]
    return [_table([request.block_ids[number] for request in requests], device) for number in group_ids]


def _table(rows: Sequence[Sequence[int]], device: torch.device) -> torch.Tensor:
    width = max(map(len, rows), default=0)
    cells = [[*row, *(0,) * (width - len(row))] for row in rows]
    return torch.tensor(cells, dtype=torch.int32, device=device).reshape(len(rows), width)


def stage_postprocess_inputs_to_gpu(
    ctx: MambaSpecDecodeGPUContext,
    scheduler_output: Any,
    req_ids: Sequence[str],
    num_reqs: int,
    requests: Mapping[str, Any],
    mamba_state_idx: Mapping[str, int],
) -> None:
    if not ctx.stages:
        raise NotOffered("plain functions are handed their vectors, and stage none")
    ids, drafts = req_ids[:num_reqs], scheduler_output.scheduled_spec_decode_tokens
    numbers = {
        "mamba_state_idx": [mamba_state_idx[request] for request in ids],
        "num_scheduled_tokens": [scheduler_output.num_scheduled_tokens[request] for request in ids],
        "num_computed_tokens": [requests[request].num_computed_tokens for request in ids],
        "num_draft_tokens": [len(drafts.get(request, ())) for request in ids],
    }
    for name, values in numbers.items():
        buffer = getattr(ctx, f"{name}_buf")
        buffer.np[:num_reqs] = values
        buffer.copy_to_gpu(num_reqs)


def postprocess_mamba_align_gpu(
    *,
    bufs: MambaBuffers,
    num_reqs: int,
    num_accepted_tokens_gpu: torch.Tensor,
    num_accepted_tokens_cpu_tensor: torch.Tensor,
    input_batch: Any,
    kv_cache_config: Any,
    forward_context: Mapping[str, Any],
    mamba_state_copy_funcs: Sequence[Any],
) -> None:
    context = bufs.postprocess_align
    if num_reqs == 0 or context is None:
        return
    tables = [
        input_batch.block_table[number].get_device_tensor(num_reqs) for number in context.mamba_group_ids
    ]
    context.initialize_from_forward_context(kv_cache_config, forward_context, mamba_state_copy_funcs, tables)
    # Tables and batches change between steps; only the states stay where they are.
    context.tables = tables
    context.run_fused_postprocess(
        num_reqs,
        num_accepted_tokens_gpu,
        context.mamba_state_idx_buf.gpu,
        context.num_scheduled_tokens_buf.gpu,
        context.num_computed_tokens_buf.gpu,
        context.num_draft_tokens_buf.gpu,
    )
    counts = context.num_accepted_tokens_out[:num_reqs]
    num_accepted_tokens_cpu_tensor[:num_reqs].copy_(counts, non_blocking=True)


try:
    from triton.runtime.jit import KernelInterface
except ImportError:
    # Without Triton no kernel is launched; a script needs the brackets only.
    KernelInterface = object


class _Preprocess(KernelInterface):
    """Takes a grid and the kernel's arguments, of which plain functions need the data only."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return _advance


def _advance(**arguments: Any) -> None:
    rows = arguments["num_reqs"]
    ask(
        "preprocess_by_slot",
        idx_mapping=arguments["idx_mapping_ptr"][:rows],
        columns=arguments["state_idx_ptr"],
        num_computed_tokens=arguments["num_computed_tokens_ptr"],
        query_start_loc=arguments["query_start_loc_ptr"][: rows + 1],
        num_accepted_tokens=arguments["num_accepted_tokens_ptr"],
        src_columns=arguments["src_col_ptr"],
        biases=arguments["src_off_ptr"],
        block_size=arguments["MAMBA_BLOCK_SIZE"],
    )


preprocess_mamba_align_fused_kernel = _Preprocess()
