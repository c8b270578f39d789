"""Bytes that a case is about, for those who ask who wrote them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Suspect:
    """Bytes that are not what they should be at the end of a case.

    Args:
        name: what a `Let` bound; `first` and `nbytes` count bytes of its storage.
        belongs: whose they are and why, such as "block 5 belongs to r1, because ...".
        steps: for each call of the case, the step of an engine that it was part of; empty without an engine.
    """

    name: str
    first: int
    nbytes: int = 1
    belongs: str = ""
    steps: tuple[int, ...] = ()
