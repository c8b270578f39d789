"""Text of a subject or a file, for a terminal or the log of a CI job, or a page: characters that would steer these are escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, TextIO

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff"
    "\ufeff\ufff9-\uffff\U000e0000-\U000e007f]"
)
"""Controls, among them those of a terminal; what turns the direction of writing or cannot be seen; what XML forbids."""


def visible(text: str) -> str:
    """`text` with an escape for each character that XML forbids, such as NUL, or that would deceive a reader."""
    return _HIDDEN.sub(lambda found: _escape(ord(found[0])), text)


def _escape(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def on_one_line(text: str) -> str:
    """`text` without line breaks."""
    return " ".join(visible(text).split())


def brief(text: str, room: int) -> str:
    """`text` on one line of at most `room` characters."""
    # Of a long text only so much is looked at as can be shown.
    line = on_one_line(text[: 4 * room])
    return line if len(line) <= room else line[: room - 1] + "…"


def counted(number: int, one: str, many: str = "") -> str:
    """Such as "1 bucket" and "2 buckets"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def first_names(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


_MARGIN = "\n  | "


def said(text: str) -> str:
    """Text from outside: without controls, and with a margin, so that no line of it looks like ours."""
    return _MARGIN.join(visible(text).replace("\t", " ").splitlines())


def cell(text: str) -> Any:
    """Text from outside, in a table of rich: nothing in it is markup."""
    from rich.text import Text

    return Text(on_one_line(text))


def say(text: str, stream: TextIO | None = None) -> None:
    """Print text whose lines are ours, in which others may have put controls."""
    print(visible(text), file=stream, flush=True)


_ALIKE = 0.85
"""How alike two names are, of 1, if one may be a slip for the other: chunk_offset and chunk_offsets."""


def meant_by(name: str, among: Iterable[str]) -> str:
    """The name that this one may be a slip for, "" if there is none."""
    return next(iter(get_close_matches(name, list(among), n=1, cutoff=_ALIKE)), "")


def listed(text: str) -> tuple[str, ...]:
    """The names in a text such as "a,b"."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
