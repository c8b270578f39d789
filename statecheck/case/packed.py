"""Steps and cases in a record of a worker's log, as JSON without line breaks."""

from __future__ import annotations

import json
from collections.abc import Sequence

from statecheck.case.case import Case
from statecheck.case.codec import DECODER, encode
from statecheck.case.values import Step
from statecheck.data.json_files import parse

_RULE = "steps or a case"


def pack(content: Sequence[Step] | Case) -> bytes:
    """The bytes that `unpack` reads.

    Raises:
        ValueError: a value is no plain data.
    """
    data = content.to_data() if isinstance(content, Case) else [encode(step) for step in content]
    return json.dumps(data, separators=(",", ":")).encode()


def unpack(data: bytes) -> list[Step] | Case:
    """The steps, or the case, that `pack` was given; executes nothing.

    Raises:
        ValueError: anything else than what `pack` writes.
    """
    found = parse(data.decode(), _RULE)
    if isinstance(found, dict):
        return Case.from_data(found)
    steps: list[Step] = DECODER.decode(found, list[Step], "steps")
    return steps
