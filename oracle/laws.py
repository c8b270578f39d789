"""Laws as fields: what breaks each of them in a sentence, and beside it what the law says."""

from dataclasses import field
from typing import Any


def law(sentence: str) -> Any:
    """A field that is "nothing" where the law holds, and else says what breaks it."""
    return field(default="nothing", metadata={"sentence": sentence})
