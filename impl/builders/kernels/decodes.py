"""What a full graph of decodes reads, written in one launch."""

import triton
import triton.language as tl


@triton.jit(
    do_not_specialize=["table_row", "table_column", "table_width", "rows", "filled", "block_size"],
    do_not_specialize_on_alignment=["table_ptr", "seq_lens_ptr", "starts_ptr", "counts_ptr"],
)
def stage_decodes_kernel(
    table_ptr,
    table_row: tl.int64,
    table_column: tl.int64,
    table_width: tl.int64,
    seq_lens_ptr,
    starts_ptr,
    counts_ptr,
    rows,
    filled,
    block_size: tl.int64,
    ids_out_ptr,
    starts_out_ptr,
    counts_out_ptr,
    masks_out_ptr,
    PAD: tl.constexpr,
    COLUMNS: tl.constexpr,
    ALIGN: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Write block ids [rows, COLUMNS], starts [rows + 1], accepted counts and marks [rows] of a batch of decodes.

    `table_row`, `table_column`: elements between rows and columns of the block table. Rows from `filled` on get the
    block PAD, the count 1 and no mark. With ALIGN a row's blocks begin with that of its last token, otherwise with the
    first column. Outputs that are None are left out. Grid: (ceil((rows + 1) / ROWS), 1, 1) at least.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = row < rows
    real = row < filled
    if starts_out_ptr is not None:
        starts = tl.load(starts_ptr + row, mask=row <= rows, other=0)
        tl.store(starts_out_ptr + row, starts, mask=row <= rows)
    first = tl.zeros([ROWS], tl.int64)
    if ALIGN:
        tokens = tl.load(seq_lens_ptr + row, mask=real, other=1)
        first = tl.maximum((tokens + block_size - 1) // block_size - 1, 0)
    for offset in tl.static_range(COLUMNS):
        column = first + offset
        tl.device_assert(column < table_width, "a row has more tokens than its block table holds", mask=real)
        entry = table_ptr + row * table_row + column * table_column
        block = tl.load(entry, mask=real, other=PAD)
        tl.store(ids_out_ptr + row * COLUMNS + offset, block, mask=there)
    if counts_out_ptr is not None:
        counts = tl.load(counts_ptr + row, mask=real, other=1)
        tl.store(counts_out_ptr + row, counts, mask=there)
    if masks_out_ptr is not None:
        tl.store(masks_out_ptr + row, real, mask=there)
