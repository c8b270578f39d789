"""A request ends behind its stop token or after the tokens that it may say, and neither before nor behind that."""

from __future__ import annotations

import pytest

from oracle.lifecycle.live import LiveLaws
from oracle.lifecycle.observed import ObservedStep

PROMPT = (1, 2, 3)


def broken(said: int, *, most: int | None, stop_after: int = 0, ended: bool) -> list[tuple[str, str]]:
    """The broken laws where a request of so many tokens at most, of which one is its stop token, says so many and ends, or goes on."""
    laws = LiveLaws((4, 8), window=2, num_blocks=1)
    laws.add("r0", PROMPT, most)
    request = laws.requests["r0"]
    tokens = tuple(request.token(len(PROMPT) + at) for at in range(said))
    request.stop = request.token(len(PROMPT) + stop_after - 1) if stop_after else None
    seen = ObservedStep(outputs={"r0": tokens}, ended=["r0"] * ended)
    return [(sentence, wanted) for law, sentence, wanted, _ in laws.step(seen) if law == "output"]


@pytest.mark.parametrize(
    ("said", "most", "stop_after", "ended"),
    [
        (4, 4, 0, True),
        (3, 4, 0, False),
        (2, 4, 2, True),
        (4, 4, 4, True),
        (9, None, 2, True),
        (0, 4, 0, False),
    ],
)
def test_a_request_that_ends_where_it_should_breaks_nothing(
    said: int, most: int | None, stop_after: int, ended: bool
) -> None:
    assert broken(said, most=most, stop_after=stop_after, ended=ended) == []


def test_a_request_that_goes_on_behind_its_stop_token_breaks_the_law() -> None:
    assert broken(3, most=4, stop_after=2, ended=False) == [
        ("r0 says 3 tokens", "should end after 2, by its stop token")
    ]


def test_a_request_that_goes_on_past_its_length_breaks_the_law() -> None:
    assert broken(5, most=4, ended=False) == [("r0 says 5 tokens", "should end after 4, by its length")]


def test_a_request_that_ends_early_breaks_the_law() -> None:
    assert broken(1, most=4, stop_after=2, ended=True) == [
        ("r0 ends after 1 token", "should end after 2, by its stop token")
    ]
    assert broken(0, most=4, ended=True) == [("r0 ends after 0 tokens", "should end after 4, by its length")]
