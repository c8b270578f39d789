"""Metadata builders: their configuration, and the steps that a runner hands them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from hypothesis import strategies as st

from properties.strategies.batch import POISON
from properties.strategies.bounds import MANY_ROWS, counts, drafts, seldom
from properties.strategies.situations import NamedSituations, noted
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
class BuilderSetup(NamedSituations):
    """What a builder is constructed with. `spare_blocks` are speculative blocks beyond the speculative tokens."""

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

    def conditions(self) -> dict[str, bool]:
        return {
            **{kind: self.kind == kind for kind in CLASSES},
            **{f"mode {mode}": self.mode == mode for mode in ("none", "align", "all")},
            "speculation": self.num_spec > 0,
            "full graphs": self.full_cudagraphs,
            "buffers smaller than the batch may be": self.capture_rows < self.max_num_seqs,
            "spare speculative blocks": self.spare_blocks > 0,
            "parallel drafting": self.parallel_drafting,
            "decode context parallelism": self.decode_context_parallel_size > 1,
            "five drafts or more": self.num_spec >= 5,
            "room for more requests than 64": self.max_num_seqs > 64,
            "requests of more than 2^24 tokens": self.max_model_len > 2**24,
            "requests of more than 2^30 tokens": self.max_model_len > 2**30,
        }


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
class BuildCall(NamedSituations):
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

    def conditions(self) -> dict[str, bool]:
        rows = self.requests
        decodes = [row for row in rows if not row.prefilling]
        return {
            "no row": not self.rows,
            "decodes only": bool(rows) and len(decodes) == len(rows),
            "prefills only": bool(rows) and not decodes,
            "decodes before prefills": 0 < len(decodes) < len(rows),
            "one-token first chunk": any(row.query_len == 1 and not row.num_computed for row in rows),
            "one-token prompt tail": any(
                row.query_len == 1 and row.prefilling and row.num_computed for row in rows
            ),
            "drafted nothing after accepting several": any(
                row.query_len == 1 and row.accepted > 1 and row.drafts <= 0 for row in decodes
            ),
            "some drafted and some did not": len({row.query_len for row in decodes}) > 1,
            "padding rows": self.padded_rows > 0,
            "padding rows behind prefills": self.padded_rows > 0 and len(decodes) < len(rows),
            "padded tokens": self.padded_tokens > 0,
            "no prompt marks": not self.marks,
            "no host lengths": not self.bounds,
            "no host knowledge of prompts": not self.marks and not self.bounds,
            "optimistic bounds": self.bounds and any(row.slack for row in rows),
            "no counts": not self.counts,
            "a row without drafts between rows with drafts": any(
                before.drafts >= 0 > row.drafts and after.drafts >= 0
                for before, row, after in itertools.combinations(decodes[:8], 3)
            ),
            "a decode with five drafts or more": any(row.query_len > 5 for row in decodes),
            "five drafts accepted or more": any(row.accepted > 5 for row in decodes),
            "more rows than 64": len(rows) > 64,
            "a prompt chunk of 255 tokens or more": any(
                row.prefilling and row.query_len >= 255 for row in rows
            ),
            "a row of more than 2^24 tokens": any(row.num_computed > 2**24 for row in rows),
            "a row of more than 2^30 tokens": any(row.num_computed > 2**30 for row in rows),
        }


def setups(
    *, kinds: tuple[str, ...] = tuple(CLASSES), full_cudagraphs: bool | None = None, min_spec: int = 0
) -> st.SearchStrategy[BuilderSetup]:
    """Configurations that their builder accepts, with at least `min_spec` drafts."""
    return st.sampled_from(kinds).flatmap(lambda kind: _setups_of(kind, full_cudagraphs, min_spec)).map(noted)


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
