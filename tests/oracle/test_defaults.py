"""Constants are the documents', and what is not given is what a step without it has."""

from __future__ import annotations

from typing import Any

import pytest

from oracle import batch, chunks, types
from oracle.align.context import CacheGroup, StateMetadata, StateSpec, StateView
from oracle.align.memory import Move, StateTensor
from oracle.builders.base import BaseMetadata
from oracle.builders.batch import BuilderStep
from oracle.layout import ByteRun, StateGeometry
from oracle.lifecycle import blocks, named_states
from oracle.lifecycle.known_states import KnownStates, LiveRequest
from oracle.lifecycle.ledger import ConvRows
from oracle.lifecycle.observed import ForwardRow, ObservedStep
from oracle.lifecycle.requests import Geometry, Request, ScheduledRequest, Wish
from oracle.lifecycle.tables import BlockList
from oracle.profile import DOCUMENTS, Profile

GEOMETRY = StateGeometry(1, (1,), 1, 1)


@pytest.mark.parametrize(
    ("made", "given", "defaults"),
    [
        (Move, (0, 1, 2), (0,)),
        (StateTensor, ("p", GEOMETRY, "conv"), (0,)),
        (StateGeometry, (1, (1,), 1, 1), (0,)),
        (StateSpec, (4, ()), (0, "align")),
        (CacheGroup, ((),), (None,)),
        (StateView, ((), (), 1), ("", 0)),
        (StateMetadata, (), (0,) * 7),
        (BuilderStep, ((), 0, 0, False, False, False), (False, True)),
        (ConvRows, (3,), (0,)),
        (LiveRequest, ("r", 1, [5]), ([], 0, 0, {})),
        (ForwardRow, ("r", ()), (0, (), (), (), [], (), ())),
        (Geometry, (), ("align", 4, 0, 1, 64, 8, 64)),
        (ObservedStep, (), ({}, (), (), {}, (), (), (), 0, {}, (), False, (), None, (), (), ())),
        (Wish, ("r",), (1, ())),
        (ScheduledRequest, ("r", 0, 1, (), (), (), ()), (False, False, False, True, 0)),
        (BlockList, (), ([], [], -1, False, 0)),
    ],
)
def test_what_is_not_given_is_this(made: Any, given: tuple[Any, ...], defaults: tuple[Any, ...]) -> None:
    assert made(*given) == made(*given, *defaults)


COUNTS = ("num_prefills", "num_prefill_tokens", "num_decodes", "num_decode_tokens", "num_reqs")


def test_a_new_request_has_nothing_computed_and_no_worker_knows_it() -> None:
    new = Request("r", [5], 1, [0], 1)
    assert (new.computed, new.seen) == (0, False)


def test_what_requests_have_in_common_is_not_shown_with_each() -> None:
    assert repr(KnownStates()) == "KnownStates(requests={}, others={}, vocabulary=1000003)"
    shown = repr(LiveRequest("r", 1, [5]))
    assert [name for name in ("index", "vocabulary") if name in shown] == []


def test_metadata_have_no_chunks_unless_a_builder_cuts_them() -> None:
    counts: dict[str, Any] = dict.fromkeys(COUNTS, 0)
    made = BaseMetadata(**counts, state_indices_tensor_p=(), state_indices_tensor_d=(), seq_lens=())
    assert (made.prep_initial_states, made.chunk_size) == (False, 0)


def test_a_run_of_bytes_is_one_whatever_elements_it_has() -> None:
    assert ByteRun(0, 4) == ByteRun(0, 4, 2)
    assert ByteRun(0, 4).elements == 4


def test_short_extends_of_a_token_are_decodes_unless_said_otherwise() -> None:
    assert batch.split_decodes_and_prefills((0, 1, 3), 3, 2) == (1, 1, 1, 2)
    assert batch.split_decodes_and_prefills((0, 3, 4), 4, 3, 3) == (2, 0, 4, 0)


def test_the_profile_of_the_documents() -> None:
    assert (
        Profile()
        == DOCUMENTS
        == Profile(
            padding_block=-1,
            tails_decode=frozenset(),
            starts_in_buffers=True,
            kept_columns="tokens",
            keeps_all_blocks=True,
            host_bounds=True,
            kept_pages_of_drafts=False,
            gdn_plain_decodes=False,
            drafts_in_prompts=True,
            gdn_counts_padding=False,
            gdn_padded_tokens=True,
            gdn_chunks_of_decodes=True,
            pointer_dtype="int64",
            copy_size_dtype="int64",
            spare_state_slots=True,
            skips_missing_states=True,
            preprocess_skips_rows=True,
            tables_by_slot=False,
            marks_every_decode=False,
        )
    )


def test_constants_are_the_documents() -> None:
    assert (types.PAD_SLOT_ID, types.NULL_BLOCK_ID, blocks.NULL_BLOCK, named_states.UNKNOWN) == (-1, 0, 0, -1)
    assert (chunks.CONV_BLOCK_M, chunks.FLA_CHUNK_SIZE) == (8, 64)
    assert types.GRAPH_MODES == {
        "NONE": 0,
        "PIECEWISE": 1,
        "FULL": 2,
        "FULL_DECODE_ONLY": (2, 0),
        "FULL_AND_PIECEWISE": (2, 1),
    }
    assert types.GRAPH_SUPPORT == {
        "NEVER": 0,
        "UNIFORM_SINGLE_TOKEN_DECODE": 1,
        "UNIFORM_BATCH": 2,
        "ALWAYS": 3,
    }
