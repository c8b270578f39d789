"""Functions that adapters of engines share."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from torch.distributed import DistNetworkError

from subjects.kit.drafts import above, chain_of, parents_of, tree_of
from subjects.kit.ports import on_a_free_port


@pytest.mark.parametrize(
    ("said", "failures", "starts"),
    [("EADDRINUSE", 2, 3), ("EADDRINUSE", 99, None), ("the network is unreachable", 1, 1)],
)
def test_another_port_is_tried_where_one_is_taken(said: str, failures: int, starts: int | None) -> None:
    begun: list[int] = []

    def start() -> str:
        begun.append(1)
        if len(begun) <= failures:
            raise DistNetworkError(said)
        return "listens"

    with nullcontext() if failures == 2 else pytest.raises(DistNetworkError):
        assert on_a_free_port(start) == "listens"
    assert starts in (None, len(begun))


@pytest.mark.parametrize(
    ("good", "drafts"), [(0, [6, 7, 8]), (2, [7, 8, 8]), (3, [7, 8, 9])], ids=["none", "two", "all"]
)
def test_a_chain_begins_with_as_many_right_drafts_as_are_to_be_accepted(good: int, drafts: list[int]) -> None:
    assert chain_of([7, 8, 9], good) == drafts


def test_a_tree_has_wrong_drafts_beside_the_right_ones() -> None:
    tokens, parents = tree_of([7, 8, 9, 10, 11], 2, 4)
    assert (tokens, parents) == ([6, 7, 7, 8], [-1, 0, 0, 2, 2])
    assert above(parents)[4].tolist() == [True, False, True, False, True]


def test_parents_follow_from_first_children_and_next_siblings() -> None:
    assert parents_of([1, -1, 3, -1, -1], [-1, 2, -1, 4, -1]) == [-1, 0, 0, 2, 2]
