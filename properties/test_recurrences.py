"""Kernels of recurrences: outputs and states of the recurrence itself, however a sequence is cut, batched, drafted, padded and laid out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import assume
from hypothesis import strategies as st

from properties.strategies.orders import reorderings
from properties.strategies.recurrences import (
    CHUNKED,
    CONTINUED_BY,
    NO_REQUEST,
    NO_SLOT,
    RECURRENT,
    Batch,
    Row,
    batches,
)
from statecheck.case.values import Returned
from statecheck.execution.example import Example
from statecheck.execution.registry import Configuration, prop

_RECURRENT = tuple(f"Recurrences.{name}" for name in RECURRENT)
_CHUNKED = tuple(f"Recurrences.{name}" for name in CHUNKED)


def kernels(
    word: str,
    recurrent: st.SearchStrategy[Batch] | None = None,
    chunked: st.SearchStrategy[Batch] | None = None,
) -> tuple[Configuration, ...]:
    """The two kinds of kernels of which a property with this word holds, with other batches than any where these are given."""
    return (
        Configuration(
            f"recurrent-kernels/{word}",
            *_RECURRENT,
            reason="token by token",
            group=_RECURRENT,
            batch=batches(RECURRENT) if recurrent is None else recurrent,
        ),
        Configuration(
            f"chunked-kernels/{word}",
            *_CHUNKED,
            reason="in chunks",
            group=_CHUNKED,
            batch=batches(CHUNKED) if chunked is None else chunked,
        ),
    )


def offered_of(
    trial: Example, batch: Batch, functions: Sequence[str], *, chunks_of_rows: bool = False
) -> Batch:
    """The batch for a function that the subject offers, which the example is about; with `chunks_of_rows` for one whose chunks begin with each row."""
    names = [name.rpartition(".")[2] for name in trial.offered(*functions)]
    if chunks_of_rows:
        names = [name for name in names if name not in trial.profile.chunks_of_batches]
        if not names:
            trial.lacks("a function whose chunks begin with each row")
    found = batch.of_functions(names)
    trial.configuration = found.function
    return found


def runs_the_same_code(trial: Example, *batches: Batch) -> bool:
    """Whether batches agree in what Triton compiles a kernel for: whether their numbers of tokens and of rows are 1, or multiples of 16.

    Constants that a library derives from these numbers are not looked at. In other code sums may go in another order: the bytes may differ there,
    and each result is within the bound of the arithmetic, as that of any call.
    """
    counts = [(batch.tokens, len(batch.rows)) for batch in batches]
    kinds = {tuple((count == 1, count % 16 == 0) for count in pair) for pair in counts}
    return trial.executes_kernels or len(kinds) == 1


def same_rows(
    trial: Example,
    first: tuple[Batch, Returned],
    other: tuple[Batch, Returned],
    rows: Sequence[tuple[int, int]],
    difference: str,
) -> None:
    """State that rows of two batches, in pairs, have the same outputs and leave the same states.

    Rows without a token compare nothing: an example has a row with one.
    """
    assume(any(first[0].rows[row].length for row, _ in rows))
    if not runs_the_same_code(trial, first[0], other[0]):
        trial.compare_rest(counts=True)
        return
    for row, same in rows:
        outputs = [batch.output(outcome, at) for (batch, outcome), at in ((first, row), (other, same))]
        trial.holds(
            outputs[0] == outputs[1],
            f"outputs of row {row} differ {difference}",
            "should be the same bytes",
            place="result",
        )
        slots = [batch.rows[at].slots or () for (batch, _), at in ((first, row), (other, same))]
        for slot, same_slot in zip(*slots, strict=True):
            if slot == NO_SLOT:
                continue
            held = first[0].state(first[1], slot), other[0].state(other[1], same_slot)
            trial.holds(
                held[0] == held[1],
                f"the state of row {row} differs {difference}",
                "should be the same bytes",
                place="states",
            )


def real_rows(batch: Batch) -> list[int]:
    """Rows that are no padding."""
    return [at for at, row in enumerate(batch.rows) if row.slots is not None]


@prop(kernels("recurrence", chunked=batches(CHUNKED, many_programs=True)), "recurrence", any_of=True)
def outputs_and_states_are_the_recurrence(trial: Example, batch: Batch, group: Sequence[str]) -> None:
    """A kernel computes the recurrence within the bound of its arithmetic.

    Only the slots that rows name change, tokens of padding write nothing, and what no kernel may read is in no output.
    """
    trial.agrees(*offered_of(trial, batch, group).steps())


@prop(kernels("alone"), "continuation", any_of=True)
def a_row_alone_is_the_row_in_a_batch(trial: Example, batch: Batch, group: Sequence[str]) -> None:
    """A row has the same outputs and states in a batch and alone."""
    batch = offered_of(trial, batch, group, chunks_of_rows=True)
    assume(len(batch.rows) > 1)
    together = trial.returned(*batch.steps())
    for number, row in enumerate(real_rows(batch), 1):
        alone = batch.alone(row)
        left = trial.returned(*alone.steps(number))
        same_rows(trial, (batch, together), (alone, left), [(row, 0)], "between the batch and the row alone")


@prop(
    kernels("pieces", recurrent=batches(RECURRENT, drafts=False)),
    "continuation",
    any_of=True,
    cuts=st.lists(st.integers(0, 4), max_size=4),
)
def a_row_in_pieces_is_the_row_in_one_go(
    trial: Example, batch: Batch, cuts: list[int], group: Sequence[str]
) -> None:
    """A row in two pieces has the outputs and the state of the row in one go.

    A chunked kernel may be cut behind whole chunks, another one anywhere.
    """
    batch = replace(offered_of(trial, batch, group, chunks_of_rows=True), spare_tokens=0)
    unit = batch.chunk if batch.function in CHUNKED else 1
    places = [
        min(cut, row.length // unit) * unit for cut, row in zip([*cuts, *[1] * 9], batch.rows, strict=False)
    ]
    assume(any(0 < place < row.length for place, row in zip(places, batch.rows, strict=True)))
    before = [replace(row, length=place) for row, place in zip(batch.rows, places, strict=True)]
    behind = [_continued(row, place) for row, place in zip(batch.rows, places, strict=True)]
    first, second = replace(batch, rows=tuple(before)), replace(batch, rows=tuple(behind))
    whole = trial.returned(*batch.steps())
    piece = trial.returned(*first.steps(1))
    rest = trial.returned(*second.steps(2, pool="states1"))
    if not trial.executes_kernels:
        # A compiler may make other code of a loop's first turns than of the rest: each result is within the bound, and the bytes may differ.
        trial.compare_rest(counts=True)
        return
    for row in real_rows(batch):
        outputs = first.output(piece, row) + second.output(rest, row)
        trial.holds(
            batch.output(whole, row) == outputs,
            f"outputs of row {row} in one go and in pieces differ",
            "should be the same bytes",
            place="result",
        )
    trial.holds(
        all(_states(batch, whole, row) == _states(batch, rest, row) for row in real_rows(batch)),
        "states of rows in one go and in pieces differ",
        "should be the same bytes",
        place="states",
    )


def _continued(row: Row, place: int) -> Row:
    return replace(
        row, first=row.first + place, length=row.length - place, is_fresh=row.is_fresh and place == 0
    )


def _states(batch: Batch, outcome: Returned, row: int) -> list[bytes]:
    return [batch.state(outcome, slot) for slot in batch.rows[row].slots or ()]


@prop(
    "chunked-kernels/decode",
    "continuation",
    *_CHUNKED,
    *_RECURRENT,
    any_of=True,
    batch=batches(CHUNKED),
    more=st.lists(st.integers(0, 3), min_size=4, max_size=4),
)
def test_decodes_go_on_behind_a_prefill(trial: Example, batch: Batch, more: list[int]) -> None:
    """Decodes go on from what a chunked kernel has left."""
    offered = trial.offered(*_CHUNKED, *_RECURRENT)
    pairs = [
        f"Recurrences.{chunked}"
        for chunked, recurrent in CONTINUED_BY.items()
        if {f"Recurrences.{chunked}", f"Recurrences.{recurrent}"} <= set(offered)
    ]
    if not pairs:
        trial.lacks("a function for prompts and the same for decodes")
    batch = offered_of(trial, batch, pairs)
    trial.agrees(*batch.steps())
    rows = [
        replace(row, first=row.first + row.length, length=count, is_fresh=False)
        for row, count in zip(batch.rows, more, strict=False)
    ]
    # A row without tokens has left no state.
    kept = [row for row, before in zip(rows, batch.rows, strict=True) if before.length or not before.is_fresh]
    assume(kept)
    options = (batch.options | {"one decay"}) - {"many times", "typed states"}
    decodes = replace(batch, function=CONTINUED_BY[batch.function], rows=tuple(kept), options=options)
    trial.agrees(*decodes.steps(1, pool="states0"))


@prop(kernels("relabelled"), "metamorphic", any_of=True, turn=st.integers(0, 5), moved=st.integers(1, 5))
def neither_slots_nor_the_order_of_rows_show(
    trial: Example, batch: Batch, turn: int, moved: int, group: Sequence[str]
) -> None:
    """Neither the numbers of slots nor the order of rows show."""
    batch = offered_of(trial, batch, group, chunks_of_rows=True)
    count = len(batch.rows)
    assume(turn % count or moved % batch.slots)
    order = [(at + turn) % count for at in range(count)]
    other = batch.relabelled([(slot + moved) % batch.slots for slot in range(batch.slots)])
    other = replace(other, rows=tuple(other.rows[at] for at in order))
    outcomes = trial.returned(*batch.steps()), trial.returned(*other.steps(1))
    pairs = [(row, order.index(row)) for row in real_rows(batch)]
    same_rows(trial, (batch, outcomes[0]), (other, outcomes[1]), pairs, "with other slots and another order")


@prop(
    kernels("padding", batches(RECURRENT, padding=False), batches(CHUNKED, padding=False)),
    "padding",
    any_of=True,
    place=st.integers(0, 3),
    tokens=st.integers(0, 1),
    spare=st.integers(0, 3),
)
def padding_changes_nothing(
    trial: Example, batch: Batch, place: int, tokens: int, spare: int, group: Sequence[str]
) -> None:
    """Rows and tokens of padding change nothing."""
    batch = offered_of(trial, batch, group, chunks_of_rows=True)
    rows = list(batch.rows)
    rows.insert(place, Row(NO_REQUEST, 0, tokens, None))
    padded = replace(batch, rows=tuple(rows), spare_tokens=spare)
    outcomes = trial.returned(*batch.steps()), trial.returned(*padded.steps(1))
    pairs = list(zip(real_rows(batch), real_rows(padded), strict=True))
    same_rows(trial, (batch, outcomes[0]), (padded, outcomes[1]), pairs, "with padding")


@prop(kernels("layout"), "metamorphic", any_of=True)
def strides_do_not_show(trial: Example, batch: Batch, group: Sequence[str]) -> None:
    """Strides of inputs, of slots and of the pool do not show, but for rounding where kernels are compiled."""
    batch = offered_of(trial, batch, group)
    dense = replace(batch, packed=False, gap=0, column=False, options=batch.options - {"window first"})
    wide = replace(dense, packed=True, gap=batch.gap + 1, column=True, options=batch.options)
    if not trial.executes_kernels:
        # Triton compiles a kernel anew for strides that are no multiples of 16, and sums may go in another order there.
        trial.agrees(*dense.steps(), *wide.steps(1))
        return
    outcomes = trial.returned(*dense.steps()), trial.returned(*wide.steps(1))
    rows = [(row, row) for row in real_rows(batch)]
    same_rows(trial, (dense, outcomes[0]), (wide, outcomes[1]), rows, "with other strides")


@prop(kernels("wide-pool"), "width", any_of=True)
def numbers_of_elements_need_more_than_32_bits(trial: Example, batch: Batch, group: Sequence[str]) -> None:
    """Slots behind 2^31 elements of a pool are read and written as the first ones are."""
    batch = offered_of(trial, batch, group)
    far = batch.far_away()
    outcomes = trial.returned(*batch.steps()), trial.returned(*far.steps(1))
    rows = [(row, row) for row in real_rows(batch)]
    same_rows(trial, (batch, outcomes[0]), (far, outcomes[1]), rows, "in a pool of more than 2^31 elements")


def _has_a_long_row(batch: Batch) -> bool:
    """With three tokens a stride is an int32, so that a kernel is compiled as for any layer. A step has too few plain decodes to lie that far apart."""
    return batch.tokens > 2 and any(row.length > 1 for row in batch.rows)


@prop(
    kernels(
        "wide-tokens",
        batches(RECURRENT, padding=False).filter(_has_a_long_row),
        batches(CHUNKED, padding=False).filter(lambda batch: 2 < batch.tokens < 40),
    ),
    "width",
    any_of=True,
)
def tokens_lie_more_than_32_bits_apart(trial: Example, batch: Batch, group: Sequence[str]) -> None:
    """Tokens behind 2^31 elements of an input are read as the first ones are."""
    trial.agrees(*offered_of(trial, batch, group).wide_tokens().steps())


@prop(kernels("program-order"), "order-free", any_of=True, order=reorderings())
def no_order_of_programs_shows(trial: Example, batch: Batch, order: str, group: Sequence[str]) -> None:
    """No order of programs shows in a recurrence."""
    batch = replace(offered_of(trial, batch, group), schedule="")
    other = replace(batch, schedule=order)
    outcomes = trial.returned(*batch.steps()), trial.returned(*other.steps(1))
    rows = [(row, row) for row in real_rows(batch)]
    same_rows(trial, (batch, outcomes[0]), (other, outcomes[1]), rows, "in another order of programs")


@prop(
    "recurrent-kernels/drafts",
    "continuation",
    *_RECURRENT,
    any_of=True,
    batch=batches(RECURRENT, drafts=True, padding=False),
    more=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), min_size=3, max_size=3),
)
def test_rejected_drafts_leave_nothing(trial: Example, batch: Batch, more: list[tuple[int, int]]) -> None:
    """Rejected drafts leave nothing behind."""
    offered = [
        function
        for function in trial.offered(*_RECURRENT)
        if function.rpartition(".")[2] not in trial.profile.without_drafts
    ]
    if not offered:
        trial.lacks("a function that takes drafts")
    batch = offered_of(trial, batch, offered)
    most = 1 + (batch.drafts or 0)
    drafted = tuple(replace(row, length=max(1, row.length)) for row in batch.rows)
    accepted = tuple(
        replace(row, length=min(count, row.length)) for row, (count, _) in zip(drafted, more, strict=False)
    )
    following = tuple(
        replace(row, first=row.first + row.length, accepted=row.length, length=min(count, most))
        for row, (_, count) in zip(accepted, more, strict=False)
    )
    assume(drafted != accepted)
    outcomes = []
    for number, rows in enumerate((drafted, accepted)):
        trial.agrees(*replace(batch, rows=rows).steps(2 * number))
        last = replace(batch, rows=following)
        outcomes.append(trial.returned(*last.steps(2 * number + 1, pool=f"states{2 * number}")))
    if not trial.executes_kernels:
        # Rows of other lengths may be tiles of other shapes, whose sums a GPU makes in another order.
        trial.compare_rest(counts=True)
        return
    for row, request in enumerate(following):
        outputs = [last.output(outcome, row) for outcome in outcomes]
        trial.holds(
            outputs[0] == outputs[1],
            f"outputs of row {row} differ behind {drafted[row].length - accepted[row].length} rejected drafts",
            "should be the same bytes",
            place="result",
        )
        for column in range(request.length if not last.is_conv else 0):
            slot = (request.slots or ())[column]
            trial.holds(
                last.state(outcomes[0], slot) == last.state(outcomes[1], slot),
                f"the state behind token {column} of row {row} differs behind rejected drafts",
                "should be the same bytes",
                place="states",
            )
