"""Builders of metadata, the steps that they are handed, one or several in a row, and written steps that drawn ones seldom are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Literal

from hypothesis import strategies as st

from properties.strategies.batch import POISON
from properties.strategies.bounds import (
    MANY_CHUNKS,
    MANY_ROWS,
    around,
    counts,
    crowded,
    crowds,
    drafts,
    mostly,
    seldom,
)
from statecheck.case.values import (
    Call,
    Device,
    DType,
    Name,
    Record,
    Returns,
    Tensor,
    Value,
    boolean,
    int32,
    record,
)

CLASSES = {
    "mamba1": "Mamba1AttentionMetadataBuilder",
    "mamba2": "Mamba2AttentionMetadataBuilder",
    "gdn": "GDNAttentionMetadataBuilder",
}
HUGE = 10**6
Rows = Literal["any", "decodes", "mixed"]
"""The rows of a step: of any kind, decodes alone, or at least one decode and one prompt."""


@dataclass(frozen=True)
class BuilderSetup:
    """The arguments of a builder's constructor. `spare_blocks` are speculative blocks beyond the speculative tokens."""

    kind: str = "mamba2"
    mode: str = "align"
    block_size: int = 4
    num_spec: int = 0
    spare_blocks: int = 0
    max_num_seqs: int = 8
    max_cudagraph_capture_size: int | None = None
    full_cudagraphs: bool = False
    max_model_len: int = 32
    chunk_size: int | None = 4
    parallel_drafting: bool = False
    decode_context_parallel_size: int = 1

    @property
    def builder(self) -> str:
        return CLASSES[self.kind]

    @property
    def capture_rows(self) -> int:
        """How many rows the persistent buffers hold."""
        rows = self.max_num_seqs * (1 + self.num_spec if self.kind == "gdn" else 1)
        return rows if self.max_cudagraph_capture_size is None else min(rows, self.max_cudagraph_capture_size)

    @property
    def table_width(self) -> int:
        """Columns that a runner gives its block tables."""
        if self.mode == "none":
            return 1 + self.num_spec + self.spare_blocks
        return -(-self.max_model_len // self.block_size) + self.num_spec + self.spare_blocks

    def construct(self, bind: str = "builder") -> Call:
        keywords = {
            "kv_cache_spec": self._spec(),
            "layer_names": ["layer"],
            "vllm_config": self._config(),
            "device": Device(),
        }
        return Call(self.builder, (), tuple(keywords.items()), bind=bind)

    def _spec(self) -> Record:
        return record(
            "MambaSpec",
            block_size=self.block_size,
            shapes=((3 + self.num_spec, 2), (2, 2)),
            dtypes=(DType("float32"), DType("float32")),
            mamba_cache_mode=self.mode,
            num_speculative_blocks=self.num_spec + self.spare_blocks,
        )

    def _config(self) -> Record:
        speculative = record(
            "SpeculativeConfig",
            num_speculative_tokens=self.num_spec,
            parallel_drafting=self.parallel_drafting,
        )
        mode = record("CudagraphMode", has_full_cudagraphs=Returns(self.full_cudagraphs))
        return record(
            "VllmConfig",
            num_speculative_tokens=self.num_spec,
            speculative_config=speculative if self.num_spec else None,
            compilation_config=record(
                "CompilationConfig",
                cudagraph_mode=mode,
                max_cudagraph_capture_size=self.max_cudagraph_capture_size,
            ),
            scheduler_config=record("SchedulerConfig", max_num_seqs=self.max_num_seqs),
            cache_config=record("CacheConfig", mamba_cache_mode=self.mode),
            model_config=record(
                "ModelConfig", max_model_len=self.max_model_len, get_mamba_chunk_size=Returns(self.chunk_size)
            ),
            parallel_config=record(
                "ParallelConfig", decode_context_parallel_size=self.decode_context_parallel_size
            ),
        )


@dataclass(frozen=True)
class StepRequest:
    """A row of a step. `accepted` counts the last step's tokens, `drafts` is -1 where none were marked."""

    query_len: int
    num_computed: int = 0
    prefilling: bool = False
    accepted: int = 1
    drafts: int = -1
    slack: int = 0

    @property
    def seq_len(self) -> int:
        return self.num_computed + self.query_len


@dataclass(frozen=True)
class BuildCall:
    """One call of `build`: rows in the runner's order, padding, and which host data the runner passes along.

    `host_lengths`: `seq_lens` lie on the host by declaration, so that the rules refuse wrong values among them.
    """

    requests: tuple[StepRequest, ...]
    padded_rows: int = 0
    padded_tokens: int = 0
    marks: bool = True
    bounds: bool = True
    counts: bool = True
    drafts: bool = True
    first_block: int = 1
    spare_columns: int = 0
    host_lengths: bool = False

    @property
    def rows(self) -> tuple[StepRequest, ...]:
        return self.requests + (StepRequest(0),) * self.padded_rows

    @property
    def query_start_loc(self) -> tuple[int, ...]:
        return tuple(itertools.accumulate((row.query_len for row in self.rows), initial=0))

    @property
    def num_actual_tokens(self) -> int:
        return self.query_start_loc[-1] + self.padded_tokens

    @property
    def max_query_len(self) -> int:
        return max((row.query_len for row in self.rows), default=0)

    def with_blocks_from(self, first_block: int) -> BuildCall:
        """The same step on other blocks."""
        return replace(self, first_block=first_block)

    def block_table(self, setup: BuilderSetup) -> Tensor:
        """Distinct blocks in every column; the rows of padding hold what a runner may leave there."""
        width = setup.table_width + self.spare_columns
        blocks = itertools.count(self.first_block)
        live = [next(blocks) for _ in range(width * len(self.requests))]
        return Tensor("int32", (len(self.rows), width), (*live, *(POISON,) * (width * self.padded_rows)))

    def metadata(self, setup: BuilderSetup) -> Record:
        starts = int32(self.query_start_loc)
        seq_lens = int32([row.seq_len for row in self.rows])
        bounds = [row.seq_len + row.slack for row in self.rows]
        return record(
            "CommonAttentionMetadata",
            query_start_loc=starts,
            query_start_loc_cpu=starts.on_host(),
            seq_lens=seq_lens.on_host() if self.host_lengths else seq_lens,
            num_reqs=len(self.rows),
            num_actual_tokens=self.num_actual_tokens,
            max_query_len=self.max_query_len,
            max_seq_len=max(bounds, default=0),
            block_table_tensor=self.block_table(setup),
            slot_mapping=Tensor("int64", (0,), ()),
            is_prefilling=boolean([row.prefilling for row in self.rows]).on_host() if self.marks else None,
            seq_lens_cpu_upper_bound=int32(bounds).on_host() if self.bounds else None,
        )

    def build(self, setup: BuilderSetup, bind: str = "metadata") -> Call:
        counts = int32([row.accepted for row in self.rows]) if self.counts else None
        arguments: dict[str, Value] = {
            "self": Name("builder"),
            "common_prefix_len": 0,
            "common_attn_metadata": self.metadata(setup),
        }
        keywords: dict[str, Value] = {"num_accepted_tokens": counts}
        if setup.kind == "gdn":
            marked = int32([row.drafts for row in self.rows]).on_host() if self.drafts else None
            keywords["num_decode_draft_tokens_cpu"] = marked
        return Call(
            f"{setup.builder}.build",
            tuple(arguments.items()),
            tuple(keywords.items()),
            bind=bind,
            by_content=True,
        )

    def update(self, setup: BuilderSetup, builder: str = "builder") -> Call:
        """The update of the metadata that were built last for this step's block table, by the builder of that name."""
        arguments: dict[str, Value] = {
            "self": Name(builder),
            "metadata": Name("metadata"),
            "blk_table": self.block_table(setup),
            "slot_mapping": Tensor("int64", (0,), ()),
        }
        return Call(f"{setup.builder}.update_block_table", tuple(arguments.items()), by_content=True)


def setups(
    *, kinds: tuple[str, ...] = tuple(CLASSES), full_cudagraphs: bool | None = None, min_spec: int = 0
) -> st.SearchStrategy[BuilderSetup]:
    """Configurations that their builder accepts, with at least `min_spec` drafts."""
    return st.sampled_from(kinds).flatmap(lambda kind: _setups_of(kind, full_cudagraphs, min_spec))


@cache
def _setups_of(kind: str, full: bool | None, min_spec: int) -> st.SearchStrategy[BuilderSetup]:
    modes = ("align", "none") if kind == "gdn" else ("align", "none", "all")
    small = st.builds(
        BuilderSetup,
        kind=st.just(kind),
        mode=st.sampled_from(modes),
        block_size=st.sampled_from((4, 2, 1, 8)),
        num_spec=st.just(0) if kind == "mamba1" else drafts(min_spec),
        spare_blocks=st.sampled_from((0, 0, 1)),
        max_num_seqs=counts(MOST_SEQS, MANY_ROWS, min_value=1),
        max_cudagraph_capture_size=st.none() | counts(12, MANY_ROWS, min_value=1),
        full_cudagraphs=st.booleans() if full is None else st.just(full),
        chunk_size=st.sampled_from((4, 2, 3, 8, 1)),
        parallel_drafting=st.booleans(),
        decode_context_parallel_size=st.sampled_from((1, 2)),
    )

    @st.composite
    def found(draw: st.DrawFn) -> BuilderSetup:
        wide, setup = draw(seldom(6)), draw(small)
        if not wide:
            return setup
        block_size, chunk_size = draw(_WIDE_BLOCKS), draw(_WIDE_CHUNKS)
        return replace(
            setup, block_size=block_size, max_model_len=WIDE_COLUMNS * block_size, chunk_size=chunk_size
        )

    return found()


MOST_SEQS = 8
"""Requests of an engine, mostly: more and fewer of them than a batch has rows."""
WIDE_COLUMNS = 4
"""Blocks of a request of millions of tokens, whose blocks are as large, so that its table is as narrow as others."""
_WIDE_BLOCKS = st.sampled_from((400, 1600, 7168, 2**22 + 2**12, *(2**28 + 2**12,) * 4))
"""Tokens of a block as they are in the field, and a fourth of 2^24 and of 2^30, with room
for a long chunk above these."""
_WIDE_CHUNKS = st.sampled_from((256, 4, 2**22, 2**28))


def steps(setup: BuilderSetup, *, rows: Rows = "any") -> st.SearchStrategy[BuildCall]:
    """Steps inside the documented domain of the setup's builder, in the runner's order."""
    return _steps_with(*_limits(setup), rows).map(partial(_fitted, setup))


def _limits(setup: BuilderSetup) -> tuple[int, int, int]:
    """Limits of the rows of a step: drafts, computed tokens at most, and where blocks end."""
    return setup.num_spec, setup.max_model_len - 1 - setup.num_spec, setup.block_size


def _fitted(setup: BuilderSetup, step: BuildCall) -> BuildCall:
    return inside_domain(step, setup)


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
    return tuple(sorted(size for size in around if 1 <= size <= longest))


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
    """The step with values for what the documents leave open: a runner that passes less host data promises more."""
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


def captured_step(setup: BuilderSetup, rows: int, padded: int) -> Call:
    """The call with which a runner captures a graph for `rows` decodes and `padded` rows of padding."""
    longest = StepRequest(1 + setup.num_spec, 1, accepted=1 + setup.num_spec, drafts=setup.num_spec)
    common = BuildCall((longest,) * rows, padded_rows=padded).metadata(setup)
    changes = {"max_query_len": 1 + setup.num_spec, "is_prefilling": None, "seq_lens_cpu_upper_bound": None}
    fields = tuple((dict(common.fields) | changes).items())
    arguments = (("self", Name("builder")), ("common_attn_metadata", replace(common, fields=fields)))
    return Call(f"{setup.builder}.build_for_cudagraph_capture", arguments, bind="metadata", by_content=True)


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


DECODE, SHORT = StepRequest(1, 4), StepRequest(2, 7)
DRAFTED = StepRequest(3, 4, drafts=2, accepted=2), StepRequest(2, 7, drafts=1, accepted=3)
WITHOUT_DRAFTS = StepRequest(1, 9, accepted=3)
PROMPT, FIRST = StepRequest(5, 4, prefilling=True), StepRequest(9, 0, prefilling=True)
# Rows of padding whose counts and drafts are those of an earlier step.
STALE = StepRequest(0, accepted=9, drafts=1), StepRequest(0, accepted=0, drafts=0)
# A first token that the engine does not mark as a prompt's.
NEW = StepRequest(1, 0)
PLAIN = (
    BuildCall((DECODE, SHORT)),
    BuildCall((DECODE, PROMPT, FIRST, *STALE)),
    BuildCall((DECODE, NEW)),
    BuildCall((NEW,), marks=False),
    BuildCall((DECODE, PROMPT, FIRST), bounds=False),
    BuildCall((NEW, DECODE), bounds=False),
    BuildCall((DECODE, SHORT), marks=False, bounds=False),
)
SPECULATIVE = (
    BuildCall((*DRAFTED, WITHOUT_DRAFTS, *STALE)),
    BuildCall((*DRAFTED, *STALE), marks=False, bounds=False),
    BuildCall(STALE),
)
WITHOUT_COUNTS = (
    BuildCall((DECODE, SHORT), counts=False),
    BuildCall((DECODE, replace(STALE[0], prefilling=True))),
)
SPECULATIVE_GDN = (
    BuildCall((DECODE, PROMPT, *STALE), counts=False, drafts=False),
    BuildCall((DRAFTED[0], PROMPT, WITHOUT_DRAFTS, FIRST, DRAFTED[1])),
    BuildCall((FIRST, PROMPT, DRAFTED[1], *STALE)),
    BuildCall((*DRAFTED, WITHOUT_DRAFTS, PROMPT, *STALE)),
)
BUILDERS = (("mamba1", 0), ("mamba2", 0), ("mamba2", 2), ("gdn", 0), ("gdn", 2))


def _setups(kind: str, spec: int) -> list[BuilderSetup]:
    """For each mode: graphs up to the default number of rows, up to 4 rows, and none."""
    return [
        BuilderSetup(kind, mode, num_spec=spec, full_cudagraphs=graphs, max_cudagraph_capture_size=largest)
        for mode in ("none", "align", "all")
        if kind != "gdn" or mode != "all"
        for graphs, largest in ((True, None), (True, 4), (False, None))
    ]


def written_sessions() -> Iterator[Session]:
    """Each step with two of the setups of its builder, all of which have steps."""
    for kind, spec in BUILDERS:
        steps = PLAIN + (SPECULATIVE if spec else WITHOUT_COUNTS if kind == "mamba2" else ())
        steps += SPECULATIVE_GDN if spec and kind == "gdn" else ()
        setups = _setups(kind, spec)
        for number, step in enumerate(steps):
            for setup in (setups[number % len(setups)], setups[(number + 4) % len(setups)]):
                yield Session(setup, (inside_domain(step, setup),))


def written_captures() -> Iterator[dict[str, object]]:
    """Captures of no row, of one row, and of as many rows as the setup has, with and without padding."""
    for kind, spec in BUILDERS:
        for setup in _setups(kind, spec):
            if setup.full_cudagraphs:
                most = setup.capture_rows // (1 + spec)
                for rows, padded in ((0, 0), (0, 2), (1, 0), (1, 1), (most, 0)):
                    yield {"setup": setup, "rows": rows, "padded": padded}
