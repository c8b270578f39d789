"""A buffer with a host side and a device side: what each holds after a copy."""

from collections.abc import Sequence
from math import prod

from oracle.rules import require, require_int


def require_buffer(size: Sequence[int], dtype: str, with_numpy: bool) -> None:
    """Refuse a buffer without rows to count, and a NumPy view of a type that NumPy does not have.

    Source: contract 1.8, `CpuGpuBuffer`.
    """
    require(len(size) > 0, "size", tuple(size), "have a dimension")
    for axis, length in enumerate(size):
        require_int(f"size[{axis}]", length, minimum=0)
    known = dtype not in {"bfloat16", "float8_e4m3fn", "float8_e5m2"}
    require(known or not with_numpy, "dtype", dtype, "be a NumPy type where with_numpy is set")


def num_elements(size: Sequence[int]) -> int:
    """Elements of a buffer, all zero when it is made."""
    return prod(size)


def copied_elements(size: Sequence[int], num_rows: int | None) -> int:
    """How many elements the first `num_rows` rows have; all of them if no number is given.

    Refused as `n`: a number of rows that the buffer does not have. Source: contract 1.8, `copy_to_gpu`.
    """
    if num_rows is None:
        return prod(size)
    require_int("n", num_rows, minimum=0)
    require(num_rows <= size[0], "n", num_rows, f"be <= {size[0]}, the rows")
    return num_rows * prod(size[1:])


def overwritten(old: Sequence[int], new: Sequence[int]) -> tuple[int, ...]:
    """`old` with its first elements replaced by `new`."""
    assert len(new) <= len(old), f"{len(new)} elements do not fit into {len(old)}"
    return (*new, *old[len(new) :])
