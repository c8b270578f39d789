"""The rules that releases follow on purpose where they differ from the documents."""

from __future__ import annotations

from dataclasses import replace

from oracle.profile import DOCUMENTS, Profile
from subjects.vllm.outside_align import align_rules


def profile_of(release: tuple[int, ...]) -> Profile:
    """The profile of the rules for a release, such as (0, 33, 0)."""
    return replace(
        DOCUMENTS,
        **align_rules(release),
        padding_block=0,
        starts_in_buffers=False,
        kept_columns="blocks",
        kept_pages_of_drafts=True,
        tails_decode=True,
        drafts_in_prompts=False,
        gdn_chunks_of_decodes=False,
        gdn_counts_padding=release < (0, 31),
        gdn_padded_tokens=release < (0, 31),
        keeps_all_blocks=release < (0, 32),
        gdn_plain_decodes=release < (0, 32),
        # Of releases before this one it was not read since when.
        blocks_wider_than_steps=release >= (0, 33),
    )
