"""A library of sequences: the logits of a sequence's next token depend only on its tokens, not on how they were processed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from oracle.sequences import BATCH, CONTINUATION
from oracle.situations.registry import put_back
from properties.strategies.sequences import (
    ALL_TOKENS,
    CONTEXTS,
    COPY,
    DROPPED,
    LARGEST_TOKEN,
    LAST_CALL,
    LONGEST,
    SAVED,
    SOURCE,
    Drop,
    Extend,
    ForkSequence,
    Generate,
    Grow,
    Load,
    Reorder,
    RollBack,
    Save,
    SequenceStory,
    every_sequence_story,
    sequence_stories,
)
from statecheck.case.values import Name, Record, Returned, call
from statecheck.execution.example import Example
from statecheck.execution.registry import prop

LIBRARY = "Sequences"
_FUNCTIONS: dict[type, str] = {Grow: "extend"}
"""The port's functions that operations of scenarios need, where they have other names."""


@dataclass(eq=False)
class SequenceRun:
    """A scenario on its way: the number of tokens of each sequence that has any, by context and number."""

    trial: Example
    story: SequenceStory
    model: str = ""
    lengths: dict[tuple[int, int], int] = field(default_factory=dict)
    saved: list[tuple[str, int]] = field(default_factory=list)
    """Names and lengths of what was saved."""
    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    """What SAVED, COPY, SOURCE and DROPPED stand for."""
    last_call: dict[tuple[int, int], int] = field(default_factory=dict)
    """By sequence, how many tokens it got last."""

    def run(self) -> None:
        choices = self.trial.sequences
        self.model = self.trial.model(self.story.model)
        features = choices.features(self.model, "new", self.story.features)
        self.trial.agrees(call(LIBRARY, model=self.model, seed=0, features=features, bind="library"))
        happen: dict[type, Callable[[Any], None]] = {
            Extend: self.extend,
            Grow: self.grow,
            ForkSequence: self.fork,
            RollBack: self.roll_back,
            Save: self.save,
            Load: self.load,
            Drop: self.drop,
            Reorder: self.reorder,
            Generate: self.generate,
        }
        for operation in self.story.operations:
            # What a port lacks ends no scenario that has other operations.
            if choices.offers(_FUNCTIONS.get(type(operation), happen[type(operation)].__name__)):
                happen[type(operation)](operation)
        self.go_on()

    def extend(self, event: Extend) -> None:
        """Rows are cut where a sequence would be too long."""
        room = {
            number: LONGEST - 1 - self.lengths.get((event.context, number), 0) for number, _ in event.rows
        }
        rows = [(number, tokens[: room[number]]) for number, tokens in event.rows if room[number] > 0]
        if rows:
            features = self.trial.sequences.features(self.model, "extend", event.features)
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
            name, _ = self.saved[-1 - event.saved % len(self.saved)]
            context, target = self.places.get(event.target, (event.context, max(event.target, 0)))
            self.take("load", context=context, sequence=target, name=name)

    def drop(self, event: Drop) -> None:
        for context, sequence in self.of(event.sequence):
            self.take("drop", context=context, sequence=sequence)
            self.places[DROPPED] = (context, sequence)

    def reorder(self, event: Reorder) -> None:
        for context, _ in self.of(0):
            self.take("reorder", context=context, order=event.order)

    def generate(self, event: Generate) -> None:
        for context, sequence in self.of(event.sequence):
            n = min(1 + event.more, LONGEST - 1 - self.lengths[context, sequence])
            features = self.trial.sequences.features(self.model, "generate", event.features)
            if n > 0:
                self.take("generate", context=context, sequence=sequence, n=n, features=features)

    def go_on(self) -> None:
        """One more token for each sequence, so that a state that is wrong shows."""
        for context in range(CONTEXTS):
            for number in [number for one, number in self.lengths if one == context]:
                self.take("extend", context=context, rows=[(number, (1,))], features={})

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
        put_back(effects)
        self.lengths = {(context, number): count for context, number, count in step["lengths"]}
        return step


def _run(trial: Example, story: SequenceStory) -> None:
    SequenceRun(trial, story).run()


@prop(
    "sequences/pieces",
    "history",
    LIBRARY,
    device="cpu",
    held=(CONTINUATION,),
    story=sequence_stories(most_rows=1),
)
def test_logits_do_not_depend_on_the_pieces_in_which_tokens_come(
    trial: Example, story: SequenceStory
) -> None:
    """Logits do not depend on the pieces in which tokens come.

    The logits behind tokens that came in pieces are those of a fresh run over all of them.
    """
    _run(trial, story)


@prop("sequences/batches", "history", LIBRARY, device="cpu", held=(BATCH,), story=sequence_stories())
def test_logits_do_not_depend_on_other_sequences_in_the_batch(trial: Example, story: SequenceStory) -> None:
    """Logits do not depend on other sequences in the batch.

    The logits of each row of a batch are those of a fresh run over the tokens of its sequence alone.
    """
    _run(trial, story)


@prop("sequences/fork", "history", LIBRARY, device="cpu", held=("fork",), story=sequence_stories("fork"))
def test_a_forked_sequence_goes_on_as_its_source_would(trial: Example, story: SequenceStory) -> None:
    """A forked sequence goes on as its source would.

    A sequence that was forked, and its source, go on independently of each other, each as a fresh run over its tokens.
    """
    _run(trial, story)


@prop(
    "sequences/roll-back",
    "history",
    LIBRARY,
    device="cpu",
    held=("roll_back",),
    story=sequence_stories("roll_back"),
)
def test_a_sequence_rolled_back_goes_on_as_if_the_tokens_had_not_come(
    trial: Example, story: SequenceStory
) -> None:
    """A sequence rolled back goes on as if the tokens had not come.

    After a rollback that the library reports as done, nothing is left of the tokens taken back; after one that it refuses,
    nothing has changed.
    """
    _run(trial, story)


@prop(
    "sequences/save", "history", LIBRARY, device="cpu", held=("save", "load"), story=sequence_stories("save")
)
def test_a_loaded_sequence_goes_on_as_the_saved_one_would(trial: Example, story: SequenceStory) -> None:
    """A loaded sequence goes on as the saved one would.

    A sequence that was saved and loaded, over another one or in another context, goes on as a fresh run over its tokens.
    """
    _run(trial, story)


@prop("sequences/drop", "history", LIBRARY, device="cpu", held=("drop",), story=sequence_stories("drop"))
def test_a_sequence_that_was_dropped_leaves_nothing_behind(trial: Example, story: SequenceStory) -> None:
    """A sequence that was dropped leaves nothing behind.

    A sequence that begins where another one was dropped reads nothing of it, and its neighbours lose nothing.
    """
    _run(trial, story)


@prop(
    "sequences/reorder",
    "history",
    LIBRARY,
    device="cpu",
    held=(CONTINUATION, "reorder"),
    story=sequence_stories("reorder"),
)
def test_reordered_sequences_go_on_as_those_that_they_come_from(trial: Example, story: SequenceStory) -> None:
    """Reordered sequences go on as those that they come from.

    After a reordering, as beams do it, each sequence goes on as a fresh run over the tokens that it has now.
    """
    _run(trial, story)


@prop(
    "sequences/generate",
    "history",
    LIBRARY,
    device="cpu",
    held=("generate",),
    story=sequence_stories("generate"),
)
def test_generated_tokens_are_those_of_fresh_runs(trial: Example, story: SequenceStory) -> None:
    """Generated tokens are those of fresh runs.

    Each generated token is the one that a fresh run over all tokens before it chooses, with every feature of generation.
    """
    _run(trial, story)


@prop("sequences/any", "history", LIBRARY, device="cpu", held=(CONTINUATION,), story=every_sequence_story())
def test_logits_depend_on_the_tokens_of_a_sequence_only(trial: Example, story: SequenceStory) -> None:
    """Logits depend on the tokens of a sequence only.

    Whatever happens to sequences and in whatever order, the logits of the next token are those of a fresh run over the tokens.
    """
    _run(trial, story)
