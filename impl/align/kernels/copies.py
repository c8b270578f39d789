"""How one block's bytes are copied: cut in parts for as many programs, memmove-safe, as wide as alignment allows.

Addresses, offsets and sizes are int64 byte counts. A part is what one program copies of one block. Parts never
overlap, and no part reads a byte that another part of the same block writes: a run that moves onto itself is cut
across its rows (SD) or between its channels (DS), never along the direction in which it moves. Within a part every
load of a step is made before any of its stores, and steps go in the direction that keeps what later ones read.
"""

import triton
import triton.language as tl


@triton.jit
def aligned(a, b, c):
    """Whether three byte counts or addresses are all multiples of 16."""
    return ((a | b | c) & 15) == 0


@triton.jit
def share(size, part, num_parts, UNIT: tl.constexpr):
    """First and end of the part of `size` things, in multiples of UNIT but for the last end."""
    chunk = tl.cdiv(tl.cdiv(size, num_parts), UNIT) * UNIT
    first = tl.minimum(part * chunk, size)
    return first, tl.minimum(first + chunk, size)


@triton.jit
def copy_lanes(src, dst, count, LANE: tl.constexpr, LANES: tl.constexpr):
    """Copy `count` elements of type LANE between runs that share no byte."""
    BYTES: tl.constexpr = LANE.primitive_bitwidth // 8
    lanes = tl.arange(0, LANES)
    for start in range(0, count, LANES):
        source = (src + start * BYTES).to(tl.pointer_type(LANE))
        target = (dst + start * BYTES).to(tl.pointer_type(LANE))
        inside = start + lanes < count
        tl.store(target + lanes, tl.load(source + lanes, mask=inside), mask=inside)


@triton.jit
def copy_words(src, dst, count, LANES: tl.constexpr):
    """Copy `count` 8-byte words, a multiple of LANES, between runs that are 16-byte aligned and share no byte."""
    lanes = tl.arange(0, LANES)
    for start in range(0, count, LANES):
        # What is known of the alignment makes two words one access.
        source = tl.multiple_of((src + start * 8).to(tl.pointer_type(tl.int64)), 16)
        target = tl.multiple_of((dst + start * 8).to(tl.pointer_type(tl.int64)), 16)
        tl.store(target + lanes, tl.load(source + lanes))


@triton.jit
def move_lanes(src, dst, count, LANE: tl.constexpr, LANES: tl.constexpr):
    """Copy `count` elements of type LANE as through a temporary, however the two runs overlap."""
    BYTES: tl.constexpr = LANE.primitive_bitwidth // 8
    lanes = tl.arange(0, LANES)
    steps = tl.cdiv(count, LANES)
    for step in range(steps):
        # Towards lower addresses from the front, towards higher ones from the back: what later steps read is kept.
        start = tl.where(dst < src, step, steps - 1 - step) * LANES
        source = (src + start * BYTES).to(tl.pointer_type(LANE))
        target = (dst + start * BYTES).to(tl.pointer_type(LANE))
        inside = start + lanes < count
        data = tl.load(source + lanes, mask=inside)
        # Lanes of other warps may still have to read what this store overwrites.
        tl.debug_barrier()
        tl.store(target + lanes, data, mask=inside)


@triton.jit
def copy_run(src, dst, size, LANES: tl.constexpr):
    """Copy `size` bytes between runs that share no byte."""
    # Few lanes at a time where it is rare: every path costs the others registers.
    if aligned(src, dst, size):
        words = size // 8
        wide = words // LANES * LANES
        copy_words(src, dst, wide, LANES)
        copy_lanes(src + wide * 8, dst + wide * 8, words - wide, tl.int64, min(LANES, 256))
    else:
        copy_lanes(src, dst, size, tl.uint8, min(8 * LANES, 512))


@triton.jit
def move_run(src, dst, size, LANES: tl.constexpr):
    """Copy `size` bytes as through a temporary; one program has to do all of it."""
    if aligned(src, dst, size):
        move_lanes(src, dst, size // 8, tl.int64, min(LANES, 256))
    else:
        move_lanes(src, dst, size, tl.uint8, min(8 * LANES, 512))


@triton.jit
def copy_part(src, dst, size, part, num_parts, LANES: tl.constexpr):
    """This part of `size` bytes, between runs that share no byte."""
    first, end = share(size, part, num_parts, 16)
    if first < end:
        copy_run(src + first, dst + first, end - first, LANES)


@triton.jit
def slide_rows(block, shift, rows, row_bytes, left, right, LANES: tl.constexpr):
    """Within one block move rows `shift`.. to the front, in the bytes left..right of every row."""
    for row in range(rows - shift):
        target = block + row * row_bytes + left
        # Rows that are `shift` apart share no byte, and the next row's loads follow this row's stores.
        copy_run(target + shift * row_bytes, target, right - left, LANES)
        tl.debug_barrier()


@triton.jit
def shift_channels(src, dst, shift, length, first, end, LANE: tl.constexpr, LANES: tl.constexpr):
    """In channels first..end of `length` elements of type LANE, move elements `shift`.. to the front of theirs."""
    BYTES: tl.constexpr = LANE.primitive_bitwidth // 8
    lanes = tl.arange(0, LANES)
    begin = first * length
    count = (end - first) * length
    # Positions within a channel are small, and a remainder per step and lane would cost more than the copy.
    length32 = length.to(tl.int32)
    kept = (length - shift).to(tl.int32)
    position = lanes % length32
    for start in range(0, count, LANES):
        inside = (lanes < tl.minimum(count - start, LANES).to(tl.int32)) & (position < kept)
        target = (dst + (begin + start) * BYTES).to(tl.pointer_type(LANE))
        source = (src + (begin + start + shift) * BYTES).to(tl.pointer_type(LANE))
        data = tl.load(source + lanes, mask=inside)
        if src == dst:
            tl.debug_barrier()
        tl.store(target + lanes, data, mask=inside)
        position += LANES % length32
        position = tl.where(position < length32, position, position - length32)
