"""A library of sequences: the logits of a sequence's next token depend only on its tokens, not on how they were processed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from oracle.sequences import BATCH, CONTINUATION, FORMS, REUSE, SHARED_TOKENS, STOP, SequenceTokens
from properties.strategies.sequences import (
    ALL_TOKENS,
    CONTEXTS,
    COPY,
    DROPPED,
    LARGEST_TOKEN,
    LAST_CALL,
    LONGEST,
    OPERATIONS,
    SAVED,
    SEQUENCES,
    SOURCE,
    Again,
    Cancel,
    Drop,
    Extend,
    ForkSequence,
    Generate,
    Grow,
    Load,
    LoadDamaged,
    Reorder,
    RollBack,
    Save,
    SequenceStory,
    sequence_stories,
)
from statecheck.case.values import Name, Record, Returned, call
from statecheck.execution.example import Example
from statecheck.execution.registry import Configuration, prop
from statecheck.reference.situations import put_back

LIBRARY = "Sequences"
# By id: functions, scenarios, what logits that are held against a fresh run have to be evidence of (see `oracle.sequences.SequenceOrigins`), and how
# the configuration differs from others. What was loaded was saved before.
CONFIGURATIONS = (
    Configuration("sequences/pieces", story=sequence_stories(batches=False), situations=(CONTINUATION,),
        reason="also where they came in pieces"),
    Configuration("sequences/batches", story=sequence_stories(), situations=(BATCH,),
        reason="also where other sequences are in the batch"),
    Configuration("sequences/fork", f"{LIBRARY}.fork", story=sequence_stories("fork"), situations=("fork",),
        reason="also where it was forked, or is the fork of another one"),
    Configuration("sequences/roll-back", f"{LIBRARY}.roll_back", story=sequence_stories("roll_back"), situations=("roll_back",),
        reason="also where it was rolled back, or the library refused to"),
    Configuration("sequences/save", f"{LIBRARY}.save", f"{LIBRARY}.load", story=sequence_stories("save"), situations=("load",),
        reason="also where it was saved and loaded, over another one or in another context"),
    Configuration("sequences/load-damaged", f"{LIBRARY}.save", f"{LIBRARY}.load_damaged", story=sequence_stories("load_damaged"), situations=("load_damaged",),
        reason="also where a save was loaded of which a part is missing or changed, or one of another model, which the library refuses"),
    Configuration("sequences/drop", f"{LIBRARY}.drop", story=sequence_stories("drop"), situations=("drop",),
        reason="also where another one was dropped in its place, or beside it"),
    Configuration("sequences/reorder", f"{LIBRARY}.reorder", story=sequence_stories("reorder"), situations=("reorder",),
        reason="also where sequences were reordered, as beams are"),
    Configuration("sequences/generate", f"{LIBRARY}.generate", story=sequence_stories("generate"), situations=("generate",),
        reason="also where the library generated them, with each feature of generation"),
    Configuration("sequences/stop", f"{LIBRARY}.generate", f"{LIBRARY}.{STOP}", story=sequence_stories(STOP), situations=(STOP,),
        reason="also where generation ended at a stop token, behind which tokens were accepted"),
    Configuration("sequences/cancel", f"{LIBRARY}.cancel", story=sequence_stories("cancel"), situations=("cancel",),
        reason="also where a request was cancelled in its place, between two pieces of its prompt or while it generated"),
    Configuration("sequences/again", f"{LIBRARY}.{REUSE}", story=sequence_stories("again", "save", "generate"), situations=(REUSE,),
        reason="also where a library said how much of it was known, which it did not process again"),
    *(
        Configuration(f"sequences/{form.replace('_', '-')}", f"{LIBRARY}.{form}", story=sequence_stories(form, *others),
            situations=(form,), reason=reason)
        for form, reason, *others in (
            ("pads", "also where padding stood beside it", "drop"),
            ("packed_rows", "also where others stood before it in one row", "drop"),
            ("all_logits", "whichever of its tokens they are behind"),
            ("shared_tokens", "also where several sequences had a token processed once", "fork"),
        )
    ),
    Configuration("sequences/any", story=sequence_stories(*OPERATIONS), situations=(CONTINUATION,),
        reason="whatever was done, in whatever order"),
)  # fmt: skip


@prop(CONFIGURATIONS, "history", LIBRARY, device="cpu")
def logits_depend_only_on_the_tokens_of_a_sequence(trial: Example, story: SequenceStory) -> None:
    """The logits of a sequence's next token depend only on its tokens.

    Whatever was done with the sequence and with others, its logits, and the tokens that the library generates, are those of a fresh run
    over its tokens.
    """
    SequenceRun(trial, story).run()


@dataclass(eq=False)
class SequenceRun:
    """A scenario on its way, with the tokens of each sequence."""

    trial: Example
    story: SequenceStory
    model: str = ""
    tokens: SequenceTokens = field(default_factory=SequenceTokens)
    saved: list[tuple[str, int]] = field(default_factory=list)
    """Names and lengths of what was saved."""
    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The sequences that SAVED, COPY, SOURCE and DROPPED stand for."""
    last_call: dict[tuple[int, int], int] = field(default_factory=dict)
    """By sequence, how many tokens it got last."""

    def run(self) -> None:
        choices = self.trial.sequences
        self.model = self.trial.model(self.story.model)
        features = choices.features(self.model, "new", self.story.features)
        self.trial.agrees(call(LIBRARY, model=self.model, seed=0, features=features, bind="library"))
        operations: dict[type, tuple[str, Callable[[Any], None]]] = {
            Extend: ("extend", self.extend),
            Grow: ("extend", self.grow),
            Again: ("roll_back", self.again),
            ForkSequence: ("fork", self.fork),
            RollBack: ("roll_back", self.roll_back),
            Save: ("save", self.save),
            Load: ("load", self.load),
            LoadDamaged: ("load_damaged", self.load_damaged),
            Drop: ("drop", self.drop),
            Reorder: ("reorder", self.reorder),
            Generate: ("generate", self.generate),
            Cancel: ("cancel", self.cancel),
        }
        for event in self.story.operations:
            function, happens = operations[type(event)]
            # What a port lacks ends no scenario that has other operations.
            if choices.offers(function):
                happens(event)
        # One more token for each sequence, so that a state that is wrong shows.
        for context in range(CONTEXTS):
            for number in [number for owner, number in self.lengths if owner == context]:
                self.take("extend", context=context, rows=[(number, (1,))], features={})

    def extend(self, event: Extend) -> None:
        """Rows are cut where a sequence would be too long."""
        room = {
            number: LONGEST - 1 - self.lengths.get((event.context, number), 0) for number, _ in event.rows
        }
        rows = [(number, tokens[: room[number]]) for number, tokens in event.rows if room[number] > 0]
        if rows:
            forms = dict(event.forms)
            if SHARED_TOKENS in forms:
                has = [self.tokens.of((event.context, number)) for number, _ in rows]
                rows = [
                    (number, rows[0][1])
                    for (number, _), tokens in zip(rows, has, strict=True)
                    if tokens == has[0]
                ]
            features = self.trial.sequences.features(self.model, "extend", event.features, FORMS) | forms
            self.take("extend", context=event.context, rows=rows, features=features)
            for number, tokens in rows:
                self.last_call[event.context, number] = len(tokens)

    def grow(self, event: Grow) -> None:
        context, number = self.places.get(event.sequence, (0, max(event.sequence, 0)))
        lengths = [*(length for _, length in reversed(self.saved[-1:])), *self.lengths.values()]
        wanted = min(lengths[event.like % len(lengths)] + event.more, LONGEST - 1) if lengths else 0
        has = self.lengths.get((context, number), 0)
        if has > wanted and self.trial.sequences.offers("drop"):
            self.take("drop", context=context, sequence=number)
            has = 0
        if wanted > has:
            tokens = tuple((5 * at + number) % LARGEST_TOKEN + 1 for at in range(has, wanted))
            self.extend(Extend(((number, tokens),), context))

    def again(self, event: Again) -> None:
        features = self.trial.sequences.features(self.model, "extend", event.features, FORMS)
        for context, sequence in self.of(event.sequence):
            last = self.tokens.of((context, sequence))[-1]
            if self.take("roll_back", context=context, sequence=sequence, n=1)["happened"]:
                rows = [(sequence, (last,))]
                self.take("extend", context=context, rows=rows, features=features)

    def fork(self, event: ForkSequence) -> None:
        for context, source in self.of(event.source):
            if source != event.target:
                self.take("fork", context=context, source=source, target=event.target)
                self.places |= {COPY: (context, event.target), SOURCE: (context, source)}

    def roll_back(self, event: RollBack) -> None:
        for context, sequence in self.of(event.sequence):
            length = self.lengths[context, sequence]
            beside = {LAST_CALL: self.last_call.get((context, sequence), 1), ALL_TOKENS: length}
            n = beside[event.beside] + event.more if event.beside else 1 + event.more % length
            self.take("roll_back", context=context, sequence=sequence, n=max(1, min(n, length)))

    def save(self, event: Save) -> None:
        for context, sequence in self.of(event.sequence):
            name, length = f"saved {len(self.saved)}", self.lengths[context, sequence]
            if self.take("save", context=context, sequence=sequence, name=name)["happened"]:
                self.saved.append((name, length))
                self.places[SAVED] = (context, sequence)

    def load(self, event: Load) -> None:
        if self.saved:
            # The oldest stays the oldest where saves go away in shrinking.
            name, _ = self.saved[-1 - min(event.saved, len(self.saved) - 1)]
            context, target = self.places.get(event.target, (event.context, max(event.target, 0)))
            self.take("load", context=context, sequence=target, name=name)

    def load_damaged(self, event: LoadDamaged) -> None:
        if self.saved:
            name, _ = self.saved[-1 - min(event.saved, len(self.saved) - 1)]
            context, target = self.places.get(event.target, (event.context, max(event.target, 0)))
            damages = self.trial.sequences.damages
            damage = damages[event.damage % len(damages)]
            self.take("load_damaged", context=context, sequence=target, damage=damage, name=name)

    def drop(self, event: Drop) -> None:
        for context, sequence in self.of(event.sequence):
            self.take("drop", context=context, sequence=sequence)
            self.places[DROPPED] = (context, sequence)

    def reorder(self, event: Reorder) -> None:
        """An order of all sequences without a repetition is one of those that have tokens, where these are the first ones."""
        for context, _ in self.of(0):
            numbers = sorted(number for owner, number in self.lengths if owner == context)
            if len(set(event.order)) < SEQUENCES:
                self.take("reorder", context=context, order=event.order)
            elif numbers == [*range(len(numbers))]:
                order = tuple(number for number in event.order if number in numbers)
                self.take("reorder", context=context, order=order)

    def generate(self, event: Generate) -> None:
        for context, sequence in self.of(event.sequence):
            n = min(1 + event.more, LONGEST - 1 - self.lengths[context, sequence])
            features = self.trial.sequences.features(self.model, "generate", event.features)
            stop = {"stop": event.stop} if event.stop and self.trial.sequences.offers(STOP) else {}
            if n > 0:
                self.take("generate", context=context, sequence=sequence, n=n, features=features, **stop)

    def cancel(self, event: Cancel) -> None:
        tokens = event.tokens[: LONGEST - 1 - self.lengths.get((0, event.sequence), 0)]
        if tokens:
            self.take("cancel", context=0, sequence=event.sequence, tokens=tokens, after=event.after)

    def of(self, count: int) -> list[tuple[int, int]]:
        """Context and number of the sequence with tokens that has this count, or that SAVED and others stand for; nothing where all are empty."""
        if self.places.get(count) in self.lengths:
            return [self.places[count]]
        places = list(self.lengths)
        return [places[count % len(places)]] if places else []

    def take(self, name: str, /, **arguments: Any) -> Record:
        """Make a call, which breaks no law, or else the scenario ends here."""
        outcome = self.trial.agrees(call(f"{LIBRARY}.{name}", self=Name("library"), **arguments))
        assert isinstance(outcome, Returned)
        step: Record = outcome.value
        effects: Any = step["effects"]
        held: Any = step["held"]
        put_back(effects)
        self.trial.reached(*held)
        self._follow(name, step, **arguments)
        return step

    def _follow(self, name: str, step: Any, /, *, context: int, **arguments: Any) -> None:
        arguments.pop("features", None)
        lengths = {(owner, number): count for owner, number, count in step["lengths"]}
        length = lengths.get((context, arguments.get("sequence")))
        if name == "extend":
            self.tokens.extend(context, arguments["rows"])
        elif name == "generate":
            self.tokens.generate(context, arguments["sequence"], step["generated"], length)
        elif name == "cancel" and step["happened"]:
            self.tokens.cancel(context, arguments["sequence"], arguments["tokens"], length)
        elif step["happened"]:
            getattr(self.tokens, name)(context, **arguments)

    @property
    def lengths(self) -> dict[tuple[int, int], int]:
        """Of the sequences that have tokens, by context and number."""
        return self.tokens.lengths()
