"""Situations of the builders of Mamba-1 and Mamba-2."""

from oracle.builders.base import BaseMetadata, base_metadata, kept_width, updated_block_table
from oracle.builders.batch import BuilderConfig, BuilderStep, as_captured, fits_graph_buffers
from properties.situations.builders.batch import look_at_capture, look_at_split
from statecheck.reference.situations import situations_of, watches

_declare = situations_of("builders.base")

KEPT_WIDE = _declare("a kept table is wider than the buffer of full graphs")
READS_ONE_WRITES_NEXT = _declare("a decode reads one kept block and writes the next")
SEVERAL_KEPT = _declare("a prompt chunk fills several kept blocks")
OTHER_TABLE = _declare("metadata are made again for another group's table")


@watches(base_metadata)
def _metadata(
    answer: BaseMetadata, step: BuilderStep, config: BuilderConfig, kind: str, capture: bool
) -> None:
    taken = as_captured(step) if capture else step
    look_at_split(taken, config, answer.num_decodes, kind)
    if capture:
        look_at_capture(taken)
    if config.mode == "all":
        _look_at_kept(answer)
        in_graph = answer.num_prefills == 0 and fits_graph_buffers(taken, config, kind)
        KEPT_WIDE.reached_if(in_graph and step.rows and len(step.rows[0].blocks) > kept_width(config))


def _look_at_kept(metadata: BaseMetadata) -> None:
    first, last = metadata.block_idx_last_computed_token, metadata.block_idx_last_scheduled_token
    assert first is not None
    assert last is not None
    decodes, filled = slice(metadata.num_decodes), metadata.block_idx_first_scheduled_token_p or ()
    READS_ONE_WRITES_NEXT.reached_if(first[decodes] != last[decodes])
    ends = last[metadata.num_decodes :]
    SEVERAL_KEPT.reached_if(any(end > begin for begin, end in zip(filled, ends, strict=True)))


@watches(updated_block_table)
def _updated(_: BaseMetadata) -> None:
    OTHER_TABLE.reached()
