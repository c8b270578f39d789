"""The rules that releases follow on purpose where they differ from the documents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oracle.profile import DOCUMENTS, Profile
from subjects.vllm.outside_align import align_rules

CHANGES: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    (
        (0, 20),
        {
            "padding_block": 0,
            "starts_in_buffers": False,
            "kept_columns": "nothing",
            "tails_decode": frozenset({"gdn"}),
            "gdn_counts_padding": True,
            "gdn_plain_decodes": True,
            "drafts_in_prompts": False,
            "host_bounds": False,
            "blocks_wider_than_steps": False,
        },
    ),
    ((0, 22), {"kept_columns": "blocks"}),
    ((0, 22, 1), {"kept_pages_of_drafts": True, "host_bounds": True}),
    ((0, 22), {"tails_decode": frozenset({"base", "mamba1", "mamba2", "gdn"})}),
    ((0, 23), {"gdn_chunks_of_decodes": False}),
    ((0, 31), {"gdn_counts_padding": False, "gdn_padded_tokens": False}),
    ((0, 32), {"keeps_all_blocks": False, "gdn_plain_decodes": False}),
    # Of releases before this one it was not read since when.
    ((0, 33), {"blocks_wider_than_steps": True}),
)
"""Since which release which field is what, of those about builders and configuration."""


def profile_of(release: tuple[int, ...]) -> Profile:
    """The profile of the rules for a release, such as (0, 25, 1)."""
    profile = replace(DOCUMENTS, **align_rules(release))
    for since, changes in CHANGES:
        if release >= since:
            profile = replace(profile, **changes)
    return profile
