"""What a subject says of itself: the variants of the rules that it follows, and how its runners and its buffers are."""

from __future__ import annotations

from dataclasses import dataclass

from oracle.variants import Variants


@dataclass(frozen=True)
class Profile(Variants):
    """A subject's profile; by default that of the documents."""

    blocks_wider_than_steps: bool = True
    """Whether a recurrent block may have more tokens than a step in mode "align", or such a configuration is refused."""
    drafts_in_prompts: bool = True
    """Whether runners mark drafts of rows that are in their prompt; other runners mark each prompt as a row without drafts."""
    marks_every_decode: bool = False
    """Whether runners mark every decode with its number of drafts, or those that drafted nothing as they mark prefills."""
    pointer_dtype: str = "int64"
    """Of the addresses in lists of pointers. Source: contract 1.8, `MambaCopyBuffers`."""
    copy_size_dtype: str = "int64"
    """Of the sizes in lists of pointers."""


DOCUMENTS = Profile()
