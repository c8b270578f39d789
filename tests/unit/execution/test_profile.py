"""Rules that differ between releases, worked by hand beside those of the documents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oracle.builders.base import BaseMetadata, base_metadata
from oracle.builders.batch import BuilderConfig, BuilderStep, StepRow
from oracle.builders.gdn import GDNMetadata, gdn_metadata
from oracle.profile import DOCUMENTS, Profile
from oracle.types import pages_per_request

CONFIG = BuilderConfig("none", 4, 0, 0, 8, None, False, 16, chunk_size=4)
SPECULATIVE = replace(CONFIG, num_spec=2, num_speculative_blocks=2)
TAIL = StepRow(1, 6, (5, 6, 7), prefilling=True, accepted=1, drafts=-1)
PROMPT = StepRow(4, 4, (8, 9, 10), prefilling=True, accepted=1, drafts=-1)
DECODE = StepRow(1, 9, (11, 12, 13), prefilling=False, accepted=1, drafts=-1)
PADDING = StepRow(0, 0, (0, 0, 0), prefilling=False, accepted=1, drafts=-1)


def step(*rows: StepRow, tokens: int | None = None) -> BuilderStep:
    lens = [row.query_len for row in rows]
    return BuilderStep(rows, sum(lens) if tokens is None else tokens, max(lens), True, False, True, True)


def mamba(*rows: StepRow, config: BuilderConfig = CONFIG, **rules: Any) -> BaseMetadata:
    """What the builder of Mamba-2 gives in a release with these rules."""
    return base_metadata(step(*rows), replace(config, profile=Profile(**rules)), "mamba2")


def gdn(
    *rows: StepRow, config: BuilderConfig = CONFIG, tokens: int | None = None, **rules: Any
) -> GDNMetadata:
    return gdn_metadata(step(*rows, tokens=tokens), replace(config, profile=Profile(**rules)))


def split_of(found: BaseMetadata | GDNMetadata) -> tuple[int, int]:
    return found.num_decodes, found.num_prefills


def test_a_prompt_s_last_token_is_a_decode_where_the_profile_says_so() -> None:
    assert split_of(mamba(TAIL, PROMPT)) == (0, 2)
    assert split_of(mamba(TAIL, PROMPT, tails_decode=True)) == (1, 1)
    assert split_of(gdn(TAIL, PROMPT, tails_decode=True)) == (1, 1)


def test_a_prompt_s_first_token_is_a_prefill_in_every_profile() -> None:
    assert split_of(mamba(replace(TAIL, seq_len=1), tails_decode=True)) == (0, 1)


def test_a_row_of_padding_has_the_block_by_which_its_release_skips_rows() -> None:
    assert mamba(DECODE, PADDING).state_indices_tensor_d == ((11,), (-1,))
    assert mamba(DECODE, PADDING, padding_block=0).state_indices_tensor_d == ((11,), (0,))


def test_starts_of_decodes_may_lie_in_the_runner_s_buffer() -> None:
    config = replace(SPECULATIVE, full_cudagraphs=True)
    assert "query_start_loc_d" in mamba(DECODE, config=config).owned
    owned = mamba(DECODE, config=config, starts_in_buffers=False).owned
    assert owned == {"state_indices_tensor_d", "num_accepted_tokens"}


@pytest.mark.parametrize(("columns", "width"), [("tokens", 6), ("blocks", 7)])
def test_a_kept_table_is_as_wide_as_the_profile_s_buffer(columns: str, width: int) -> None:
    config = replace(SPECULATIVE, mode="all", num_speculative_blocks=3, full_cudagraphs=True)
    kept = replace(DECODE, blocks=tuple(range(1, 10)))
    table = mamba(kept, config=config, kept_columns=columns).state_indices_tensor_d
    assert table == (tuple(range(1, 1 + width)),)


def test_a_kept_budget_may_have_pages_for_drafts() -> None:
    assert pages_per_request("all", 2, 4, 10, DOCUMENTS) == 3
    assert pages_per_request("all", 2, 4, 10, Profile(kept_pages_of_drafts=True)) == 5


def test_gdn_may_count_padding_behind_prefills_as_prefills() -> None:
    assert split_of(gdn(PROMPT, PADDING)) == (0, 1)
    assert split_of(gdn(PROMPT, PADDING, gdn_counts_padding=True)) == (0, 2)


def test_gdn_may_count_padded_tokens_on_no_side() -> None:
    assert gdn(PROMPT, tokens=6).num_prefill_tokens == 6
    assert gdn(PROMPT, tokens=6, gdn_padded_tokens=False).num_prefill_tokens == 4


def test_gdn_s_chunks_may_be_those_of_prefills_alone() -> None:
    assert gdn(DECODE, PROMPT).chunk_offsets == (0, 1, 2)
    found = gdn(DECODE, PROMPT, gdn_chunks_of_decodes=False)
    assert found.chunk_offsets == (0, 1)
    assert found.chunk_indices == ((0, 0),)
    assert found.has_initial_state == (True, False)


def test_gdn_may_keep_a_plain_decode_apart_only_if_it_accepted_one_token() -> None:
    def apart(*rows: StepRow) -> GDNMetadata:
        return gdn(*rows, config=SPECULATIVE, gdn_plain_decodes=True)

    several = replace(DECODE, accepted=2)
    assert apart(DECODE).num_spec_decodes == 0
    assert apart(several).num_spec_decodes == 1
    assert apart(DECODE, several).spec_sequence_masks == (False, True)


def test_gdn_takes_every_marked_row_for_one_with_drafts_once_a_row_has_drafts() -> None:
    drafted = replace(DECODE, query_len=3, drafts=2)
    none = replace(DECODE, drafts=0)
    found = gdn(drafted, none, config=SPECULATIVE, gdn_plain_decodes=True)
    assert found.spec_sequence_masks == (True, True)
    assert gdn(none, config=SPECULATIVE, gdn_plain_decodes=True).spec_sequence_masks is None
