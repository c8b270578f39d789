"""Situations of batches: how they are split, and which columns are gathered for their rows."""

from collections.abc import Sequence

from oracle.batch import (
    UNCHANGED,
    Split,
    block_table_rows,
    breaks_uniformity,
    query_lens,
    split_decodes_and_prefills,
)
from oracle.types import NULL_BLOCK_ID
from statecheck.reference.situations import situations_of, watches

_declare = situations_of("batch")

NO_ROW = _declare("a batch without rows is split")
LATE_DECODE = _declare("a query as short as a decode stands behind a prefill")
PADDED_PREFILL = _declare("a padded row behind a prefill counts as one")
PADDED_DECODE = _declare("a padded row behind decodes counts as one")
TOKENS_TO_DECODES = _declare("padded tokens count as those of decodes")
TOKENS_TO_PREFILLS = _declare("padded tokens count as those of prefills")
AT_THRESHOLD = _declare("a decode is as long as the threshold allows")
SHORT_CHUNK = _declare("a prompt chunk as short as a decode ends the decodes")
UNEVEN = _declare("an uneven query ends the decodes of a uniform batch")
ONLY_PADDING = _declare("only padding differs in a uniform batch")
GATHERED_PADDING = _declare("a row without tokens is gathered from column 0")
FULL_BLOCK = _declare("the last token of a gathered row fills its block")
TABLE_END = _declare("the gathered columns of a row end with the table")
BEFORE_NULL = _declare("a null block stands before the gathered columns of a row")
MANY_ROWS = _declare("a batch of more rows than 64 is split")
LONG_DECODE = _declare("a decode has five drafts or more")
LONG_QUERY = _declare("a query has more tokens than sixteen bits count")
MANY_GATHERED = _declare("columns of more rows than 64 are gathered")
MANY_COLUMNS = _declare("the columns of five drafts or more are gathered")
LONG_REQUEST = _declare(
    "the running column of a request longer than half of what an int32 counts is gathered"
)


@watches(split_decodes_and_prefills)
def _split(
    answer: Split,
    query_start_loc: Sequence[int],
    num_actual_tokens: int,
    decode_threshold: int,
    require_uniform: bool,
) -> None:
    lens, first = query_lens(query_start_loc), answer.num_decodes
    _sides(lens[:first], lens[first:], decode_threshold)
    if num_actual_tokens > sum(lens):
        (TOKENS_TO_PREFILLS if lens[first:] else TOKENS_TO_DECODES).reached()
    NO_ROW.reached_if(not lens)
    MANY_ROWS.reached_if(len(lens) > 64)
    LONG_DECODE.reached_if(any(length > 5 for length in lens[:first]))
    LONG_QUERY.reached_if(max(lens, default=0) > 65_535)
    if first < len(lens) and lens[first] <= decode_threshold:
        uneven = require_uniform and breaks_uniformity(first, lens, decode_threshold)
        (UNEVEN if uneven else SHORT_CHUNK).reached()
    elif require_uniform and decode_threshold > 1:
        ONLY_PADDING.reached_if(first == len(lens) and 0 in lens and any(lens))


def _sides(decodes: Sequence[int], prefills: Sequence[int], decode_threshold: int) -> None:
    PADDED_DECODE.reached_if(any(decodes) and 0 in decodes)
    PADDED_PREFILL.reached_if(0 in prefills)
    LATE_DECODE.reached_if(any(0 < length <= decode_threshold for length in prefills[1:]))
    AT_THRESHOLD.reached_if(decode_threshold > 1 and decode_threshold in decodes)


@watches(block_table_rows)
def _gathered(
    answer: object,
    block_table: Sequence[Sequence[int]],
    seq_lens: Sequence[int],
    block_size: int,
    num_speculative_blocks: int,
) -> None:
    if answer is UNCHANGED:
        return
    MANY_GATHERED.reached_if(len(seq_lens) > 64)
    MANY_COLUMNS.reached_if(seq_lens and num_speculative_blocks >= 5)
    LONG_REQUEST.reached_if(max(seq_lens, default=0) > 2**30)
    for blocks, seq_len in zip(block_table, seq_lens, strict=False):
        longest = block_size * (len(block_table[0]) - num_speculative_blocks)
        running = max((seq_len - 1) // block_size, 0)
        GATHERED_PADDING.reached_if(seq_len == 0)
        FULL_BLOCK.reached_if(seq_len > 0 and seq_len % block_size == 0)
        TABLE_END.reached_if(seq_len > longest - block_size)
        BEFORE_NULL.reached_if(NULL_BLOCK_ID in blocks[:running])
