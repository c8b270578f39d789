"""What breaks a law of a whole engine: in words, as data, and as the result of a step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Broken = tuple[str, str, str, dict[str, Any]]
"""The law, what was seen, and what should be, in words; and as data the `request` that it is of; of a state that is wrong after
how many of its `tokens` it should be, what was `found` (one `Found` for each state that is named), and `conv`, whether these are
rows of a window; and `group` and `block` of what is about a block."""


@dataclass(frozen=True)
class BrokenLaws:
    """Of each law the first thing that breaks it, in a sentence; "nothing" where it holds."""

    computed: str = "nothing"
    tokens: str = "nothing"
    attention: str = "nothing"
    metadata: str = "nothing"
    read: str = "nothing"
    written: str = "nothing"
    published: str = "nothing"
    owned: str = "nothing"
    free: str = "nothing"
    output: str = "nothing"
    left: str = "nothing"


def in_sentences(broken: Sequence[Broken]) -> BrokenLaws:
    """What a step broke, by its laws."""
    first: dict[str, str] = {}
    for law, seen, wanted, _ in broken:
        first.setdefault(law, f"{seen}, but {wanted}")
    return BrokenLaws(**first)
