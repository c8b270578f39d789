"""The fused kernels of align mode, and the calls that launch them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from properties.strategies.align.setup import CONTEXT, Setup
from statecheck.case.values import Call, Name, Value, call

POSTPROCESS = f"{CONTEXT}.run_fused_postprocess"


POSTPROCESS_ALIGN = f"{CONTEXT}.run_fused_postprocess_align"


PRECOPY = f"{CONTEXT}.run_fused_precopy"


PREPROCESS_KERNEL = "preprocess_mamba_align_fused_kernel"


POSTPROCESS_KERNEL = "postprocess_mamba_fused_kernel"


PRECOPY_KERNEL = "precopy_mamba_align_fused_kernel"


STATE_VECTORS = (
    "block_table_ptrs",
    "state_base_addrs",
    "state_block_strides",
    "state_elem_sizes",
    "state_inner_sizes",
    "state_conv_widths",
    "state_group_indices",
    "state_dim_row_count",
    "state_dim_row_stride",
)


POSTPROCESS_ALIGN_VECTORS = {
    "num_accepted_tokens_gpu": "counts",
    "state_idx_gpu": "columns",
    "new_num_computed_tokens_gpu": "computed",
    "idx_mapping": "mapping",
}


PRECOPY_VECTORS = {
    "state_idx_gpu": "columns",
    "src_col_gpu": "src_col",
    "token_bias_gpu": "bias",
    "idx_mapping": "mapping",
}


PREPROCESS_VECTORS = {
    "idx_mapping_ptr": "mapping",
    "state_idx_ptr": "columns",
    "num_computed_tokens_ptr": "computed",
    "query_start_loc_ptr": "starts",
    "num_accepted_tokens_ptr": "counts",
    "src_col_ptr": "src_col",
    "src_off_ptr": "bias",
}


def preprocess_launch(num_reqs: int, tile: int, block_size: int, schedule: str) -> Call:
    """The preprocess kernel on the vectors that are named already, with `tile` rows per program."""
    arguments: dict[str, Value] = {name: Name(vector) for name, vector in PREPROCESS_VECTORS.items()}
    return call(
        "harness.launch",
        kernel=PREPROCESS_KERNEL,
        grid=(max(1, -(-num_reqs // tile)),),
        arguments=arguments | {"num_reqs": num_reqs},
        constexprs={"BLOCK_SIZE": tile, "MAMBA_BLOCK_SIZE": block_size},
        observes=("columns", "counts", "src_col", "bias"),
        schedule=schedule,
    )


def fused(
    setup: Setup,
    function: str,
    num_reqs: int,
    vectors: Mapping[str, str],
    observes: Sequence[str],
    schedule: str,
) -> Call:
    """A call of the context's method; `vectors` are the names of what it is handed, by argument."""
    named = ((argument, Name(vector)) for argument, vector in vectors.items())
    return Call(
        function,
        (("self", Name("ctx")), ("num_reqs", num_reqs), *named),
        environment=tuple(setup.environment.items()),
        observes=tuple(observes),
        schedule=schedule,
    )
