"""Situations of state layouts and of copy specifications."""

from collections.abc import Mapping, Sequence

from oracle.layout import (
    LAYOUT_VARIABLE,
    ByteRun,
    Layout,
    StateGeometry,
    conv_copy_run,
    conv_state_layout,
    lies_in_one_piece,
    temporal_copy_run,
)
from statecheck.reference.situations import situations_of, watches

_declare = situations_of("layout")

UNSET = _declare("the layout variable is not set")
SKIPPED_ROWS = _declare("a specification of SD rows skips those of accepted drafts")
LAST_ROW = _declare("a specification of the last SD row alone")
IN_PIECES = _declare("DS rows behind accepted drafts are refused, as they lie in pieces")
DRAFTED_COLUMN = _declare("the state of an accepted draft is in a column of its own")
LAST_COLUMN = _declare("the state of the last accepted token is in the request's last column")
FAR_BLOCK = _declare("a specification of a block beyond 31 bits")
MANY_ACCEPTED = _declare("a specification behind five accepted drafts or more")


@watches(conv_state_layout)
def _layout(_: Layout, environment: Mapping[str, str]) -> None:
    UNSET.reached_if(LAYOUT_VARIABLE not in environment)


@watches(lies_in_one_piece)
def _pieces(answer: bool) -> None:
    IN_PIECES.reached_if(not answer)


@watches(conv_copy_run)
def _conv(answer: ByteRun, geometry: StateGeometry, num_accepted_tokens: int) -> None:
    # DS answers only where no row is skipped.
    num_rows, first_row = geometry.block_shape[0], num_accepted_tokens - 1
    SKIPPED_ROWS.reached_if(first_row > 0)
    MANY_ACCEPTED.reached_if(first_row >= 5)
    LAST_ROW.reached_if(0 < first_row == num_rows - 1)
    FAR_BLOCK.reached_if(answer.offset >= 2**31)


@watches(temporal_copy_run)
def _temporal(
    answer: ByteRun, block_ids: Sequence[int], cur_block_idx: int, num_accepted_tokens: int
) -> None:
    column = cur_block_idx + num_accepted_tokens - 1
    DRAFTED_COLUMN.reached_if(column > cur_block_idx)
    MANY_ACCEPTED.reached_if(num_accepted_tokens > 5)
    LAST_COLUMN.reached_if(column == len(block_ids) - 1)
    FAR_BLOCK.reached_if(answer.offset >= 2**31)
