"""A scenario on a library: each operation is held against the law of sequences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from oracle.sequences import (
    ALL_LOGITS,
    BATCH,
    CONTINUATION,
    FORMS,
    REUSE,
    STOP,
    Place,
    SequenceLaws,
    SequenceOrigins,
    SequenceTokens,
    Tokens,
    compared_places,
    forms_that_happen,
    generated_length,
    is_greedy,
    most_processed,
    wrong_lengths,
)
from statecheck.case.values import Record, record
from statecheck.sequences import OPERATIONS
from statecheck.subject.subject import NotOffered
from subjects.sequences.library import Handle, Library
from subjects.sequences.reference import Reference
from subjects.sequences.serving import FAILED

_LONGEST = 12
_OTHER_WEIGHTS = (1, 2)
"""By how much the seeds of other weights are larger."""
OTHER_PROCESS = 2
"""The number of the context that is in another process of the model's, where models have processes."""


class Sequences:
    """Contexts of a model, and the tokens that their sequences have by the rules.

    Args:
        model: a name of the port's.
        seed: of the weights.
        features: those of `new`; a feature that is not named has its default.

    Raises:
        NotOffered: the library has no such model, or not with these features, or its weights hide the state.
    """

    library: ClassVar[Library]
    stop: ClassVar[str] = STOP
    """Generation takes stop tokens, where that of the port does."""

    def __init__(self, model: str, seed: int, features: Mapping[str, Any]) -> None:
        self.model, self.features = model, dict(features)
        self.tokens, self.origins = SequenceTokens(), SequenceOrigins()
        self.library.begin(model)
        self.library.require_listed_features(model)
        self.library.require_features(model, "new", self.features)
        self.reference = Reference(self.library, model, seed, self.features)
        self.reference.require_verified()
        self._contexts: dict[int, Handle] = {}
        self._effects: dict[int, Mapping[str, int]] = {}
        self._history: list[tuple[str, int, tuple[Any, ...], Mapping[str, Any]]] = []
        """Operations so far: name, context, arguments and features."""
        self._seed = seed
        self._context(0)

    def extend(
        self, context: int, rows: Sequence[tuple[int, Sequence[int]]], features: Mapping[str, Any]
    ) -> Record:
        """Process tokens of several sequences in one batch."""
        given = [(number, list(tokens)) for number, tokens in rows]
        self.library.require_features(self.model, "extend", features)
        logits = self._call("extend", context, given, **features)
        if logits is FAILED:
            raise ValueError("extend = False, but should be logits (docs/sequences.md)")
        forms = {name for name, value in features.items() if name in FORMS and value}
        new = [(number, tuple(tokens)) for number, tokens in given]
        held = self._held_by_rows(context, new, forms)
        whole = self.tokens.extend(context, new, forms)
        far = [
            (self.reference.distance(tokens, seen, features), number, tokens, at)
            for (number, row), behind, returned in zip(new, whole, logits, strict=True)
            for tokens, seen, at in _compared(row, behind, returned, every=ALL_LOGITS in forms)
        ]
        largest, number, tokens, _ = max(far)
        said = ""
        over = [entry for entry in far if entry[0] > self.reference.tolerance]
        if over and self._are_of_these_weights(over, features):
            held = set()
        elif over:
            said = (
                f"sequence {number} with tokens {_brief(tokens)}: logits differ by {largest:.3g} of their scale from a fresh run's,"
                f" more than {self.reference.tolerance:g}"
            )
        numbers = [number for number, _ in new]
        again = self._processed_again(context, list(zip(numbers, whole, strict=True)), held)
        return self._step(context, numbers, largest=largest, logits=said, reuse=again, held=held)

    def reuse(self, context: int, sequence: int) -> tuple[Sequence[int], int] | None:
        """The tokens of which the library had the state before its last call for the sequence, and how many tokens it processed; None where it need not have them."""
        reported: tuple[Sequence[int], int] | None = self._call("reuse", context, sequence)
        return reported

    def _processed_again(self, context: int, rows: Sequence[tuple[int, Tokens]], held: set[str]) -> str:
        """A row of which the library processed more tokens than it had to, by what it held of them."""
        for number, tokens in rows if self.library.offers("reuse") else ():
            reported = self.reuse(context, number)
            known, processed = reported or ((), 0)
            most = most_processed(tuple(known), tokens, self.library.port.again) if reported else None
            held |= {REUSE} if most is not None else set()
            if most is not None and processed > most:
                return f"sequence {number}: {processed} of {len(tokens)} tokens were processed, at most {most} with the state after {len(known)} tokens at hand"
        return ""

    def _are_of_these_weights(
        self, over: Sequence[tuple[float, int, Tokens, int | None]], features: Mapping[str, Any]
    ) -> bool:
        """Whether all differences come from a router that takes another expert, since two of them are equally good but for rounding.

        No tolerance covers that: the logits jump. It is a matter of the weights, and a wrong state is not. So the operations are repeated with other weights, where the port
        says that the model chooses experts. A difference that shows there, too, or that is gone with the same weights, is a failure; so is any failure of a repetition.
        """
        generates = any(name == "generate" for name, *_ in self._history)
        if generates or not self.library.chooses_experts(self.model):
            return False
        with suppress(Exception):
            return all(
                [
                    distance > self.reference.tolerance
                    for distance in self._distances_with(seed, over, features)
                ]
                == [seed == self._seed] * len(over)
                for seed in (self._seed, *(self._seed + more for more in _OTHER_WEIGHTS))
            )
        return False

    def _distances_with(
        self, seed: int, rows: Sequence[tuple[float, int, Tokens, int | None]], features: Mapping[str, Any]
    ) -> list[float]:
        """The distances of the rows' logits after the same operations, with weights of the seed."""
        contexts: dict[int, Handle] = {}
        seen: dict[int, Any] = {}
        for name, context, arguments, given in self._history:
            if context not in contexts:
                process = int(context == OTHER_PROCESS)
                contexts[context] = self.library.new(self.model, seed, self.features, process)
            # What is saved now must not take the place of what the scenario has saved.
            own_name = (
                (f"{arguments[-1]} with weights of seed {seed}",)
                if name in ("save", "load", "load_damaged")
                else ()
            )
            own = arguments[: len(arguments) - len(own_name)] + own_name
            result = self.library.call(self.model, name, contexts[context], *own, **given)
            if name == "extend":
                seen = dict(zip((row for row, _ in arguments[0]), result, strict=True))
        for handle in contexts.values():
            self.library.call(self.model, "close", handle)
        reference = Reference(self.library, self.model, seed, self.features)
        return [
            reference.distance(tokens, seen[number] if at is None else seen[number][at], features)
            for _, number, tokens, at in rows
        ]

    def _held_by_rows(
        self, context: int, rows: Sequence[tuple[int, Tokens]], forms: Collection[str]
    ) -> set[str]:
        """Evidence in the logits of a batch, before its tokens count."""
        happened = forms_that_happen(forms, rows, [self.tokens.of((context, number)) for number, _ in rows])
        held = {*happened}
        for number, _ in rows:
            place = context, number
            # An empty sequence has nothing that an order could mix up.
            held |= (
                self.origins.of(place) | {CONTINUATION}
                if self.tokens.of(place)
                else self.origins.of(place) - {"reorder"}
            )
            self.origins.extend(context, number, happened)
        return held | ({BATCH} if len(rows) > 1 else set())

    def fork(self, context: int, source: int, target: int) -> Record:
        """Copy a sequence."""
        return self._happens("fork", context, source, target, changed=(source, target))

    def roll_back(self, context: int, sequence: int, n: int) -> Record:
        """Take tokens back."""
        return self._happens("roll_back", context, sequence, n, changed=(sequence,))

    def save(self, context: int, sequence: int, name: str) -> Record:
        """Save a sequence under a name."""
        return self._happens("save", context, sequence, name, changed=(sequence,))

    def load(self, context: int, sequence: int, name: str) -> Record:
        """Load what was saved."""
        return self._happens("load", context, sequence, name, changed=(sequence,))

    def load_damaged(self, context: int, sequence: int, damage: str, name: str) -> Record:
        """Load a damaged copy of what was saved, which the library refuses, or has enough with."""
        step = self._happens("load_damaged", context, sequence, damage, name, changed=(sequence,))
        if not step["happened"]:
            self.origins.refuse_damaged(context, sequence)
        return step

    def drop(self, context: int, sequence: int) -> Record:
        """Empty a sequence."""
        return self._happens("drop", context, sequence, changed=(sequence,))

    def reorder(self, context: int, order: Sequence[int]) -> Record:
        """Let each sequence go on with what another has."""
        return self._happens("reorder", context, tuple(order), changed=tuple(range(len(order))))

    def cancel(self, context: int, sequence: int, tokens: Sequence[int], after: int) -> Record:
        """Have a request for further tokens cancelled when it has made `after` steps."""
        if self._call("cancel", context, sequence, list(tokens), after) is FAILED:
            return self._step(context, [sequence], happened=False)
        length = self._length_or_drop(context, sequence)
        self.tokens.cancel(context, sequence, tuple(tokens), length)
        self.origins.cancel(context, sequence)
        return self._step(context, [sequence])

    def generate(
        self, context: int, sequence: int, n: int, features: Mapping[str, Any], stop: int = 0
    ) -> Record:
        """Have the library choose tokens, up to a stop token: that which a fresh run chooses as number `stop`, counted from 1; 0 for none."""
        before = self.tokens.of((context, sequence))
        self.library.require_features(self.model, "generate", features)
        ends = {"stop": self.reference.greedy(before, stop)[-1]} if stop else {}
        said = self._call("generate", context, sequence, n, **features, **ends)
        if said is FAILED:
            raise ValueError("generate = False, but should be tokens (docs/sequences.md)")
        tokens = tuple(said)
        wrong = self._wrong_tokens(before, tokens, n, features, ends)
        held = {CONTINUATION, "generate", *self.origins.of((context, sequence))}
        again = self._processed_again(context, [(sequence, before)], held)
        try:
            length = self._length_or_drop(context, sequence)
        except NotOffered:
            # That the tokens are wrong does not depend on what the port lacks.
            if not wrong:
                raise
            length = None
        self.tokens.generate(context, sequence, tokens, length)
        self.origins.generate(context, sequence, stopped=len(tokens) < n)
        return self._step(context, [sequence], tokens=wrong, reuse=again, generated=tokens, held=held)

    def _length_or_drop(self, context: int, sequence: int) -> int | None:
        """The length that the library reports; where it reports none, the sequence is dropped."""
        length = self._reported(context, [sequence]).get((context, sequence))
        if length is None:
            self._call("drop", context, sequence)
        return length

    def _wrong_tokens(
        self, before: Tokens, tokens: Tokens, n: int, features: Mapping[str, Any], ends: Mapping[str, int]
    ) -> str:
        length = generated_length(tokens, n, ends.get("stop"))
        if len(tokens) != length:
            named = "".join(f" with stop token {token}" for token in ends.values())
            return f"{len(tokens)} tokens{named}, but should be {length}"
        wanted = self.reference.generated(before, n, features, ends)
        if wanted is not None:
            return "" if wanted == tokens else f"{list(tokens)}, but a fresh run generates {list(wanted)}"
        for at, token in enumerate(tokens):
            fresh = self.reference.logits((*before, *tokens[:at]), features)
            if not is_greedy(token, fresh, self.reference.tolerance):
                best = max(range(len(fresh)), key=fresh.__getitem__)
                return f"token {at} is {token}, but a fresh run over what stands before it chooses {best}"
        return ""

    def _happens(self, name: str, context: int, *arguments: Any, changed: Sequence[int]) -> Record:
        """An operation without logits; one that reports failure has changed nothing."""
        given = [list(value) if isinstance(value, tuple) else value for value in arguments]
        happened = self._call(name, context, *given) is not FAILED
        if happened:
            getattr(self.tokens, name)(context, *arguments)
            getattr(self.origins, name)(context, *arguments)
        return self._step(context, changed, happened=happened)

    def _step(
        self,
        context: int,
        changed: Sequence[int],
        *,
        happened: bool = True,
        largest: float = 0.0,
        **seen: Any,
    ) -> Record:
        wrong = wrong_lengths(self.tokens.lengths(), reported := self._reported(context, changed))
        length = ""
        if wrong:
            place = wrong[0]
            has = len(self.tokens.of(place))
            length = f"sequence {place[1]} has {has} tokens, but the library reports {reported[place]}"
        laws = {"length": length} | {name: seen.get(name) for name in ("logits", "tokens", "reuse")}
        broken = record(
            "SequenceLaws", **vars(SequenceLaws()) | {name: said for name, said in laws.items() if said}
        )
        lengths = tuple((*place, count) for place, count in self.tokens.lengths().items())
        generated = tuple(seen.get("generated", ()))
        return record(
            "SequenceStep",
            broken=broken,
            happened=happened,
            lengths=lengths,
            distance=largest,
            generated=generated,
            held=tuple(sorted(seen.get("held", ()))),
            effects=self._new_effects(context),
        )

    def _new_effects(self, context: int) -> tuple[str, ...]:
        """Names of what features of the port have done since the last call in this context.

        Raises:
            ValueError: `EFFECTS` of the port has no such name.
        """
        if not self.library.offers("effects"):
            return ()
        counts, before = self._call("effects", context), self._effects.get(context, {})
        self._effects[context] = counts
        for name in counts:
            if name not in self.library.port.effects:
                raise ValueError(
                    f"effects = {name!r}, but should be one of {list(self.library.port.effects)} (docs/sequences.md)"
                )
        return tuple(sorted(name for name, count in counts.items() if count > before.get(name, 0)))

    def _reported(self, context: int, numbers: Sequence[int]) -> dict[Place, int]:
        if not self.library.offers("length"):
            return {}
        try:
            return {
                (context, number): self._call("length", context, number) for number in sorted(set(numbers))
            }
        except NotOffered:
            return {}

    def _call(self, name: str, context: int, *arguments: Any, **features: Any) -> Any:
        if name in OPERATIONS:
            self._history.append((name, context, arguments, features))
        return self.library.call(self.model, name, self._context(context), *arguments, **features)

    def _context(self, number: int) -> Handle:
        if number not in self._contexts:
            process = int(number == OTHER_PROCESS)
            self._contexts[number] = self.library.new(self.model, self._seed, self.features, process)
        return self._contexts[number]


def _compared(
    row: Tokens, whole: Tokens, returned: Any, *, every: bool
) -> Iterator[tuple[Tokens, Any, int | None]]:
    """Of a row's logits those that are compared, each with the tokens before it, and with the number of its token where there are logits behind every token.

    Raises:
        ValueError: the port returned as many logits as the row does not have.
    """
    if not every:
        yield whole, returned, None
        return
    if len(returned) != len(row):
        raise ValueError(
            f"extend = logits behind {len(returned)} tokens, but should be behind {len(row)} (docs/sequences.md)"
        )
    for at in compared_places(len(row)):
        yield whole[: len(whole) - len(row) + at + 1], returned[at], at


def _brief(tokens: Tokens) -> str:
    shown = ", ".join(map(str, tokens[:_LONGEST]))
    return f"[{shown}{f', and {len(tokens) - _LONGEST} more' if len(tokens) > _LONGEST else ''}]"
