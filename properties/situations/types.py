"""Situations of the small arithmetic and of cache configurations."""

from collections.abc import Sequence

from oracle.types import cdiv, natural_page_size, page_size_bytes, pages_per_request
from statecheck.reference.situations import situations_of, watches

_declare = situations_of("types")

NEGATIVE = _declare("a negative quotient is rounded up")
PADDED = _declare("a page has bytes behind its states")
HUGE_PAGE = _declare("a page has more bytes than an int32 counts")
PART = _declare("the last block of the longest request is not full")


@watches(cdiv)
def _quotient(answer: int, x: int, y: int) -> None:
    NEGATIVE.reached_if(answer * y != x and x // y < 0)


@watches(page_size_bytes)
def _page(answer: int, shapes: Sequence[Sequence[int]], itemsizes: Sequence[int]) -> None:
    PADDED.reached_if(answer > natural_page_size(shapes, itemsizes))
    HUGE_PAGE.reached_if(natural_page_size(shapes, itemsizes) >= 2**31)


@watches(pages_per_request)
def _pages(_: int, mode: str, block_size: int, max_model_len: int) -> None:
    PART.reached_if(mode == "all" and max_model_len % block_size)
