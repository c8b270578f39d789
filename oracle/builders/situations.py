"""Which situations a builder's step was, once nothing of it was refused."""

from collections.abc import Sequence
from functools import partial

from oracle import marks
from oracle.batch import Split
from oracle.builders.batch import BuilderConfig, Step, StepRow, fits_graph_buffers, is_prefill

_mark = partial(marks.mark, topic="builders.batch")

_NO_ROW = _mark("a builder's step without rows")
_ONE_TOKEN_PROMPT = _mark("a prompt of one token is no decode, though as short as one")
_ONE_TOKEN_CHUNK = _mark("a prompt that goes on with a chunk of one token is no decode")
_SPEC_LIKE_CHUNK = _mark("a prompt chunk is as long as a decode with drafts")
_UNKNOWN = _mark("the host cannot tell prompts from decodes")
_OPTIMISTIC = _mark("the host expects more tokens of a decode than there are")
_ON_DEVICE = _mark("lengths and counts are on the device alone")
_NO_COUNTS = _mark("drafts may come, and nobody says how many were accepted")
_OFFSET = _mark("a decode reads behind some of the tokens that it accepted")
_LAST_OFFSET = _mark("a decode reads behind all tokens that it can have accepted")
_PADDED_PROMPTS = _mark("padded rows stand behind prompts")
_PADDED_GRAPH = _mark("padded rows stand behind decodes in a full graph")
_PADDED_CAPTURE = _mark("a graph is captured with padded rows")
_SPEC_CAPTURE = _mark("a graph is captured for rows with drafts")
_TOO_MANY_ROWS = _mark("more rows than a full graph has buffers for")
_MORE_BLOCKS = _mark("more speculative blocks than drafts")


def note_step(step: Step, config: BuilderConfig, split: Split, kind: str) -> None:
    """Note what a batch without rows of their own for drafts was."""
    note_rows(step, config)
    prefills = step.rows[split.num_decodes :]
    _NO_ROW.reached_if(not step.rows)
    _UNKNOWN.reached_if(step.rows and not step.tells_prefills)
    _PADDED_PROMPTS.reached_if(any(row.is_padding for row in prefills))
    _NO_COUNTS.reached_if(config.num_spec > 0 and not step.has_accepted)
    if not prefills:
        _note_graph(step, config, kind)
    for row in step.rows[: split.num_decodes] if config.num_spec > 0 else ():
        _note_offset(row, config)


def note_rows(step: Step, config: BuilderConfig) -> None:
    """Note what any batch was."""
    _ON_DEVICE.reached_if(not step.on_host)
    _MORE_BLOCKS.reached_if(config.mode != "all" and config.num_speculative_blocks > config.num_spec)
    for row in step.rows:
        if not is_prefill(step, row):
            expected = row.seq_len_upper_bound if step.has_upper_bound else None
            _OPTIMISTIC.reached_if(expected is not None and expected > row.seq_len > 0)
        elif row.query_len == 1:
            (_ONE_TOKEN_CHUNK if row.num_computed > 0 else _ONE_TOKEN_PROMPT).reached()
        else:
            _SPEC_LIKE_CHUNK.reached_if(1 < row.query_len <= 1 + config.num_spec)


def _note_graph(step: Step, config: BuilderConfig, kind: str) -> None:
    if fits_graph_buffers(step, config, kind):
        _PADDED_GRAPH.reached_if(_padded(step.rows))
    else:
        _TOO_MANY_ROWS.reached_if(config.full_cudagraphs)


def note_capture(step: Step) -> None:
    """Note what a graph was captured for."""
    _PADDED_CAPTURE.reached_if(_padded(step.rows))
    _SPEC_CAPTURE.reached_if(step.max_query_len > 1)


def _padded(rows: Sequence[StepRow]) -> bool:
    """Whether there are padded rows behind others."""
    return any(row.is_padding for row in rows) and not rows[0].is_padding


def _note_offset(row: StepRow, config: BuilderConfig) -> None:
    if not row.is_padding and row.accepted is not None:
        _OFFSET.reached_if(1 < row.accepted <= config.num_spec)
        _LAST_OFFSET.reached_if(row.accepted == 1 + config.num_spec)
