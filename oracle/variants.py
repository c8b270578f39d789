"""Variants of rules: where the documents and an implementation differ on purpose.

A rule that has variants is handed which one of each is asked about. A subject says which ones it follows; by default that is the documents'.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variants:
    """A variant of each rule that has several; by default that of the documents."""

    # Builders and cache configuration (documents 1 to 3).
    padding_block: int = -1
    """What the state indices of a decode row of padding hold: the mark by which kernels skip a row."""
    tails_decode: bool = False
    """Whether a prompt's last token alone, behind a state, is a decode."""
    starts_in_buffers: bool = True
    """Whether starts of decodes lie in the builder's buffer, or in the runner's, which is as lasting."""
    kept_columns: str = "tokens"
    """What else the buffer of mode "all" has columns for: speculative "tokens" or their "blocks"."""
    keeps_all_blocks: bool = True
    """Whether there is a mode "all", whose fields the metadata have."""
    kept_pages_of_drafts: bool = False
    """Whether a request's budget in mode "all" has pages for speculative blocks. Source: contract 1.7."""
    gdn_plain_decodes: bool = False
    """Whether GDN keeps apart decodes that drafted nothing and accepted one token, for which column 0 is right."""
    gdn_counts_padding: bool = False
    """Whether GDN counts rows of padding behind prefills as prefills."""
    gdn_padded_tokens: bool = True
    """Whether GDN counts tokens of padding behind prefills as theirs."""
    gdn_chunks_of_decodes: bool = True
    """Whether GDN's chunks cover the decodes beside prefills, or the prefills alone."""

    # Align mode (document 4).
    spare_state_slots: bool = True
    """Whether a context has a slot for each copy function and layer, or for each state that a layer has."""
    skips_missing_states: bool = True
    """Whether nothing is copied from or to null blocks and missing columns, or these are refused. Source: contract 4."""
    preprocess_skips_rows: bool = True
    """Whether V2's preprocess skips rows without a slot, or these are refused. Source: contract 4."""
    tables_by_slot: bool = False
    """Whether V2's copies look a request up in the block table's row of its slot, or of its place in the batch."""


DOCUMENTS = Variants()
