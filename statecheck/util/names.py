"""Names that one may have been meant by."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_ALIKE = 0.85
"""How alike two names are, of 1, if one may be a slip for the other: chunk_offset and chunk_offsets."""


def meant_by(name: str, among: Iterable[str]) -> str:
    """The name that this one may be a slip for, "" if there is none."""
    return next(iter(get_close_matches(name, list(among), n=1, cutoff=_ALIKE)), "")
