"""Text as TOML has it."""

from __future__ import annotations

import re

_ESCAPED = re.compile(r'["\\\x00-\x1f\x7f]')
_SURROGATE = re.compile("[\ud800-\udfff]")


def toml_string(text: str) -> str:
    """A basic string of TOML that is read as `text`. Half a surrogate pair, which no file in UTF-8 has, is written as its escape.

    JSON's strings are no such strings: they have a letter beyond 16 bits as two escapes, which TOML refuses.
    """
    whole = _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)
    escaped = _ESCAPED.sub(lambda one: f"\\{one[0]}" if one[0] in '"\\' else f"\\u{ord(one[0]):04x}", whole)
    return f'"{escaped}"'
