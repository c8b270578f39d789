"""Which slots of a pool the rows of a batch read and write, and the recurrence along each row with its error bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from oracle.recurrences.bounds import CONSTANT, Matrix, Near, Roundoff, length, near, zeros

Step = Callable[[Matrix], tuple[Matrix, list[float]]]


@dataclass(frozen=True)
class Rows:
    """The rows of a batch on one axis of tokens.

    Args:
        starts: the first token of each row, and the end of the last row.
        slots: of each row: one slot, or with drafts one for each token.
        accepted: of each row, the tokens of its last step that were accepted, 1 at least: its state is in the slot of the last one. None without drafts.
        has_state: whether a row has a state from before; None: all rows.
        null_slots: the slots that stand for none.
    """

    starts: Sequence[int]
    slots: Sequence[Sequence[int]]
    accepted: Sequence[int] | None = None
    has_state: Sequence[bool] | None = None
    null_slots: Sequence[int] = (-1,)

    def __len__(self) -> int:
        return len(self.slots)

    def tokens(self, row: int) -> range:
        """The tokens of a row; none of a row of padding, which has no slot."""
        read = self.source(row)
        return range(0) if read in self.null_slots else range(*tuple(pairwise(self.starts))[row])

    def source(self, row: int) -> int:
        """The slot with the state before the step."""
        return self.slots[row][self.accepted[row] - 1 if self.accepted is not None else 0]

    def is_fresh(self, row: int) -> bool:
        """Whether the row begins without a state, and reads none."""
        return self.has_state is not None and not self.has_state[row]

    def target(self, row: int, at: int) -> int | None:
        """The slot that the state after token number `at` of the row goes to; None where it goes nowhere."""
        if self.accepted is not None:
            slot = self.slots[row][at]
        else:
            slot = self.slots[row][0]
            if at < len(self.tokens(row)) - 1:
                return None
        return None if slot in self.null_slots else slot


@dataclass(frozen=True)
class State:
    """A head's state, what was added up for each of its entries, and how far each may be off.

    `lengths` are of each row of `size` and `error`, where these are bounded as lengths.
    """

    value: Matrix
    size: Matrix
    error: Matrix
    lengths: list[tuple[float, float]]

    @classmethod
    def empty(cls, shape: tuple[int, int]) -> State:
        """The state before the first token."""
        return cls(zeros(*shape), zeros(*shape), zeros(*shape), [(0.0, 0.0)] * shape[0])


@dataclass(frozen=True)
class Lengths:
    """What a step does to the Euclidean length of a row of the state.

    Args:
        left: what the length is multiplied by at most.
        decay: the largest decay.
        mixed: what is left of it and goes through a product with the key, and through a second one.
        written: by row, how long all is that the step adds and takes away, of the state before.
        read: what an output is at most, of a row of length 1.
    """

    left: float
    decay: float
    mixed: float
    written: Callable[[Matrix], list[float]]
    read: float


@dataclass(frozen=True)
class HeadStep:
    """A token of a head, in three ways: on the values; on absolute values; and on the error of the state before, with values of zero.

    Args:
        operations: how many each result goes through; exponents count by their size.
        products: how often the state before goes through a product whose factors are rounded.
        decay: by key, the factor of the state before where no rounded product multiplies it.
        lengths: a second bound, if the step has one.
        exponents: the part of `operations` that is the size of exponents.
    """

    values: Step
    sizes: Step
    errors: Step
    operations: float
    products: float = 0.0
    decay: Sequence[float] = ()
    lengths: Lengths | None = None
    exponents: float = 0.0

    def advance(self, state: State, roundoff: Roundoff) -> tuple[State, list[tuple[float, float]]]:
        """The state behind the token; and by value its output, and how far it may be off."""
        (value, output), (size, output_size) = self.values(state.value), self.sizes(state.size)
        (error, output_error), (kept, _) = self.errors(state.error), self.errors(state.size)
        made, anew = roundoff.of(self.operations), CONSTANT * self.products * roundoff.products
        decay = self.decay or [0.0] * len(value[0])
        error = [
            [
                e
                + made * (s - k + roundoff.smallest)
                + anew * (k - d * before)
                + CONSTANT * self.operations * roundoff.sums * k
                for e, s, k, before, d in zip(*row, decay, strict=True)
            ]
            for row in zip(error, size, kept, state.size, strict=True)
        ]
        lengths = state.lengths
        if self.lengths is not None:
            by, lengths, sums = self.lengths, [], CONSTANT * self.operations * roundoff.sums
            for row, written in enumerate(by.written(state.value)):
                size_before, error_before = state.lengths[row]
                long = by.left * size_before + written
                made_long = made * (written + roundoff.smallest * len(size[row]) ** 0.5)
                made_long += (anew * by.mixed + sums * (by.decay + by.mixed)) * size_before
                lengths.append((long, by.left * error_before + made_long))
                size[row] = [min(long, one) for one in size[row]]
                error[row] = [min(lengths[row][1], one) for one in error[row]]
                output_size[row] = min(by.read * long, output_size[row])
                output_error[row] = min(by.read * by.left * error_before, output_error[row])
        outputs = zip(output, output_size, output_error, strict=True)
        after = State(value, size, error, lengths)
        return after, [(v, made * (s + roundoff.smallest) + e) for v, s, e in outputs]


@dataclass
class Recurrent:
    """What a batch of rows leaves: the output of each token, by head, and the state in each slot that was written, by head.

    A token without an output is one of padding: nothing is said about its output.
    """

    outputs: dict[int, list[list[Near]]]
    states: dict[int, list[list[list[Near]]]]


def run_rows(
    rows: Rows,
    heads: int,
    shape: tuple[int, int],
    step: Callable[[int, int], HeadStep],
    states: Mapping[int, list[list[list[Near]]]],
    *,
    roundoff: Roundoff,
    output_type: str,
    state_type: str,
) -> Recurrent:
    """Run every row from its own state, token by token.

    Args:
        shape: of a head's state.
        step: of a token and a head.
        states: of the slots that are read, by head; their bounds are errors that they have already.
        roundoff: of the kernel's arithmetic.
        output_type, state_type: the types that results are rounded to.
    """
    found = Recurrent({}, {})
    for row in range(len(rows)):
        for head in range(heads):
            state = State.empty(shape)
            if rows.tokens(row) and not rows.is_fresh(row):
                before = states[rows.source(row)][head]
                state = State(
                    [[one.value for one in cells] for cells in before],
                    [[abs(one.value) for one in cells] for cells in before],
                    [[one.bound for one in cells] for cells in before],
                    [
                        (length([one.value for one in cells]), length([one.bound for one in cells]))
                        for cells in before
                    ],
                )
            for at, token in enumerate(rows.tokens(row)):
                state, outputs = step(token, head).advance(state, roundoff)
                found.outputs.setdefault(token, []).append([near(v, e, output_type) for v, e in outputs])
                target = rows.target(row, at)
                if target is not None:
                    cells = zip(state.value, state.error, strict=True)
                    found.states.setdefault(target, []).append(
                        [[near(v, e, state_type) for v, e in zip(*one, strict=True)] for one in cells]
                    )
    return found
