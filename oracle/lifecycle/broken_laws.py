"""What breaks a law of a whole engine: in words, as data, and as the result of a step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oracle.laws import law

Broken = tuple[str, str, str, dict[str, Any]]
"""The law, what was seen, and what should be, in words; and as data the `request` that it is of; of a state that is wrong after
how many of its `tokens` it should be, what was `found` (one `Found` for each state that is named), and `conv`, whether these are
rows of a window; and `group` and `block` of what is about a block."""


@dataclass(frozen=True)
class BrokenLaws:
    """Of each law the first thing that breaks it, in a sentence; "nothing" where it holds."""

    computed: str = law("The worker knows how many tokens of a request are computed before the step.")
    tokens: str = law("A forward runs the tokens that the step has scheduled, and no others.")
    attention: str = law("Attention reads the keys and values of the request's own computed tokens.")
    metadata: str = law("The metadata run each scheduled token through the state of its request, once.")
    read: str = law(
        "The state that a request reads at the start of a step is the one after exactly its computed tokens."
    )
    written: str = law("A forward writes to blocks of its own request alone, and padding writes nothing.")
    loading: str = law("A block that is being loaded is its request's alone, and the request waits for it.")
    loaded: str = law(
        "After a load of c tokens the block that the next forward reads holds the state after exactly c."
    )
    published: str = law(
        "A block that the prefix cache may publish holds the state after exactly the tokens before its boundary."
    )
    hit: str = law(
        "A request begins behind the last boundary of its tokens for which every group has a state that may be hit."
    )
    saved: str = law(
        "A block that is being saved keeps the state after exactly its tokens until that is done."
    )
    owned: str = law("A block has one owner, or several that share a prefix.")
    freed: str = law("A request has no block of sliding-window attention whose tokens no later step reads.")
    free: str = law("The blocks that are free are those without an owner.")
    output: str = law("A request's tokens are those of a run with every feature off.")
    left: str = law("When all requests are gone, every block and slot is free.")


def in_sentences(broken: Sequence[Broken]) -> BrokenLaws:
    """What a step broke, by its laws."""
    first: dict[str, str] = {}
    for name, seen, wanted, _ in broken:
        first.setdefault(name, f"{seen}, but {wanted}")
    return BrokenLaws(**first)
