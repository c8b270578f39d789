"""The batched copy of many byte runs in one launch."""

import triton
import triton.language as tl

from .copies import copy_part, move_run
from .work import this_program


@triton.jit(
    do_not_specialize=["num_entries", "num_parts"],
    do_not_specialize_on_alignment=["src_ptrs", "dst_ptrs", "sizes"],
)
def batch_memcpy_kernel(src_ptrs, dst_ptrs, sizes, BLOCK_SIZE: tl.constexpr, num_entries=0, num_parts=1):
    """Copy sizes[i] bytes from address src[i] to address dst[i], each entry as through a temporary.

    Grid: any; the programs share out the parts of all entries. Without num_entries there is one per program. An
    entry whose two runs overlap is done by one program. Source: contract 1.8, `batch_memcpy`.
    """
    program, programs = this_program()
    count = num_entries
    if count == 0:
        count = programs
    item = program
    while item < count * num_parts:
        entry = item // num_parts
        part = item % num_parts
        src = tl.load(src_ptrs + entry).to(tl.int64)
        dst = tl.load(dst_ptrs + entry).to(tl.int64)
        size = tl.load(sizes + entry).to(tl.int64)
        distance = tl.where(src < dst, dst - src, src - dst)
        if distance >= size:
            copy_part(src, dst, size, part, num_parts, BLOCK_SIZE // 8)
        elif (part == 0) & (distance > 0):
            move_run(src, dst, size, BLOCK_SIZE // 8)
        item += programs
