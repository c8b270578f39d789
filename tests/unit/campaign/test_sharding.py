"""The shard that a job of a CI matrix does."""

from __future__ import annotations

import re

import pytest

from statecheck.campaign.plan import shard_of


@pytest.mark.parametrize(
    ("environment", "option", "shard"),
    [
        ({}, "", (0, 1)),
        ({"SHARD": ""}, "", (0, 1)),
        ({"SHARD": "3/3"}, "", (2, 3)),
        ({"SHARD": "3/3"}, "2/8", (1, 8)),
    ],
)
def test_a_job_does_the_shard_of_its_option_or_else_of_its_variable(
    environment: dict[str, str], option: str, shard: tuple[int, int]
) -> None:
    assert shard_of(environment, option) == shard


@pytest.mark.parametrize(
    "text", ["0/8", "9/8", "1/0", "2", "2/", "/8", "-1/8", "2/8/1", "second/8", "2.0/8", "²/8"]
)
def test_a_shard_that_is_none_of_its_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=rf"^shard = {re.escape(repr(text))}, but should be a shard and"):
        shard_of({}, text)
    with pytest.raises(ValueError, match=rf"^SHARD = {re.escape(repr(text))}, but should be a shard and"):
        shard_of({"SHARD": text})
