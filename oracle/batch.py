from collections.abc import Sequence
from enum import Enum
from typing import Final, Literal, NamedTuple

from oracle.rules import Refused, require, require_int, rule


def require_starts(argument: str, starts: Sequence[int]) -> None:
    """Refuse cumulative starts that have no first entry or that step back."""
    require(len(starts) >= 1, argument, tuple(starts), "have at least 1 entry")
    for i in range(1, len(starts)):
        rule = f"be >= {argument}[{i - 1}] = {starts[i - 1]}"
        require(starts[i] >= starts[i - 1], f"{argument}[{i}]", starts[i], rule)


def query_lens(starts: Sequence[int]) -> tuple[int, ...]:
    """A row's query length is the next row's start minus its own.

    Source: contract 1.6, `naive_query_lens`.
    """
    require(len(starts) >= 1, "query_start_loc", tuple(starts), "have at least 1 entry")
    return tuple(starts[row + 1] - starts[row] for row in range(len(starts) - 1))


def num_computed_tokens(query_start_loc: Sequence[int], seq_lens: Sequence[int]) -> tuple[int, ...]:
    """What a row has computed before this step: its length after the step minus its query length.

    Source: contract 1.6, `compute_num_computed_tokens`.
    """
    lens = query_lens(query_start_loc)
    require(len(seq_lens) == len(lens), "seq_lens", tuple(seq_lens), f"have {len(lens)} entries")
    return tuple(seq_lens[row] - lens[row] for row in range(len(lens)))


class Split(NamedTuple):
    """Rows and tokens on either side of the first row that is no decode."""

    num_decodes: int
    num_prefills: int
    num_decode_tokens: int
    num_prefill_tokens: int


@rule
def split_decodes_and_prefills(
    query_start_loc: Sequence[int],
    num_actual_tokens: int,
    max_query_len: int,
    decode_threshold: int = 1,
    require_uniform: bool = False,
    treat_short_extends_as_decodes: bool = True,
    is_prefilling: Sequence[bool] | None = None,
) -> Split:
    """Decodes are the rows before the first prefill; every row from there on counts as a prefill.

    The order of the rows is taken as it is. Tokens beyond the last start (graph padding) belong to
    the last kind of row that there is. The starts are refused under the name of the host copy,
    `query_start_loc_cpu`. Source: contract 1.2.
    """
    _require_split_input(query_start_loc, num_actual_tokens, max_query_len, decode_threshold)
    lens = query_lens(query_start_loc)
    if is_prefilling is not None:
        rule = f"have {len(lens)} entries"
        require(len(is_prefilling) == len(lens), "is_prefilling", tuple(is_prefilling), rule)

    # An empty batch has no row whose flag could be missing.
    if not treat_short_extends_as_decodes and is_prefilling is None and lens:
        raise Refused("is_prefilling", None, "be given when treat_short_extends_as_decodes is False")

    first_prefill = len(lens)
    for row in reversed(range(len(lens))):
        too_long = lens[row] > decode_threshold
        uneven = require_uniform and breaks_uniformity(row, lens, decode_threshold)
        short_extend = (
            not treat_short_extends_as_decodes and is_prefilling is not None and bool(is_prefilling[row])
        )
        if too_long or uneven or short_extend:
            first_prefill = row

    if first_prefill == len(lens):
        return Split(len(lens), 0, num_actual_tokens, 0)
    decode_tokens = query_start_loc[first_prefill]
    return Split(first_prefill, len(lens) - first_prefill, decode_tokens, num_actual_tokens - decode_tokens)


def breaks_uniformity(row: int, lens: Sequence[int], decode_threshold: int) -> bool:
    """In a uniform batch every decode is as long as the first row.

    Two batches are uniform all the same: one of single tokens, and one whose other rows are all
    empty padding. Neither says anything about prompts: those end the decodes by themselves.
    """
    single_tokens = max(lens) <= decode_threshold <= 1
    only_padding_differs = all(length in {lens[0], 0} for length in lens)
    return not single_tokens and not only_padding_differs and lens[row] != lens[0]


def _require_split_input(
    starts: Sequence[int], num_actual_tokens: int, max_query_len: int, decode_threshold: int
) -> None:
    require_starts("query_start_loc_cpu", starts)
    require(starts[0] == 0, "query_start_loc_cpu[0]", starts[0], "be 0")
    require_int("decode_threshold", decode_threshold, minimum=1)
    longest = max(query_lens(starts), default=0)
    require(max_query_len >= longest, "max_query_len", max_query_len, f"be >= {longest}, the longest query")
    rule = f"be >= query_start_loc_cpu[{len(starts) - 1}] = {starts[-1]}"
    require(num_actual_tokens >= starts[-1], "num_actual_tokens", num_actual_tokens, rule)


class _Table(Enum):
    UNCHANGED = "the very same table"


UNCHANGED: Final = _Table.UNCHANGED


@rule
def block_table_rows(
    block_table: Sequence[Sequence[int]],
    seq_lens: Sequence[int],
    block_size: int,
    num_speculative_blocks: int,
    mode: str,
) -> tuple[tuple[int, ...], ...] | Literal[_Table.UNCHANGED]:
    """In align mode a row keeps the column of its last token and one more per speculative block.

    A row without tokens keeps the columns from 0. The other modes hand back the table itself
    (`UNCHANGED`). There are as many result rows as sequence lengths. A table without rows has no
    width here, so its width is not judged. Source: contract 1.4, `mamba_get_block_table_tensor`.
    """
    require(mode in {"none", "align", "all"}, "mamba_cache_mode", mode, "be one of 'none', 'align', 'all'")
    if mode != "align":
        return UNCHANGED
    require_int("block_size", block_size, minimum=1)
    require_int("num_speculative_blocks", num_speculative_blocks, minimum=0)
    num_rows = len(block_table)
    require(len(seq_lens) <= num_rows, "seq_lens", tuple(seq_lens), f"have at most {num_rows} entries")

    width = len(block_table[0]) if block_table else 1 + num_speculative_blocks
    rule = f"have at least {1 + num_speculative_blocks} columns"
    require(width >= 1 + num_speculative_blocks, "block_table", block_table, rule)

    longest = block_size * (width - num_speculative_blocks)
    rows: list[tuple[int, ...]] = []
    for row, seq_len in enumerate(seq_lens):
        require(seq_len <= longest, f"seq_lens[{row}]", seq_len, f"be <= {longest}, which the table covers")
        running = max((seq_len - 1) // block_size, 0)
        rows.append(tuple(block_table[row][running + i] for i in range(1 + num_speculative_blocks)))
    return tuple(rows)
