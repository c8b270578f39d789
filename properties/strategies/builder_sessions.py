"""Steps that a builder is handed, one or several in a row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial

from hypothesis import strategies as st

from properties.strategies.bounds import MANY_CHUNKS, MANY_ROWS, around, crowded, crowds, mostly
from properties.strategies.builders import CLASSES, HUGE, BuildCall, BuilderSetup, Rows, StepRequest, setups
from properties.strategies.situations import noted
from statecheck.case.values import Call, Name


def steps(setup: BuilderSetup, *, rows: Rows = "any") -> st.SearchStrategy[BuildCall]:
    """Steps inside the documented domain of the setup's builder, in the runner's order."""
    return _steps_with(*_limits(setup), rows).map(partial(_fitted, setup))


def _limits(setup: BuilderSetup) -> tuple[int, int, int]:
    """What a row of a step depends on: drafts, computed tokens at most, and where blocks end."""
    return setup.num_spec, setup.max_model_len - 1 - setup.num_spec, setup.block_size


def _fitted(setup: BuilderSetup, step: BuildCall) -> BuildCall:
    return noted(inside_domain(step, setup))


@cache
def _steps_with(spec: int, longest: int, block_size: int, rows: Rows) -> st.SearchStrategy[BuildCall]:
    """Steps for builders with these limits, whatever else such a builder may ask for."""
    decodes = _decodes(spec, longest, block_size)
    prefills = _prefills(longest, block_size)
    requests = st.lists(decodes if rows == "decodes" else decodes | prefills, max_size=MAX_ROWS)
    if rows == "mixed":
        requests = st.tuples(decodes, prefills, requests).map(lambda found: [*found[:2], *found[2]])
    return st.builds(
        BuildCall,
        st.builds(crowded, requests, crowds(MANY_ROWS, one_in=24)).map(
            lambda found: tuple(sorted(found, key=_class))
        ),
        padded_rows=st.integers(0, 2),
        padded_tokens=st.integers(0, 2),
        marks=st.booleans(),
        bounds=st.booleans(),
        counts=st.sampled_from((True, True, True, False)),
        drafts=st.booleans(),
        first_block=st.sampled_from((1, 100, 2**31 - HUGE)),
        spare_columns=st.sampled_from((0, 0, 1, 3)),
    )


def _decodes(spec: int, longest: int, block_size: int) -> st.SearchStrategy[StepRequest]:
    def marked(query_len: int, computed: int, accepted: int, known: bool, slack: int) -> StepRequest:
        drafts = query_len - 1 if query_len > 1 or known else -1
        return StepRequest(query_len, computed, False, accepted, drafts, slack)

    computed = st.integers(1, min(longest, WIDE)) | st.sampled_from(_boundaries(block_size, longest))
    if longest > WIDE:
        computed = computed | st.just(longest)
    return st.builds(
        marked,
        st.integers(1, 1 + spec),
        computed,
        st.integers(1, 1 + spec),
        st.booleans(),
        st.integers(0, spec),
    )


WIDE = 2**20
"""Tokens of a request, above which only boundaries are drawn and the most that an engine takes."""


def _boundaries(unit: int, longest: int) -> tuple[int, ...]:
    around = {multiple * unit + offset for multiple in range(1, 4) for offset in (0, 1, -1)}
    return tuple(sorted(one for one in around if 1 <= one <= longest))


MAX_ROWS = 5
"""Rows that are drawn: enough for a row without drafts between two with drafts, and a prompt."""
MOST_COMPUTED = 20
"""Tokens that most prompts have computed: some blocks and chunks of every size that is usual here."""
LONG_CHUNKS = (*MANY_CHUNKS, 8 * 1024)
"""Tokens of a prompt in a step: as many chunks of one token as a number of eight bits counts, and as many programs of
eight tokens as the least table has room for."""


@cache
def _prefills(longest: int, block_size: int) -> st.SearchStrategy[StepRequest]:
    computed = st.sampled_from((0, 0, 1)) | st.integers(1, MOST_COMPUTED)
    # Of an engine for long requests: there are none behind the longest chunk otherwise.
    room = longest - max(LONG_CHUNKS)
    wide = st.sampled_from((*_boundaries(block_size, room), room)) if room > 0 else computed
    some_computed = mostly(computed, wide, one_in=3)

    @st.composite
    def prefills(draw: st.DrawFn) -> StepRequest:
        if room <= 0:
            return StepRequest(draw(_FEW_TOKENS), draw(computed), True)
        return StepRequest(draw(_SOME_TOKENS), draw(some_computed), True)

    return prefills()


_FEW_TOKENS = st.integers(1, 9)
_SOME_TOKENS = mostly(_FEW_TOKENS, st.sampled_from(around(LONG_CHUNKS)), one_in=3)


def _class(row: StepRequest) -> tuple[int, int]:
    """Decodes in any order, then started prompts from short to long, then first chunks, as the runner orders them."""
    if not row.prefilling:
        return (0, 0)
    return (1 if row.num_computed else 2, row.query_len)


def inside_domain(step: BuildCall, setup: BuilderSetup) -> BuildCall:
    """What the documents leave open, closed: who passes less host data promises more."""
    if _needs_host_lengths(setup) and not step.bounds:
        step = replace(step, bounds=True)
    known = step.marks or step.bounds
    if setup.kind == "gdn":
        rows = tuple(_without_lost_offset(row, step, known=known) for row in step.requests)
        step = replace(step, requests=rows)
    if known:
        return step
    threshold = 1 + setup.num_spec if setup.num_spec and setup.kind != "gdn" else 1
    rows = tuple(_with_prior_state(row, threshold) for row in step.requests)
    return replace(step, requests=tuple(sorted(rows, key=_class)))


def _needs_host_lengths(setup: BuilderSetup) -> bool:
    return setup.kind == "mamba2" or (setup.kind == "mamba1" and setup.mode == "all")


def _without_lost_offset(row: StepRequest, step: BuildCall, *, known: bool) -> StepRequest:
    """A row that nothing marks as a decode with drafts is read at column 0: it accepted one token."""
    marked = step.drafts and row.drafts >= 0
    return row if marked or (known and row.query_len == 1) else replace(row, accepted=1)


def _with_prior_state(row: StepRequest, threshold: int) -> StepRequest:
    if row.query_len <= threshold and not row.num_computed:
        return replace(row, num_computed=1)
    return row


def captured_step(setup: BuilderSetup, rows: int, padded: int, bind: str = "metadata") -> Call:
    """The call with which a runner captures a graph for `rows` decodes and `padded` rows of padding."""
    longest = StepRequest(1 + setup.num_spec, 1, accepted=1 + setup.num_spec, drafts=setup.num_spec)
    common = BuildCall((longest,) * rows, padded_rows=padded).metadata(setup)
    changes = {"max_query_len": 1 + setup.num_spec, "is_prefilling": None, "seq_lens_cpu_upper_bound": None}
    fields = tuple((dict(common.fields) | changes).items())
    arguments = (("self", Name("builder")), ("common_attn_metadata", replace(common, fields=fields)))
    return Call(f"{setup.builder}.build_for_cudagraph_capture", arguments, bind=bind, by_content=True)


@dataclass(frozen=True)
class Session:
    """A builder, and the steps that it is handed one after another."""

    setup: BuilderSetup
    steps: tuple[BuildCall, ...]


def sessions(
    *,
    kinds: tuple[str, ...] = tuple(CLASSES),
    full_cudagraphs: bool | None = None,
    max_steps: int = 1,
    rows: Rows = "any",
    min_spec: int = 0,
) -> st.SearchStrategy[Session]:
    """A builder that expects at least `min_spec` drafts, with one step, or with up to `max_steps`."""
    models = setups(kinds=kinds, full_cudagraphs=full_cudagraphs, min_spec=min_spec)
    return _sessions(models, max_steps, rows)


@st.composite
def _sessions(
    draw: st.DrawFn, models: st.SearchStrategy[BuilderSetup], max_steps: int, rows: Rows
) -> Session:
    setup = draw(models)
    found = draw(_steps_in_a_row(*_limits(setup), rows, max_steps))
    return Session(setup, tuple(_fitted(setup, step) for step in found))


@cache
def _steps_in_a_row(
    spec: int, longest: int, block_size: int, rows: Rows, most: int
) -> st.SearchStrategy[list[BuildCall]]:
    return st.lists(_steps_with(spec, longest, block_size, rows), min_size=1, max_size=most)
