"""`python -m lab.words`, a part of `make lint`: words that make a sentence hard to read, in names, texts and pages.

Most readers are maintainers of serving engines who read English as a second language. A sentence is understood at the first
reading if it has a subject, a verb, an object, and a noun for each thing. A word below says that a noun is missing, or
is a picture where the field has a term. `--count` prints how often each occurs.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lab.sources import ROOT, TEXTS, files

WORDS: Mapping[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""Each with what is clearer."""
UNREAD = ("lab/words.toml",)
"""This list, and names that stand in saved files."""


@dataclass(frozen=True)
class Use:
    """A word in a line of a file."""

    file: str
    line: int
    word: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.word}, but should be {WORDS[self.word]}"


@dataclass(frozen=True)
class Vocabulary:
    """Finds words, also as parts of names: `WORD`, `word_of`, `aWord` and `WordList` have the word `word`."""

    words: Sequence[str]

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        lower, capitalized, upper = (
            "|".join(map(change, self.words)) for change in (str.lower, str.capitalize, str.upper)
        )
        return re.compile(
            rf"(?<![A-Za-z])(?:{lower})(?![a-z])|(?:{capitalized})(?![a-z])|(?<![A-Za-z])(?:{upper})(?![A-Za-z])"
        )

    def uses(self, file: str, text: str) -> Iterator[Use]:
        """In the order of the text."""
        for number, line in enumerate(text.splitlines(), 1):
            yield from (Use(file, number, match[0].lower()) for match in self._pattern.finditer(line))


def uses(words: Sequence[str]) -> Iterator[Use]:
    """Every use of these words."""
    vocabulary = Vocabulary(words)
    for name, path in (*files(*TEXTS), ("Makefile", ROOT / "Makefile")):
        if name not in UNREAD:
            yield from vocabulary.uses(name, path.read_text(encoding="utf-8"))


def main(arguments: Sequence[str]) -> int:
    """Print complaints, or counts; the exit code."""
    if arguments[:1] == ["--count"]:
        words = arguments[1:] or list(WORDS)
        counts = Counter(use.word for use in uses(words))
        print("\n".join(f"{word:12} {counts[word]:5}" for word in words))
        return 0
    found = list(uses(list(WORDS)))
    for use in found:
        print(use, file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
