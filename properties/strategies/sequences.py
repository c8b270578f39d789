"""Scenarios of a library of sequences: operations as data, with small numbers that stand for what there is at that time."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

Numbers = tuple[int, ...]
SEQUENCES, CONTEXTS, LONGEST = 4, 3, 96
LARGEST_TOKEN = 15


@dataclass(frozen=True)
class Extend:
    """Rows of a batch: the sequence's number, and tokens."""

    rows: tuple[tuple[int, Numbers], ...]
    context: int = 0
    features: Numbers = ()


@dataclass(frozen=True)
class ForkSequence:
    """`source` counts the sequences that have tokens."""

    source: int
    target: int


@dataclass(frozen=True)
class RollBack:
    """Of the sequence that `sequence` counts, `more + 1` tokens, or as many as there are."""

    sequence: int
    more: int


@dataclass(frozen=True)
class Save:
    """`sequence` counts the sequences that have tokens."""

    sequence: int


@dataclass(frozen=True)
class Load:
    """`saved` counts what was saved."""

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
    features: Numbers = ()


Operation = Extend | ForkSequence | RollBack | Save | Load | Drop | Reorder | Generate


@dataclass(frozen=True)
class SequenceStory:
    """A scenario: a model by its number among the library's, values of features by theirs, and operations."""

    model: int
    features: Numbers
    operations: tuple[Operation, ...]


def _numbers(most: int) -> st.SearchStrategy[int]:
    return st.integers(0, most - 1)


def _features() -> st.SearchStrategy[Numbers]:
    return st.lists(_numbers(4), max_size=10).map(tuple)


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


_FORKS = st.builds(ForkSequence, _numbers(SEQUENCES), _numbers(SEQUENCES))
_ROLLBACKS = st.builds(RollBack, _numbers(SEQUENCES), st.one_of(_numbers(4), _numbers(LONGEST)))
_SAVES = st.builds(Save, _numbers(SEQUENCES))
_LOADS = st.builds(Load, _numbers(4), _numbers(SEQUENCES), _numbers(CONTEXTS))
_DROPS = st.builds(Drop, _numbers(SEQUENCES))
_REORDERS = st.lists(_numbers(SEQUENCES), min_size=1, max_size=SEQUENCES).map(
    lambda order: Reorder(tuple(order))
)
_GENERATIONS = st.builds(Generate, _numbers(SEQUENCES), _numbers(6), _features())
_OTHERS: dict[str, st.SearchStrategy[Operation]] = {
    "fork": _FORKS,
    "roll_back": _ROLLBACKS,
    "save": _SAVES | _LOADS,
    "drop": _DROPS,
    "reorder": _REORDERS,
    "generate": _GENERATIONS,
}


def sequence_stories(*names: str, most_rows: int = SEQUENCES) -> st.SearchStrategy[SequenceStory]:
    """Scenarios with extensions, and with operations of these names."""
    extends = _extends(most_rows) if most_rows > 1 else _one_sequence()
    # What is saved in a context is loaded into another one, which may have sequences by then.
    later = _extends(most_rows, CONTEXTS) if "save" in names else extends
    kinds = [later, *(_OTHERS[name] for name in names)]
    operations = st.lists(st.one_of(kinds), max_size=8)
    return st.builds(
        lambda model, features, first, more: SequenceStory(model, features, (first, *more)),
        _numbers(64),
        _features(),
        extends,
        operations,
    )


def every_sequence_story() -> st.SearchStrategy[SequenceStory]:
    """Scenarios with every operation, in any order."""
    return sequence_stories(*_OTHERS)
