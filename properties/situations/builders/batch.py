"""Situations of a step's batch, whichever builder it is for."""

from collections.abc import Sequence

from oracle.builders.batch import BuilderConfig, BuilderStep, StepRow, fits_graph_buffers, is_prefill
from statecheck.reference.situations import situations_of

_declare = situations_of("builders.batch")

NO_ROW = _declare("a builder's step without rows")
ONE_TOKEN_PROMPT = _declare("a prompt of one token is no decode, though as short as one")
ONE_TOKEN_CHUNK = _declare("a prompt that goes on with a chunk of one token is no decode")
SPEC_LIKE_CHUNK = _declare("a prompt chunk is as long as a decode with drafts")
UNKNOWN = _declare("the host cannot tell prompts from decodes")
OPTIMISTIC = _declare("the host expects more tokens of a decode than there are")
ON_DEVICE = _declare("lengths and counts are on the device alone")
NO_COUNTS = _declare("drafts may come, and the runner does not say how many were accepted")
OFFSET = _declare("a decode reads behind some of the tokens that it accepted")
LAST_OFFSET = _declare("a decode reads behind all tokens that it can have accepted")
PADDED_PROMPTS = _declare("padded rows stand behind prompts")
PADDED_GRAPH = _declare("padded rows stand behind decodes in a full graph")
PADDED_CAPTURE = _declare("a graph is captured with padded rows")
SPEC_CAPTURE = _declare("a graph is captured for rows with drafts")
TOO_MANY_ROWS = _declare("more rows than a full graph has buffers for")
MORE_BLOCKS = _declare("more speculative blocks than drafts")
MANY_ROWS = _declare("a builder's step with more rows than 64")
MANY_DRAFTS = _declare("a builder's step with five drafts or more in a row")
LONG_REQUEST = _declare("a request of a builder's step is longer than a float32 counts")
LONG_CHUNK = _declare("a prompt chunk of a builder's step has more tokens than a byte counts")


def look_at_split(step: BuilderStep, config: BuilderConfig, num_decodes: int, kind: str) -> None:
    """Look at a batch without rows of their own for drafts."""
    look_at_rows(step, config)
    prefills = step.rows[num_decodes:]
    NO_ROW.reached_if(not step.rows)
    UNKNOWN.reached_if(step.rows and not step.tells_prefills)
    PADDED_PROMPTS.reached_if(any(row.is_padding for row in prefills))
    NO_COUNTS.reached_if(config.num_spec > 0 and not step.has_accepted)
    if not prefills:
        _look_at_graph(step, config, kind)
    for row in step.rows[:num_decodes] if config.num_spec > 0 else ():
        _look_at_offset(row, config)


def look_at_rows(step: BuilderStep, config: BuilderConfig) -> None:
    """Look at any batch."""
    ON_DEVICE.reached_if(not step.on_host)
    MORE_BLOCKS.reached_if(config.mode != "all" and config.num_speculative_blocks > config.num_spec)
    MANY_ROWS.reached_if(len(step.rows) > 64)
    LONG_REQUEST.reached_if(any(row.seq_len > 2**24 for row in step.rows))
    for row in step.rows:
        if not is_prefill(step, row):
            MANY_DRAFTS.reached_if(5 < row.query_len <= 1 + config.num_spec)
            expected = row.seq_len_upper_bound if step.has_upper_bound else None
            OPTIMISTIC.reached_if(expected is not None and expected > row.seq_len > 0)
        elif row.query_len > 255:
            LONG_CHUNK.reached()
        elif row.query_len == 1:
            (ONE_TOKEN_CHUNK if row.num_computed > 0 else ONE_TOKEN_PROMPT).reached()
        elif not row.is_padding:
            SPEC_LIKE_CHUNK.reached_if(row.query_len <= 1 + config.num_spec)


def _look_at_graph(step: BuilderStep, config: BuilderConfig, kind: str) -> None:
    if fits_graph_buffers(step, config, kind):
        PADDED_GRAPH.reached_if(_padded(step.rows))
    else:
        TOO_MANY_ROWS.reached_if(config.full_cudagraphs)


def look_at_capture(step: BuilderStep) -> None:
    """Look at what a graph is captured for."""
    PADDED_CAPTURE.reached_if(_padded(step.rows))
    SPEC_CAPTURE.reached_if(step.max_query_len > 1)


def _padded(rows: Sequence[StepRow]) -> bool:
    """Whether there are padded rows behind others."""
    return any(row.is_padding for row in rows) and not rows[0].is_padding


def _look_at_offset(row: StepRow, config: BuilderConfig) -> None:
    if not row.is_padding and row.accepted is not None:
        OFFSET.reached_if(1 < row.accepted <= config.num_spec)
        LAST_OFFSET.reached_if(row.accepted == 1 + config.num_spec)
