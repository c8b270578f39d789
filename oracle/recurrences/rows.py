"""Which slots of a pool the rows of a batch read and write, and the recurrence along each row with its error bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from oracle.recurrences.bounds import CONSTANT, Matrix, Near, Roundoff, near, zeros

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
    """A head's state, what was added up for each of its entries, and how far each may be off."""

    value: Matrix
    size: Matrix
    error: Matrix

    @classmethod
    def empty(cls, shape: tuple[int, int]) -> State:
        """The state before the first token."""
        return cls(zeros(*shape), zeros(*shape), zeros(*shape))


@dataclass(frozen=True)
class HeadStep:
    """A token of a head, in three ways: on the values; on absolute values; and on the error of the state before, with values of zero.

    Args:
        operations: how many each result goes through; exponents count by their size.
        products: how often the state before goes through a product whose factors are rounded.
    """

    values: Step
    sizes: Step
    errors: Step
    operations: float
    products: float = 0.0

    def advance(self, state: State, roundoff: Roundoff) -> tuple[State, list[tuple[float, float]]]:
        """The state behind the token; and by value its output, and how far it may be off."""
        (value, output), (size, output_size) = self.values(state.value), self.sizes(state.size)
        (error, output_error), (kept, _) = self.errors(state.error), self.errors(state.size)
        made, anew = roundoff.of(self.operations), CONSTANT * self.products * roundoff.products
        error = [
            [
                e
                + made * (s - k + roundoff.smallest)
                + (anew + CONSTANT * self.operations * roundoff.sums) * k
                for e, s, k in zip(*row, strict=True)
            ]
            for row in zip(error, size, kept, strict=True)
        ]
        outputs = zip(output, output_size, output_error, strict=True)
        return State(value, size, error), [(v, made * (s + roundoff.smallest) + e) for v, s, e in outputs]


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
