"""The decision before a step, launched as the documents' kernel is."""

from collections.abc import Callable
from typing import Any

from subjects.plain.port import ask

try:
    from triton.runtime.jit import KernelInterface
except ImportError:
    # Without Triton no kernel is launched; a script needs the brackets only.
    KernelInterface = object

__all__ = ["preprocess_mamba_align_fused_kernel"]


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
