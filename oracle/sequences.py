"""The law of sequences: which tokens each sequence has after each operation, whatever the library does to get there.

An operation that succeeds changes the tokens as said here. An operation that fails changes nothing. The logits of the next token depend
only on the tokens, so that a fresh run over them is the reference.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from oracle.laws import law
from oracle.rules import require

Tokens = tuple[int, ...]
Place = tuple[int, int]
"""A context's number, and a sequence's number in it."""


@dataclass
class SequenceTokens:
    """The tokens of every sequence of a scenario, by context and sequence; a sequence that is not there is empty."""

    tokens: dict[Place, Tokens] = field(default_factory=dict)
    saved: dict[str, Tokens] = field(default_factory=dict)

    def of(self, place: Place) -> Tokens:
        """What the sequence there has."""
        return self.tokens.get(place, ())

    def extend(
        self, context: int, rows: Sequence[tuple[int, Tokens]], forms: Collection[str] = ()
    ) -> list[Tokens]:
        """The tokens of each row's sequence, with the row's own."""
        numbers = [number for number, _ in rows]
        require(len(set(numbers)) == len(numbers), "rows", rows, "name each sequence once")
        require(all(tokens for _, tokens in rows), "rows", rows, "have tokens")
        if SHARED_TOKENS in forms:
            alike = {(self.of((context, number)), tokens) for number, tokens in rows}
            require(len(alike) == 1, "rows", rows, "have the same tokens, behind the same tokens")
        for number, tokens in rows:
            self._set((context, number), (*self.of((context, number)), *tokens))
        return [self.of((context, number)) for number in numbers]

    def fork(self, context: int, source: int, target: int) -> None:
        """The target has what the source has, whatever it had."""
        self._set((context, target), self.of((context, source)))

    def roll_back(self, context: int, sequence: int, n: int) -> None:
        """The last `n` tokens are gone."""
        now = self.of((context, sequence))
        require(1 <= n <= len(now), "n", n, f"be from 1 to {len(now)}")
        self._set((context, sequence), now[: len(now) - n])

    def save(self, context: int, sequence: int, name: str) -> None:
        """Keep what the sequence has under a name."""
        self.saved[name] = self.of((context, sequence))

    def load(self, context: int, sequence: int, name: str) -> None:
        """The sequence has what was saved under the name, whatever it had."""
        require(name in self.saved, "saved", name, "have been saved")
        self._set((context, sequence), self.saved[name])

    def load_damaged(self, context: int, sequence: int, damage: str, name: str) -> None:  # noqa: ARG002 - the arguments of the operation
        """The sequence has what was saved: a library that does not refuse a damaged save says that it is whole."""
        self.load(context, sequence, name)

    def drop(self, context: int, sequence: int) -> None:
        """The sequence is empty."""
        self._set((context, sequence), ())

    def reorder(self, context: int, order: Sequence[int]) -> None:
        """Sequence i has what `order[i]` had."""
        before = [self.of((context, number)) for number in order]
        for number, tokens in enumerate(before):
            self._set((context, number), tokens)

    def generate(self, context: int, sequence: int, tokens: Tokens, length: int | None) -> None:
        """The sequence has the generated tokens, the last one perhaps not; where its length is unknown, it is dropped."""
        whole = (*self.of((context, sequence)), *tokens)
        self._set((context, sequence), whole[:length] if length in (len(whole), len(whole) - 1) else ())

    def cancel(self, context: int, sequence: int, tokens: Tokens, length: int | None) -> None:
        """The sequence has its tokens and the first of those that were cancelled, as many as the library says, or it is empty."""
        before = self.of((context, sequence))
        whole = (*before, *tokens)
        known = length is not None and len(before) <= length <= len(whole)
        self._set((context, sequence), whole[:length] if known else ())

    def lengths(self) -> dict[Place, int]:
        """Of all sequences that have tokens."""
        return {place: len(tokens) for place, tokens in sorted(self.tokens.items())}

    def _set(self, place: Place, tokens: Tokens) -> None:
        self.tokens.pop(place, None)
        if tokens:
            self.tokens[place] = tokens


PADS, PACKED_ROWS, ALL_LOGITS, SHARED_TOKENS = "pads", "packed_rows", "all_logits", "shared_tokens"
FORMS: Mapping[str, str] = {
    PADS: "Rows that begin have as many pads beside their tokens: neither logits nor states depend on them.",
    PACKED_ROWS: "All rows are one row with boundaries: each has the logits that it has alone.",
    ALL_LOGITS: "The logits behind each token of a row are those of a fresh run over the tokens up to it.",
    SHARED_TOKENS: "Sequences with the same tokens get the same tokens, each of which is processed once: each sequence has got them.",
}
"""What forms of an extension are, by the feature that asks for each. The tokens that sequences have do not depend on the form."""
_COMPARED_AT_AN_END = 4
"""Of the logits behind each token of a row: of the first and of the last tokens, since each takes a fresh run."""


def forms_that_happen(
    forms: Collection[str], rows: Sequence[tuple[int, Tokens]], before: Sequence[Tokens]
) -> set[str]:
    """Those of the forms that an extension of these rows has, by what their sequences had before it."""
    happens = {
        PADS: () in before,
        PACKED_ROWS: len(rows) > 1,
        ALL_LOGITS: any(len(tokens) > 1 for _, tokens in rows),
        SHARED_TOKENS: len(rows) > 1,
    }
    return {form for form in forms if happens.get(form)}


def compared_places(count: int) -> list[int]:
    """Of a row of `count` tokens with the logits behind each, the numbers of the tokens behind which they are compared."""
    ends = {*range(count)[:_COMPARED_AT_AN_END], *range(count)[-_COMPARED_AT_AN_END:]}
    return sorted(ends)


CONTINUATION, BATCH, REUSE, STOP = "continuation", "batch", "reuse", "stop"
"""Beside the names of operations, what logits that are compared with those of a fresh run are evidence of: a sequence that had tokens got more,
a batch had several rows, the library said how many tokens it processed of a sequence that it knew, and generation ended at a stop token."""


@dataclass
class SequenceOrigins:
    """By sequence and saved state, the operations that happened on the way to what it holds.

    Logits of a sequence that agree with a fresh run are evidence that these operations keep the law, and of no other.
    """

    of_places: dict[Place, frozenset[str]] = field(default_factory=dict)
    saved: dict[str, frozenset[str]] = field(default_factory=dict)

    def of(self, place: Place) -> frozenset[str]:
        """The operations on the way to what the sequence there holds."""
        return self.of_places.get(place, frozenset())

    def fork(self, context: int, source: int, target: int) -> None:
        """Source and target go on independently of each other."""
        self.of_places[context, target] = self.of((context, source)) | {"fork"}
        self._add("fork", (context, source))

    def roll_back(self, context: int, sequence: int, n: int) -> None:  # noqa: ARG002 - the arguments of the operation
        """What is left comes from the rollback."""
        self._add("roll_back", (context, sequence))

    def save(self, context: int, sequence: int, name: str) -> None:
        """The sequence goes on, and the saved state may be loaded."""
        self._add("save", (context, sequence))
        self.saved[name] = self.of((context, sequence))

    def load(self, context: int, sequence: int, name: str) -> None:
        """What the sequence had is gone."""
        self.of_places[context, sequence] = self.saved.get(name, frozenset()) | {"load"}

    def refuse_damaged(self, context: int, sequence: int) -> None:
        """The sequence goes on as if nothing had been loaded."""
        self._add("load_damaged", (context, sequence))

    def load_damaged(self, context: int, sequence: int, damage: str, name: str) -> None:  # noqa: ARG002 - as above
        """As a load."""
        self.load(context, sequence, name)
        self._add("load_damaged", (context, sequence))

    def drop(self, context: int, sequence: int) -> None:
        """What begins there reads nothing of the sequence, and all others of the context lose nothing."""
        self.of_places[context, sequence] = frozenset()
        for place in [place for place in self.of_places if place[0] == context]:
            self._add("drop", place)

    def reorder(self, context: int, order: Sequence[int]) -> None:
        """Sequence i holds what `order[i]` held."""
        before = [self.of((context, number)) for number in order]
        for number, operations in enumerate(before):
            self.of_places[context, number] = operations | {"reorder"}

    def generate(self, context: int, sequence: int, *, stopped: bool = False) -> None:
        """The tokens that follow come from generation, which perhaps ended at a stop token."""
        self._add("generate", (context, sequence))
        if stopped:
            self._add(STOP, (context, sequence))

    def cancel(self, context: int, sequence: int) -> None:
        """Nothing of the request is left, where the sequence has lost all tokens, too."""
        self._add("cancel", (context, sequence))

    def extend(self, context: int, sequence: int, forms: Collection[str]) -> None:
        """Tokens came in a batch of these forms."""
        self.of_places[context, sequence] = self.of((context, sequence)) | frozenset(forms)

    def _add(self, operation: str, place: Place) -> None:
        self.of_places[place] = self.of(place) | {operation}


@dataclass(frozen=True)
class SequenceLaws:
    """What a step of a scenario breaks, a sentence for each law."""

    logits: str = law(
        "The logits of a sequence's next token are those of a fresh run over its tokens, however they were processed."
    )
    tokens: str = law("Generated tokens are those that a fresh run over the tokens before them chooses.")
    length: str = law("The library reports as many tokens as a sequence has.")
    reuse: str = law(
        "A library that holds the state after a sequence's first tokens processes the others alone, and a prompt that it has just processed no further back than it says."
    )


def scale(logits: Sequence[float]) -> float:
    """The largest distance of logits from their mean: the unit of all distances between logits."""
    mean = sum(logits) / len(logits)
    return max(abs(one - mean) for one in logits)


def distance(seen: Sequence[float], fresh: Sequence[float]) -> float:
    """The largest difference, as a share of the scale of the fresh ones; infinite where a number is missing or none."""
    if len(seen) != len(fresh) or not all(map(math.isfinite, seen)) or not all(map(math.isfinite, fresh)):
        return math.inf
    if not fresh:
        return 0.0
    largest = max(abs(one - other) for one, other in zip(seen, fresh, strict=True))
    unit = scale(fresh)
    return largest / unit if unit else (math.inf if largest else 0.0)


def is_greedy(token: int, fresh: Sequence[float], tolerance: float) -> bool:
    """Whether a token has the largest logit of a fresh run, or one within the tolerance of it."""
    return 0 <= token < len(fresh) and max(fresh) - fresh[token] <= tolerance * scale(fresh)


def generated_length(tokens: Tokens, n: int, stop: int | None) -> int:
    """How many tokens generation returns that begins with these: `n`, or fewer that end with the first stop token."""
    return min(n, tokens.index(stop) + 1) if stop in tokens else n


def most_processed(known: Tokens, whole: Tokens, again: int) -> int | None:
    """How many tokens a library with the state after `known` processes at most for logits behind `whole`; None where `known` says nothing of that.

    Args:
        again: for tokens that it has processed already, since a state of a fixed size can be kept at few places, and not be taken back.
    """
    if len(known) < len(whole):
        return len(whole) - len(known) if whole[: len(known)] == known else None
    return again if known[: len(whole)] == whole else None


def wrong_lengths(expected: Mapping[Place, int], reported: Mapping[Place, int]) -> list[Place]:
    """Sequences of which the library reports another length than they have; those that it reports."""
    return [place for place, length in sorted(reported.items()) if length != expected.get(place, 0)]
