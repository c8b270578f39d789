"""Situations of the builder of Gated DeltaNet."""

from oracle.builders.batch import BuilderConfig, BuilderStep, as_captured, graph_limit
from oracle.builders.gdn import GDNMetadata, drafts_of, gdn_metadata, is_decode
from properties.situations.builders.batch import look_at_capture, look_at_rows, look_at_split
from statecheck.reference.situations import situations_of, watches

_declare = situations_of("builders.gdn")

SPEC_BEHIND = _declare("a row with drafts stands behind one without")
SPEC_MIXED = _declare("rows with drafts beside prompts")
PLAIN_DECODE = _declare(
    "a decode that may not have accepted drafts counts as a prefill beside rows with drafts"
)
SPEC_ALONE = _declare("a decode without drafts is read behind those that it accepted")
SPEC_NONE = _declare("a decode that was offered no draft counts as one with drafts")
SPEC_PADDED = _declare("padded rows stand behind those with drafts in a full graph")
SPEC_PADDED_MIXED = _declare("padded rows stand behind prompts and rows with drafts")
SPEC_TOO_MANY = _declare("tokens of rows with drafts do not fit the buffers of full graphs")


@watches(gdn_metadata)
def _metadata(answer: GDNMetadata, step: BuilderStep, config: BuilderConfig, capture: bool) -> None:
    taken = as_captured(step) if capture else step
    if answer.spec_sequence_masks is None:
        look_at_split(taken, config, answer.num_decodes, "gdn")
    else:
        look_at_rows(taken, config)
        _look_at_speculation(answer, taken, answer.spec_sequence_masks)
        _look_at_graph(answer, taken, config)
    if capture:
        look_at_capture(taken)


def _look_at_speculation(metadata: GDNMetadata, step: BuilderStep, masks: tuple[bool, ...]) -> None:
    mixed, with_drafts = metadata.num_prefills > 0, sum(masks)
    drafted = [drafts_of(step, row) for row, spec in zip(step.rows, masks, strict=True) if spec]
    others = [row for row, spec in zip(step.rows, masks, strict=True) if not spec]
    SPEC_ALONE.reached_if(-1 in drafted)
    SPEC_NONE.reached_if(0 in drafted)
    SPEC_BEHIND.reached_if(not all(masks[:with_drafts]))
    SPEC_MIXED.reached_if(mixed)
    SPEC_PADDED_MIXED.reached_if(mixed and any(row.is_padding for row in step.rows))
    PLAIN_DECODE.reached_if(any(is_decode(step, row) and row.query_len == 1 for row in others))


def _look_at_graph(metadata: GDNMetadata, step: BuilderStep, config: BuilderConfig) -> None:
    """Look at a batch that has rows with drafts alone, beside padding."""
    if metadata.num_prefills > 0:
        return
    too_many = metadata.num_spec_decode_tokens > graph_limit(config, "gdn")
    SPEC_TOO_MANY.reached_if(config.full_cudagraphs and too_many)
    SPEC_PADDED.reached_if(metadata.owned and len(step.rows) > metadata.num_spec_decodes)
