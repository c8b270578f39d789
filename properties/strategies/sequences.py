"""Scenarios of a library of sequences: operations as data, with small numbers that stand for what there is at that time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from hypothesis import strategies as st

from oracle.sequences import ALL_LOGITS, PACKED_ROWS, PADS, SHARED_TOKENS, STOP

Numbers = tuple[int, ...]
Features = tuple[tuple[int, int], ...]
"""Pairs of numbers: of a feature, and of one of its values beside the default."""
SEQUENCES, CONTEXTS, LONGEST = 4, 3, 96
LARGEST_TOKEN = 15
SAVED, COPY, SOURCE, DROPPED = -1, -2, -3, -4
"""In place of a sequence's number: the sequence that was saved last, target and source of the last fork, and the sequence that was dropped last."""
LAST_CALL, ALL_TOKENS = "last call", "all tokens"
"""Lengths that the length of a rollback is drawn beside: the tokens of the last call for the sequence, and all of its tokens."""


@dataclass(frozen=True)
class Extend:
    """Rows of a batch: the sequence's number, and tokens."""

    rows: tuple[tuple[int, Numbers], ...]
    context: int = 0
    features: Features = ()
    forms: tuple[tuple[str, int], ...] = ()
    """Forms with their values, see `oracle.sequences.FORMS`."""


@dataclass(frozen=True)
class Grow:
    """`sequence` gets tokens until it is `more` tokens longer than what `like` counts: what was saved last, and the sequences that have tokens.

    Where it is longer already, it is dropped first.
    """

    sequence: int
    like: int
    more: int


@dataclass(frozen=True)
class ForkSequence:
    """`source` counts the sequences that have tokens."""

    source: int
    target: int


@dataclass(frozen=True)
class RollBack:
    """`more + 1` tokens of the sequence that `sequence` counts; or, `more` tokens more than `beside` says. Never more tokens than there are."""

    sequence: int
    more: int
    beside: str = ""


@dataclass(frozen=True)
class Save:
    """`sequence` counts the sequences that have tokens."""

    sequence: int


@dataclass(frozen=True)
class Load:
    """`saved` counts what was saved, the latest first."""

    saved: int
    target: int
    context: int = 0


@dataclass(frozen=True)
class LoadDamaged:
    """A save, with the damage that `damage` counts of those that the library can see; `saved` and `target` as of `Load`."""

    saved: int
    target: int
    damage: int
    context: int = 0


@dataclass(frozen=True)
class Drop:
    """`sequence` counts the sequences that have tokens."""

    sequence: int


@dataclass(frozen=True)
class Reorder:
    """Sequence i has what sequence `order[i]` had; an order of all sequences without a repetition stands for those that have tokens."""

    order: Numbers


@dataclass(frozen=True)
class Generate:
    """`sequence` counts the sequences that have tokens, and `stop` the tokens that a fresh run chooses: the stop token is one of them; 0 for none."""

    sequence: int
    more: int
    features: Features = ()
    stop: int = 0


@dataclass(frozen=True)
class Cancel:
    """A request for further tokens of the sequence with this number, which is cancelled after some steps."""

    sequence: int
    tokens: Numbers
    after: int


@dataclass(frozen=True)
class Again:
    """The last token of the sequence that `sequence` counts is taken back, and comes again: what a prompt that is sent twice is to a server."""

    sequence: int
    features: Features = ()


Operation = (
    Again
    | Cancel
    | Extend
    | Grow
    | ForkSequence
    | RollBack
    | Save
    | Load
    | LoadDamaged
    | Drop
    | Reorder
    | Generate
)


@dataclass(frozen=True)
class SequenceStory:
    """A scenario: a model by its number among the library's, values of features by theirs, and operations."""

    model: int
    features: Features
    operations: tuple[Operation, ...]


Operations = tuple[Operation, ...]


_BESIDE = st.integers(-1, 1)
"""Lengths are drawn equal to a length that matters, one less and one more: libraries take the equal case, or one of the others, for another."""


def _each(operation: st.SearchStrategy[Operation]) -> st.SearchStrategy[Operations]:
    return st.tuples(operation)


def _grows(sequence: int) -> st.SearchStrategy[Operation]:
    return st.builds(Grow, st.just(sequence), st.integers(0, 3), _BESIDE)


_SEQUENCE, _TOKEN = st.integers(0, SEQUENCES - 1), st.integers(1, LARGEST_TOKEN)
_FEATURE = st.tuples(st.integers(0, 15), st.integers(0, 3))
_FEATURES = st.one_of(st.lists(_FEATURE, max_size=2), st.lists(_FEATURE, min_size=3, max_size=12)).map(tuple)
"""One or two features, since many of them refuse each other; or many, since some take effect with others only, as neighbours in a batch do."""
_FEW_TOKENS = st.lists(_TOKEN, min_size=1, max_size=6).map(tuple)
_MANY_TOKENS = st.builds(
    lambda first, length: tuple((first + 7 * at) % LARGEST_TOKEN + 1 for at in range(length)),
    st.integers(0, LARGEST_TOKEN - 1),
    st.integers(1, 80),
)
_TOKENS = st.one_of(_FEW_TOKENS, _FEW_TOKENS, _MANY_TOKENS)
"""Few tokens of any kind, or more than libraries process in one piece."""


def _rows(least: int) -> st.SearchStrategy[tuple[tuple[int, Numbers], ...]]:
    row = st.tuples(_SEQUENCE, _TOKENS)
    return st.lists(row, min_size=least, max_size=SEQUENCES, unique_by=lambda drawn: drawn[0]).map(tuple)


_ROWS = _rows(1)
_ROWS_ALIKE = st.builds(
    lambda count, width, first: tuple(
        (number, tuple((first + 3 * number + 7 * at) % LARGEST_TOKEN + 1 for at in range(width)))
        for number in range(count)
    ),
    st.integers(1, SEQUENCES),
    st.integers(1, 2),
    st.integers(0, LARGEST_TOKEN - 1),
)
"""Rows of the first sequences, all as long, as when a server decodes: what is taken for another row is as long as that."""


def _extends(contexts: int) -> st.SearchStrategy[Operation]:
    rows = st.one_of(_ROWS, _ROWS, _ROWS_ALIKE)
    return st.builds(Extend, rows, st.integers(0, contexts - 1), _FEATURES)


def _of_form(form: str, values: st.SearchStrategy[int], least: int = 1) -> st.SearchStrategy[Operations]:
    """Extensions of a form."""
    forms = values.map(lambda value: ((form, value),))
    return _each(st.builds(Extend, _rows(least), st.just(0), _FEATURES, forms))


FORM_EXTENDS: dict[str, st.SearchStrategy[Operations]] = {
    PADS: _of_form(PADS, st.sampled_from((1, 4))),
    PACKED_ROWS: _of_form(PACKED_ROWS, st.just(True), 2),
    ALL_LOGITS: _of_form(ALL_LOGITS, st.just(True)),
    # Of sequences with the same tokens: the property leaves out the others, and gives all of them the tokens of the first row.
    SHARED_TOKENS: _of_form(SHARED_TOKENS, st.just(True), 2),
}
_FORKS = st.builds(ForkSequence, _SEQUENCE, _SEQUENCE)
_AGAIN = st.one_of(
    st.builds(Again, _SEQUENCE, _FEATURES),
    st.builds(Generate, _SEQUENCE, st.integers(0, 2), st.lists(_FEATURE, min_size=5, max_size=8).map(tuple)),
)
"""A prompt that is sent twice, or generation with many features, since libraries keep prompts with some of them alone."""
_SAVES, _DROPS = st.builds(Save, _SEQUENCE), st.builds(Drop, _SEQUENCE)
# No change comes first, so that a case shrinks to a save and a load.
_CHANGES_OF_THE_SAVED = st.one_of(
    st.just(()), _each(_grows(SAVED)), _each(st.just(Drop(SAVED))), _each(_extends(1))
)
_LOADS_OVER_A_FORK = st.builds(Load, st.integers(0, 1), st.sampled_from((COPY, SOURCE)))
OPERATIONS: dict[str, st.SearchStrategy[Operations]] = {
    "again": _each(_AGAIN),
    "fork": _each(_FORKS),
    "roll_back": _each(
        st.one_of(
            st.builds(RollBack, _SEQUENCE, st.one_of(st.integers(0, 3), st.integers(0, LONGEST - 1))),
            st.builds(RollBack, _SEQUENCE, _BESIDE, st.sampled_from((LAST_CALL, ALL_TOKENS))),
        )
    ),
    "save": st.one_of(
        _each(_SAVES),
        _each(st.builds(Load, st.integers(0, 3), _SEQUENCE, st.integers(0, CONTEXTS - 1))),
        # A sequence is saved, changed, and loaded again: over itself, so that a save that copies nothing shows.
        st.builds(
            lambda save, change, load: (save, *change, load),
            _SAVES,
            _CHANGES_OF_THE_SAVED,
            st.builds(Load, st.integers(0, 1), st.just(SAVED)),
        ),
        # A load into a sequence that is as long as what is loaded, or a token shorter or longer.
        st.tuples(_SAVES, _SEQUENCE, _BESIDE).map(
            lambda drawn: (drawn[0], Grow(drawn[1], 0, drawn[2]), Load(0, drawn[1]))
        ),
        # A load into a sequence that was copied, or into its copy, before either has gone on; what is loaded is older than the copy.
        st.one_of(
            st.tuples(_FORKS, _LOADS_OVER_A_FORK),
            st.tuples(_SAVES, _extends(1), _FORKS, _LOADS_OVER_A_FORK),
        ),
    ),
    # A damaged save is loaded over a sequence that has tokens, which goes on afterwards, or into an empty one.
    "load_damaged": st.builds(
        lambda save, change, load: (save, *change, load),
        _SAVES,
        _CHANGES_OF_THE_SAVED,
        st.builds(
            LoadDamaged,
            st.integers(0, 1),
            st.one_of(st.just(SAVED), _SEQUENCE),
            # The last of the damages, a save of another model, is of a kind of its own, and more frequent.
            st.sampled_from((*range(8), -1, -1)),
            st.integers(0, 1),
        ),
    ),
    "drop": st.one_of(_each(_DROPS), st.tuples(_DROPS, _grows(DROPPED))),
    # Orders that may repeat sequences, as those of beams; and orders of all sequences, which drawn numbers seldom are.
    "reorder": _each(
        st.one_of(
            st.lists(_SEQUENCE, min_size=1, max_size=SEQUENCES).map(tuple),
            st.permutations(range(SEQUENCES)).map(tuple),
        ).map(Reorder)
    ),
    "generate": _each(
        st.builds(
            Generate,
            _SEQUENCE,
            st.one_of(st.integers(0, 5), st.integers(0, 5), st.integers(0, 15)),
            _FEATURES,
        )
    ),
    # Generation ends at a stop token, and the sequence goes on behind it.
    STOP: st.builds(
        lambda sequence, stop, more, features: (Generate(sequence, stop + more, features, stop),),
        _SEQUENCE,
        st.integers(1, 4),
        st.integers(0, 4),
        _FEATURES,
    ),
    # The sequence goes on behind the request that was cancelled, or another one begins in its place.
    "cancel": st.builds(
        lambda cancel, more: (cancel, *more),
        st.builds(Cancel, _SEQUENCE, _TOKENS, st.integers(0, 7)),
        st.one_of(st.just(()), _each(_DROPS), _each(_extends(1))),
    ),
}


def sequence_stories(*names: str, batches: bool = True) -> st.SearchStrategy[SequenceStory]:
    """Scenarios with extensions, of one sequence alone or in batches, and with operations of these names."""
    one_sequence = st.builds(Extend, _TOKENS.map(lambda tokens: ((0, tokens),)), st.just(0), _FEATURES)
    extends = _extends(1) if batches else one_sequence
    # What is saved in a context is loaded into another one, which may have sequences by then.
    later = _extends(CONTEXTS) if "save" in names else extends
    # Operations by themselves come first, so that a case shrinks to them.
    operations = st.lists(
        st.one_of([_each(later), *((FORM_EXTENDS | OPERATIONS)[name] for name in names)]), max_size=8
    )
    # A form that libraries have for new sequences alone is that of the first extension.
    return st.builds(
        lambda model, features, first, more: SequenceStory(
            model, features, (*first, *chain.from_iterable(more))
        ),
        st.integers(0, 63),
        _FEATURES,
        next((FORM_EXTENDS[name] for name in names if name in FORM_EXTENDS), _each(extends)),
        operations,
    )
