"""Parts of lines of IR: what stands in parentheses, in strings, before and behind a colon."""

from __future__ import annotations

import re

from statecheck.kernels.source.ir import NotUnderstoodError, outside_brackets


def balanced(text: str, start: int) -> tuple[str, str]:
    """What is inside of the parenthesis at `start`, and what is behind it."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return text[start + 1 : at], text[at + 1 :]
    raise NotUnderstoodError(f"a parenthesis in {text[:60]}")


def without_locations(text: str) -> str:
    while (at := text.find(" loc(")) >= 0:
        _, rest = balanced(text, at + 4)
        text = text[:at] + rest
    return text


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def without_strings(text: str) -> str:
    return _STRING.sub('""', text)


def split_types(rest: str) -> tuple[str, str]:
    """An operation's text before and behind the colon that introduces types."""
    plain = _STRING.sub(lambda match: "_" * len(match.group()), rest)
    colons = [at for at in outside_brackets(plain, ":") if plain[at - 1] == " "]
    if not colons:
        return rest, ""
    return rest[: colons[-1]].strip(), rest[colons[-1] + 1 :].strip()
