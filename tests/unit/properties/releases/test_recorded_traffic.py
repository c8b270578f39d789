"""Recorded traffic: prompts share exactly what their hash ids share, and a line that is none is refused by name."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from properties.releases.recorded_traffic import BLOCK, Arrival, TrafficSummary, arrivals, summary

FACTORS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
GOOD = {"timestamp": 3, "input_length": 700, "output_length": 9, "hash_ids": [4, 5]}


def line(n: int, ids: Iterable[int], *, out: int = 1, at: int = 0) -> dict[str, Any]:
    return {"timestamp": at, "input_length": n, "output_length": out, "hash_ids": list(ids)}


def trace(path: Path, *lines: object) -> Path:
    """A trace of these lines: text as it is, with \\udcXX for a byte that is no text, everything else as JSON."""
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


@st.composite
def traces(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Requests of up to three blocks, some of which list fewer hash ids than their length allows."""
    lists = draw(st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=4))
    return [line(draw(st.integers(max(0, BLOCK * len(ids) - 511), 3 * BLOCK)), ids) for ids in lists]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file for the examples of one property, one after the other."""
    return tmp_path_factory.mktemp("traffic") / "trace.jsonl"


def test_a_request_is_read_as_it_is_written(path: Path) -> None:
    (first,) = arrivals(trace(path, line(3, [7], out=5, at=11)), factor=1)
    assert first == Arrival(0, 11, (2 * 7 * 512, 2 * 7 * 512 + 2, 2 * 7 * 512 + 4), 5)


def test_requests_are_numbered_in_the_order_of_the_lines_without_blank_ones(path: Path) -> None:
    read = list(arrivals(trace(path, line(1, [0], at=5), "", line(1, [0], at=4), " "), factor=1))
    assert [(arrival.number, arrival.timestamp) for arrival in read] == [(0, 5), (1, 4)]


@pytest.mark.parametrize(
    ("n", "factor", "scaled"), [(0, 1, 1), (1, 512, 1), (512, 512, 1), (513, 512, 2), (9, 4, 3)]
)
def test_lengths_are_divided_and_rounded_up_at_least_to_one(
    path: Path, n: int, factor: int, scaled: int
) -> None:
    (read,) = arrivals(trace(path, line(n, [], out=n)), factor=factor)
    assert (len(read.prompt), read.output_length) == (scaled, scaled)


@given(records=traces(), factor=st.sampled_from(FACTORS))
def test_tokens_are_equal_exactly_where_hash_ids_and_positions_are(
    scratch: Path, records: list[dict[str, Any]], factor: int
) -> None:
    meant: dict[int, object] = {}
    for arrival, request in zip(arrivals(trace(scratch, *records), factor=factor), records, strict=True):
        for position, token in enumerate(arrival.prompt):
            block, inside = divmod(position, BLOCK // factor)
            covered = block < len(request["hash_ids"])
            meaning = (request["hash_ids"][block], inside) if covered else (arrival.number, "alone", position)
            assert token >= 0
            assert meant.setdefault(token, meaning) == meaning
    assert len(set(meant.values())) == len(meant)


def test_a_summary_of_a_worked_example(path: Path) -> None:
    counted = summary(trace(path, line(1000, [0, 1], out=8), line(600, [0, 2], out=3)), 4)
    assert counted == TrafficSummary(requests=2, tokens_in=250 + 150, tokens_out=2 + 1, tokens_seen=128)
    assert counted.share_seen == 0.32


def test_lines_are_read_as_they_are_asked_for(path: Path) -> None:
    reading = arrivals(trace(path, GOOD, "nonsense"), factor=1)
    assert next(reading).timestamp == 3
    with pytest.raises(ValueError, match="line 2"):
        next(reading)


@pytest.mark.parametrize("records", [(), ("", "  ")])
def test_a_trace_without_requests_is_refused(path: Path, records: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"trace = 0 requests, but should be at least 1 \[.*trace.jsonl\]"):
        list(arrivals(trace(path, *records), factor=1))


REFUSED: list[tuple[object, str]] = [
    ("{", "text = no JSON"),
    ("\udcff", "'utf-8' codec can't decode byte 0xff"),
    ("[" * 100_000, "text = no JSON"),
    ([1], "request = [1], but should be a _Record"),
    *(
        ({name: value for name, value in GOOD.items() if name != missing}, "request fields = ")
        for missing in GOOD
    ),
    (GOOD | {"timestamp": -1}, "request.timestamp = -1, but should be >= 0"),
    (GOOD | {"input_length": 1.0}, "request.input_length = 1.0, but should be an int"),
    (GOOD | {"output_length": True}, "request.output_length = True, but should be an int"),
    (GOOD | {"hash_ids": None}, "request.hash_ids = None, but should be a tuple"),
    (GOOD | {"hash_ids": [4, "5"]}, "request.hash_ids[1] = '5', but should be an int"),
    (GOOD | {"hash_ids": [-4]}, "request.hash_ids[0] = -4, but should be >= 0"),
    (GOOD | {"hash_ids": [1, 2, 3]}, "len(hash_ids) = 3, but should be <= 2 for 700 tokens"),
]


@pytest.mark.parametrize(("bad", "said"), REFUSED)
def test_a_line_that_is_no_request_is_refused_with_its_number_field_value_and_rule(
    path: Path, bad: object, said: str
) -> None:
    with pytest.raises(ValueError, match=r"trace\.jsonl") as caught:
        list(arrivals(trace(path, GOOD, "", bad), factor=1))
    assert str(caught.value).startswith(said)
    assert str(caught.value).endswith("[trace.jsonl, line 3]")
    assert len(str(caught.value)) < 200
