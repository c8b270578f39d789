"""Scenarios of a library of sequences: operations as data, with small numbers that stand for what there is at that time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from hypothesis import strategies as st

Numbers = tuple[int, ...]
Features = tuple[tuple[int, int], ...]
"""Pairs of numbers: of a feature, and of one of its values beside the default."""
SEQUENCES, CONTEXTS, LONGEST = 4, 3, 96
LARGEST_TOKEN = 15
SAVED, COPY, SOURCE, DROPPED = -1, -2, -3, -4
"""In place of a sequence's number: the sequence that was saved last, target and source of the last fork, and the sequence that was dropped last."""
LAST_CALL, ALL_TOKENS = "last call", "all tokens"
"""What the length of a rollback is drawn beside: the tokens of the last call for the sequence, and all of its tokens."""


@dataclass(frozen=True)
class Extend:
    """Rows of a batch: the sequence's number, and tokens."""

    rows: tuple[tuple[int, Numbers], ...]
    context: int = 0
    features: Features = ()


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
class Drop:
    """`sequence` counts the sequences that have tokens."""

    sequence: int


@dataclass(frozen=True)
class Reorder:
    """Sequence i has what sequence `order[i]` had."""

    order: Numbers


@dataclass(frozen=True)
class Generate:
    """`sequence` counts the sequences that have tokens."""

    sequence: int
    more: int
    features: Features = ()


Operation = Extend | Grow | ForkSequence | RollBack | Save | Load | Drop | Reorder | Generate


@dataclass(frozen=True)
class SequenceStory:
    """A scenario: a model by its number among the library's, values of features by theirs, and operations."""

    model: int
    features: Features
    operations: tuple[Operation, ...]


def _numbers(most: int) -> st.SearchStrategy[int]:
    return st.integers(0, most - 1)


def _features() -> st.SearchStrategy[Features]:
    """One or two features, since many of them refuse each other; or many, since some take effect with others only, as neighbours in a batch do."""
    feature = st.tuples(_numbers(16), _numbers(3))
    return st.one_of(st.lists(feature, max_size=2), st.lists(feature, min_size=3, max_size=12)).map(tuple)


def _tokens() -> st.SearchStrategy[Numbers]:
    """Few tokens of any kind, or more than libraries process in one piece."""
    few = st.lists(st.integers(1, LARGEST_TOKEN), min_size=1, max_size=6).map(tuple)
    many = st.builds(
        lambda first, length: tuple((first + 7 * at) % LARGEST_TOKEN + 1 for at in range(length)),
        _numbers(LARGEST_TOKEN),
        st.integers(1, 80),
    )
    return st.one_of(few, few, many)


def _rows(most: int) -> st.SearchStrategy[tuple[tuple[int, Numbers], ...]]:
    row = st.tuples(_numbers(SEQUENCES), _tokens())
    rows = st.lists(row, min_size=1, max_size=most, unique_by=lambda one: one[0]).map(tuple)
    return st.one_of(rows, rows, _rows_alike(most))


def _rows_alike(most: int) -> st.SearchStrategy[tuple[tuple[int, Numbers], ...]]:
    """Rows of the first sequences, all as long, as when a server decodes: what is taken for another row is as long as that."""
    return st.builds(
        lambda count, width, first: tuple(
            (number, tuple((first + 3 * number + 7 * at) % LARGEST_TOKEN + 1 for at in range(width)))
            for number in range(count)
        ),
        st.integers(1, most),
        st.integers(1, 2),
        _numbers(LARGEST_TOKEN),
    )


def _extends(most_rows: int = SEQUENCES, contexts: int = 1) -> st.SearchStrategy[Operation]:
    return st.builds(Extend, _rows(most_rows), _numbers(contexts), _features())


def _one_sequence() -> st.SearchStrategy[Operation]:
    rows = _tokens().map(lambda tokens: ((0, tokens),))
    return st.builds(Extend, rows, st.just(0), _features())


Operations = tuple[Operation, ...]


def _each(operation: st.SearchStrategy[Operation]) -> st.SearchStrategy[Operations]:
    return operation.map(lambda one: (one,))


_BESIDE = st.integers(-1, 1)
"""Lengths are drawn equal to a length that matters, one less and one more: libraries take the equal case, or one of the others, for another."""
_FORKS = st.builds(ForkSequence, _numbers(SEQUENCES), _numbers(SEQUENCES))
_ROLLBACKS = st.one_of(
    st.builds(RollBack, _numbers(SEQUENCES), st.one_of(_numbers(4), _numbers(LONGEST))),
    st.builds(RollBack, _numbers(SEQUENCES), _BESIDE, st.sampled_from((LAST_CALL, ALL_TOKENS))),
)
_SAVES = st.builds(Save, _numbers(SEQUENCES))
_LOADS = st.builds(Load, _numbers(4), _numbers(SEQUENCES), _numbers(CONTEXTS))
_LOADS_BACK = st.builds(Load, _numbers(2), st.just(SAVED))
_DROPS = st.builds(Drop, _numbers(SEQUENCES))
_REORDERS = st.lists(_numbers(SEQUENCES), min_size=1, max_size=SEQUENCES).map(
    lambda order: Reorder(tuple(order))
)
_GENERATIONS = st.builds(
    Generate, _numbers(SEQUENCES), st.one_of(_numbers(6), _numbers(6), _numbers(16)), _features()
)


def _grows(sequence: int) -> st.SearchStrategy[Operation]:
    return st.builds(Grow, st.just(sequence), _numbers(4), _BESIDE)


def _changes_of_the_saved() -> st.SearchStrategy[Operations]:
    """No change comes first, so that a case shrinks to a save and a load."""
    return st.one_of(st.just(()), _each(_grows(SAVED)), _each(st.just(Drop(SAVED))), _each(_extends()))


def _saved_and_loaded() -> st.SearchStrategy[Operations]:
    """A sequence is saved, changed, and loaded again: over itself, so that a save that copies nothing shows."""
    return st.builds(
        lambda save, change, load: (save, *change, load), _SAVES, _changes_of_the_saved(), _LOADS_BACK
    )


def _loaded_beside_a_length() -> st.SearchStrategy[Operations]:
    """A load into a sequence that is as long as what is loaded, or a token shorter or longer."""
    number = _numbers(SEQUENCES)
    return st.tuples(_SAVES, number, _BESIDE).map(
        lambda drawn: (drawn[0], Grow(drawn[1], 0, drawn[2]), Load(0, drawn[1]))
    )


def _loaded_over_a_fork() -> st.SearchStrategy[Operations]:
    """A load into a sequence that was copied, or into its copy, before either has gone on; what is loaded is older than the copy."""
    loads = st.builds(Load, _numbers(2), st.sampled_from((COPY, SOURCE)))
    return st.one_of(st.tuples(_FORKS, loads), st.tuples(_SAVES, _extends(), _FORKS, loads))


OPERATIONS: dict[str, st.SearchStrategy[Operations]] = {
    "fork": _each(_FORKS),
    "roll_back": _each(_ROLLBACKS),
    "save": st.one_of(
        _each(_SAVES),
        _each(_LOADS),
        _saved_and_loaded(),
        _loaded_beside_a_length(),
        _loaded_over_a_fork(),
    ),
    "drop": st.one_of(_each(_DROPS), st.tuples(_DROPS, _grows(DROPPED))),
    "reorder": _each(_REORDERS),
    "generate": _each(_GENERATIONS),
}


def sequence_stories(*names: str, most_rows: int = SEQUENCES) -> st.SearchStrategy[SequenceStory]:
    """Scenarios with extensions, and with operations of these names."""
    extends = _extends(most_rows) if most_rows > 1 else _one_sequence()
    # What is saved in a context is loaded into another one, which may have sequences by then.
    later = _extends(most_rows, CONTEXTS) if "save" in names else extends
    # Operations by themselves come first, so that a case shrinks to them.
    kinds = [_each(later), *(OPERATIONS[name] for name in names)]
    operations = st.lists(st.one_of(kinds), max_size=8)
    return st.builds(
        lambda model, features, first, more: SequenceStory(
            model, features, (first, *chain.from_iterable(more))
        ),
        _numbers(64),
        _features(),
        extends,
        operations,
    )
