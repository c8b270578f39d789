"""What a subject says of itself: the variants of the rules that it follows, and how its runners and its buffers are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from oracle.variants import Variants


@dataclass(frozen=True)
class Profile(Variants):
    """A subject's profile; by default that of the documents."""

    blocks_wider_than_steps: bool = True
    """Whether a recurrent block may have more tokens than a step in mode "align", or such a configuration is refused."""
    dummy_batches: bool = True
    """Whether scenarios may run dummy batches, as an engine of a data-parallel group does."""
    drafts_in_prompts: bool = True
    """Whether runners mark drafts of rows that are in their prompt; other runners mark each prompt as a row without drafts."""
    marks_every_decode: bool = False
    """Whether runners mark every decode with its number of drafts, or those that drafted nothing as they mark prefills."""
    pointer_dtype: str = "int64"
    """Of the addresses in lists of pointers. Source: contract 1.8, `MambaCopyBuffers`."""
    copy_size_dtype: str = "int64"
    """Of the sizes in lists of pointers."""

    # Kernels of recurrences (docs/recurrences.md).
    null_slots: tuple[int, ...] = (-1,)
    """The slots that stand for none: a row with such a slot is padding."""
    state_order: str | Mapping[str, str] = field(default="VK", hash=False)
    """In which order a head's state lies in memory: keys next to each other ("VK"), or values ("KV"); or that by function, "VK" where nothing is said."""
    chunk: int = 64
    """Tokens of a chunk of the chunked kernels: a sequence that is continued at a multiple of it gives the same bytes."""
    accumulates: Mapping[str, str] = field(default_factory=dict, hash=False)
    """By function, the type in which a kernel accumulates, "input" for the type of its inputs, or "dot" for what tensor cores make of it: float32 where nothing is said."""
    without_drafts: tuple[str, ...] = ()
    """The functions whose rows have neither drafts nor accepted counts."""
    without_shared_heads: tuple[str, ...] = ()
    """The functions of which each head of values has queries and keys of its own."""
    large_grids: tuple[str, ...] = ()
    """The functions that have kernels of their own for more than 256 pairs of a chunk and a head, whose launch takes seconds on a CPU."""
    lightning: tuple[str, ...] = ()
    """The functions that are lightning attention: in float32, with one decay for a head, and 64 keys and values, or 128 of some decodes; in chunks of 256 tokens."""
    chunks_of_batches: tuple[str, ...] = ()
    """The functions whose chunks go over all rows of a batch, so that the other rows show in the rounding of a row."""


DOCUMENTS = Profile()
