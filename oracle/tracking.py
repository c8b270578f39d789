"""Which states a prefill keeps at boundaries, and the chunks in which its kernels go over the tokens of a batch."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from oracle.rules import require, require_int, rule
from oracle.types import cdiv


class KeptState(NamedTuple):
    """Where the state at a row's boundary comes from.

    Args:
        row: of the batch.
        source: "last" for the state after all tokens of the row; "chunk" for one that the kernel leaves before each of its chunks; "computed" for
            one that is computed from the tokens of the row's last chunk.
        at: number of the chunk among those of the batch; of a computed one the token of the batch at which it ends.
    """

    row: int
    source: str
    at: int


@rule
def kept_states(
    boundaries: Sequence[int | None], tokens: Sequence[int], chunk_size: int, flat: bool
) -> list[KeptState]:
    """The state of each row after its first tokens up to its boundary.

    Args:
        boundaries: of each row, counted from its first token in the batch; None: the row keeps no state.
        tokens: of each row in the batch.
        flat: chunks begin at multiples of the chunk size in the whole batch, as Mamba-2's do; else each row has chunks of its own.

    Refused: a boundary inside of a chunk, or behind the row's tokens.
    """
    require_int("chunk_size", chunk_size, minimum=1)
    starts = list(accumulate(tokens, initial=0))
    first_chunks = list(accumulate((cdiv(count, chunk_size) for count in tokens), initial=0))
    found = []
    for row, (boundary, count) in enumerate(zip(boundaries, tokens, strict=True)):
        if boundary is None:
            continue
        require(boundary % chunk_size == 0, f"boundaries[{row}]", boundary, f"be a multiple of {chunk_size}")
        require(0 <= boundary <= count, f"boundaries[{row}]", boundary, f"be from 0 to {count}")
        end = starts[row] + boundary
        if boundary == count:
            found.append(KeptState(row, "last", 0))
        elif flat and end % chunk_size:
            found.append(KeptState(row, "computed", end))
        else:
            chunk = end // chunk_size if flat else first_chunks[row] + boundary // chunk_size
            found.append(KeptState(row, "chunk", chunk))
    return found


@rule
def logical_chunks(tokens: Sequence[int], chunk_size: int) -> list[tuple[int, int]]:
    """For each run of tokens of one row in one chunk of the batch: the chunk, and where in it the run begins.

    A chunk begins at each multiple of the chunk size in the whole batch. A row without tokens has no run.
    """
    require_int("chunk_size", chunk_size, minimum=1)
    starts = list(accumulate(tokens, initial=0))
    found: list[tuple[int, int]] = []
    for first, end in pairwise(starts):
        begins = [token for token in range(first, end) if token == first or token % chunk_size == 0]
        found += [divmod(token, chunk_size) for token in begins]
    return found


def broken_allocation(
    size: int,
    operations: Sequence[tuple[str, int]],
    given: Sequence[tuple[int, ...] | None],
    read_again: Sequence[Mapping[int, tuple[int, ...]]] = (),
) -> str:
    """What is wrong with the slots that an allocator of `size` slots gave out, in a sentence; "nothing" where nothing is.

    Args:
        operations: "alloc" with how many slots are wanted, "free" with the number of an allocation that is given back, "part" with that of one whose first slot
            is given back, "share" with that of one whose slots get another owner, "clear", "left", which asks how many slots are free, "admit", which asks
            whether so many are, and "begin" and "end" of a group of allocations. A slot is free when each of its owners has given it back.
        given: what came of each: slots, None for none, and for "left" and "admit" one number.
        read_again: behind each operation, what the slots of earlier allocations are by then, by the number of the allocation. Slots that are held stay what they
            were, whatever the allocator does with its memory.
    """
    held: dict[int, tuple[int, ...]] = {}
    for number, ((operation, argument), slots) in enumerate(zip(operations, given, strict=True)):
        used = {slot for one in held.values() for slot in one}
        free = size - len(used)
        match operation:
            case "alloc":
                found = _broken_slots(argument, slots, used, size)
                if found:
                    return f"allocation {number}: {found}"
                if slots is not None:
                    held[number] = slots
            case "free":
                held.pop(argument, None)
            case "part" if argument in held:
                held[argument] = held[argument][1:]
            case "share" if argument in held:
                held[number] = held[argument]
            case "clear":
                held.clear()
            case "left":
                if slots != (free,):
                    return f"operation {number}: {slots} slots are left, but should be {free}"
            case "admit":
                if slots != (int(argument <= free),):
                    verdict = "admitted" if slots == (1,) else "not admitted"
                    return f"operation {number}: {argument} slots are {verdict}, but {free} are free"
        again = read_again[number] if read_again else held
        for allocation, own in held.items():
            if again[allocation] != own:
                return f"the slots of allocation {allocation} are {again[allocation]} behind operation {number}, but should be {own}"
    return "nothing"


def _broken_slots(wanted: int, slots: tuple[int, ...] | None, used: set[int], size: int) -> str:
    free = size - len(used)
    if not isinstance(slots, tuple | None):
        return f"{slots!r} is given, but should be {wanted} slots, or None"
    if slots is None:
        return f"none of {free} free slots is given, but should be {wanted}" if wanted <= free else ""
    if wanted > free:
        return f"{slots} is given, but only {free} slots are free"
    if len(set(slots)) != wanted:
        return f"{slots} is given, but should be {wanted} slots"
    outside = [slot for slot in slots if not 1 <= slot <= size]
    if outside:
        return f"slot {outside[0]} is given, but should be from 1 to {size}"
    taken = sorted(used & set(slots))
    return f"slot {taken[0]} is given, but belongs to another allocation" if taken else ""


def broken_snapshots(num_tokens: int, block_size: int, interval: int, points: Sequence[int]) -> str:
    """What is wrong with the token counts at which chunks of a prompt end so that states are kept, in a sentence; "nothing" where nothing is.

    A state can be hit only at a boundary of blocks, and the one at each multiple of the interval, which is a multiple of the block size, is kept. The last
    chunk may end with the prompt.
    """
    if list(points) != sorted(set(points)):
        return f"points = {list(points)}, but should be ascending"
    for point in points:
        if not 0 < point <= num_tokens:
            return f"point {point} is outside of a prompt of {num_tokens} tokens"
        if point % block_size and point != num_tokens:
            return f"point {point} is no boundary of blocks of {block_size} tokens"
    missing = sorted({*range(interval, num_tokens, interval)} - {*points})
    return f"point {missing[0]} is missing in {list(points)}" if missing else "nothing"


def broken_admission(
    num_computed: int,
    num_tokens: int,
    block_size: int,
    interval: int,
    budgets: Sequence[int],
    taken: Sequence[int],
) -> str:
    """What is wrong with the tokens that the steps of a prompt take, in a sentence; "nothing" where nothing is.

    A step that passes a multiple of the interval leaves no state after exactly so many tokens.

    Args:
        budgets: of each step, how many tokens it has room for.
        taken: of each step.
    """
    for step, (budget, count) in enumerate(zip(budgets, taken, strict=True)):
        left = num_tokens - num_computed
        if not 0 <= count <= min(budget, left):
            return f"step {step} takes {count} tokens, but should take from 0 to {min(budget, left)}"
        if not count and budget >= min(block_size, left):
            return f"step {step} takes no token of {left}, but has room for {budget}"
        boundary = (num_computed // interval + 1) * interval
        num_computed += count
        if num_computed > boundary:
            return f"step {step} ends at {num_computed}, behind {boundary}, the state at which is kept"
    return "nothing"


def broken_pairing(
    source: Sequence[int],
    target: Sequence[int],
    num_computed: int,
    block_size: int,
    pairs: Sequence[tuple[int, int]],
) -> str:
    """What is wrong with the blocks of a request's states that one engine sends to another, in a sentence; "nothing" where nothing is.

    The next forward reads the block in the column of the last computed token. Behind it are the blocks of drafts, as many as each engine has.

    Args:
        source, target: the request's table in both engines; 0 is the null block.
        pairs: blocks that are sent, and those that they are written to.
    """
    for sent, received in pairs:
        columns = [
            table.index(block) if block and block in table else None
            for table, block in ((source, sent), (target, received))
        ]
        null = sent == received == 0
        if not null and (columns[0] is None or columns[0] != columns[1]):
            return f"block {sent} of column {columns[0]} is sent to block {received} of column {columns[1]}"
    running = max(num_computed - 1, 0) // block_size
    state = source[running], target[running]
    if state not in [tuple(pair) for pair in pairs]:
        return f"block {state[0]}, which has the state after {num_computed} tokens, is not sent to block {state[1]}"
    return "nothing"
