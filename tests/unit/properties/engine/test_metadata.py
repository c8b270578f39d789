"""The engine notices metadata that send a forward to states that are not its own."""

from __future__ import annotations

import pytest

from properties.engine.world import World
from statecheck.execution.example import ExecutionContext
from tests.unit.properties.engine.driven import (
    BUILD,
    EVERY_BOUNDARY,
    GDN,
    IN_ONE_COLUMN,
    PADDED,
    TEN,
    TWO,
    Tamper,
    case,
    edited,
    says,
    world,
)

GDN_BUILD = "GDNAttentionMetadataBuilder.build"
READS = "the forward of a reads row 0 of the window of layer0's conv state from block"


@pytest.mark.parametrize(
    ("kept", "words", "tamper", "said"),
    [
        case(
            "leave out a request",
            world(),
            f"{TWO}; step a+2 b+2",
            edited("num_decodes", 0, 1),
            "the metadata of group 0 leave out b",
        ),
        case(
            "tokens of the next request",
            world(),
            f"{TWO}; step a+1 b+1",
            edited("query_start_loc_d", 1, 3),
            "the metadata of group 0 send tokens [0, 1, 2] through a's state, but should send [0, 1], once",
        ),
        case(
            "block of another request",
            world(),
            f"{TWO}; step a+2 b+2",
            edited("state_indices_tensor_d", 0, 5),
            f"{READS} 5, column 2 of b = that of the last of 8 tokens of b, but should read that of the last of 8 tokens of a",
        ),
        case(
            "too large an accepted count",
            world(),
            f"{TEN}; step a+2=2; step a+2",
            edited("num_accepted_tokens", 0, 3),
            f"{READS} 3, column 3 of a = that of the last of 11 tokens of a, but should read that of the last of 10 tokens of a",
        ),
        case(
            "too small an accepted count",
            IN_ONE_COLUMN,
            "new a 5; step a; step a+2=3; step a",
            edited("num_accepted_tokens", 0, 2),
            f"{READS} 1, column 0 of a = that of the last of 5 tokens of a, but should read that of the last of 6 tokens of a",
        ),
        case(
            "an accepted count of nothing",
            world(),
            f"{TEN}; step a+2",
            edited("num_accepted_tokens", 0, 0),
            "num_accepted_tokens = 0, but should be >= 1",
        ),
        case(
            "an accepted count beyond the columns",
            world(),
            f"{TEN}; step a+2",
            edited("num_accepted_tokens", 0, 4),
            "metadata of group 0 have fewer entries than their kernels read",
        ),
        case(
            "a block beyond the pool",
            world(),
            f"{TEN}; step a+2",
            edited("state_indices_tensor_d", 0, 32),
            "the forward of a reads block 32, but should read one of its own",
        ),
        case(
            "a first chunk that reads",
            world(),
            "new a 10; step a",
            edited("has_initial_states_p", 0, 1),
            "the forward of a reads block 1, but should start from zeros at its first token",
        ),
        case(
            "a chunk that starts from zeros",
            world(),
            TEN,
            edited("has_initial_states_p", 0, 0),
            "the forward of a starts from zeros, but should read the state after 8 tokens",
        ),
        case(
            "a draft's state goes to the published block",
            world(),
            f"{TEN}; step a+2",
            edited("state_indices_tensor_d", 2, 1),
            "the forward of a writes to block 1 of group 0, which is not its own",
        ),
        case(
            "a first chunk that goes to the next column",
            world(),
            "new a 10; step a",
            edited("state_indices_tensor_p", 0, 2),
            "after the forward, row 0 of layer0's conv state in block 1, column 1 of a = "
            "memory that was never written, but should be that of the last of 6 tokens of a",
        ),
        case(
            "a draft's state goes one column too far",
            world(),
            f"{TEN}; step a+1",
            edited("state_indices_tensor_d", 1, 4),
            "after the forward, layer0's temporal state in block 3, column 3 of a = "
            "memory that was never written, but should be the state after 12 tokens of a and its drafts",
        ),
        case(
            "a row of padding that is not skipped",
            PADDED,
            "new a 4; new b 4; step a b; pad a b",
            edited("state_indices_tensor_d", 2, 1),
            "a row of padding writes to block 1 of group 0, but should be skipped",
        ),
        case(
            "mode all, the column before",
            EVERY_BOUNDARY,
            "new a 9; step a-5; step a",
            edited("block_idx_last_computed_token", 0, 0),
            f"{READS} 1, which the prefix cache has = that of the last of 2 tokens of a, but should read that of the last of 3 tokens of a",
        ),
        case(
            "mode all, a boundary that is left out",
            EVERY_BOUNDARY,
            "new a 9; step a",
            edited("block_idx_first_scheduled_token_p", 0, 1),
            "after the forward, row 0 of layer0's conv state in block 1, column 0 of a = "
            "memory that was never written, but should be that of the last of 2 tokens of a",
        ),
    ],
)
def test_metadata_that_mislead_the_forward_are_named(
    trial: ExecutionContext, kept: World, words: str, tamper: Tamper, said: str
) -> None:
    number = words.count("step") + words.count("pad") - 1
    assert says(trial, kept, words, BUILD, number, tamper) == f"in step {number}, {said}"


@pytest.mark.parametrize(
    ("words", "tamper", "said"),
    [
        case(
            "leave out a request that drafts",
            f"{TWO}; step a+2 b+2",
            edited("num_spec_decodes", 0, 1),
            "the metadata of group 0 leave out b",
        ),
        case(
            "block of another request",
            f"{TWO}; step a+2 b",
            edited("spec_state_indices_tensor", 0, 5),
            f"{READS} 5, column 2 of b = that of the last of 8 tokens of b, but should read that of the last of 8 tokens of a",
        ),
        case(
            "tokens of another request",
            f"{TWO}; step a+2 b",
            edited("spec_token_indx", 0, 3),
            "the metadata of group 0 send tokens [3, 1, 2] through b's state, but should send [3], once",
        ),
        case(
            "a first chunk that reads",
            "new a 10; step a",
            edited("has_initial_state", 0, 1),
            "the forward of a reads block 1, but should start from zeros at its first token",
        ),
    ],
)
def test_metadata_of_gdn_that_mislead_the_forward_are_named(
    trial: ExecutionContext, words: str, tamper: Tamper, said: str
) -> None:
    number = words.count("step") - 1
    assert says(trial, GDN, words, GDN_BUILD, number, tamper) == f"in step {number}, {said}"
