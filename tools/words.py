"""`python -m tools.words`, a part of `make lint`: words that make a sentence hard to read, in names, texts and pages.

Most readers are maintainers of serving engines who read English as a second language. A sentence is understood at the first
reading if it has a subject, a verb, an object, and a noun for each thing. A word below says that a noun is missing, or
is a picture where the field has a term. `--count` prints how often each occurs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tools.docs.citations import FOLDERS, ROOT

WORDS: Mapping[str, str] = {
    "whoever": "the noun: the caller, the process",
    "somebody": "the noun: a reader, another process",
    "nobody": "a passive, or the noun: unwritten, no request",
    "hire": "spawn, start",
    "hired": "spawned, started",
    "hires": "spawns, starts",
    "bury": "remove, on_worker_exit",
    "buried": "removed",
    "song": "canary_identity",
    "sing": "canary_identity",
    "sings": "runs the canary",
    "journey": "round trip",
    "witness": "attribution",
    "stranger": "another request",
    "heard": "known, reported",
    "unheard": "canary_attempts",
    "listened": "installed, read",
    "spelled": "format_value, written",
    "deaf": "no_heartbeat",
}
"""Each with what is clearer."""
UNREAD = ("tools/words.py", "statecheck/case/former.py", "tests/case/test_former.py")
"""This list, and names that stand in saved files."""
_SUFFIXES = frozenset({".css", ".j2", ".js", ".md", ".py", ".toml", ".yaml", ".yml"})


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


def complaints(root: Path = ROOT) -> list[str]:
    """A line for each word that should be another one."""
    return [str(use) for file, text in _texts(root) for use in Vocabulary(list(WORDS)).uses(file, text)]


def counts(words: Sequence[str], root: Path = ROOT) -> dict[str, int]:
    """How often each word occurs."""
    found = dict.fromkeys(words, 0)
    vocabulary = Vocabulary(words)
    for file, text in _texts(root):
        for use in vocabulary.uses(file, text):
            found[use.word] += 1
    return found


def _texts(root: Path) -> Iterator[tuple[str, str]]:
    files = [*root.glob("*.md"), *root.glob("*.py"), *root.glob("*.toml"), root / "Makefile"]
    for folder in FOLDERS:
        files += [path for path in (root / folder).rglob("*") if path.suffix in _SUFFIXES]
    for path in sorted(files):
        name = path.relative_to(root).as_posix()
        if name not in UNREAD:
            yield name, path.read_text(encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Print complaints, or counts; the exit code."""
    if arguments[:1] == ["--count"]:
        for word, count in counts(arguments[1:] or list(WORDS)).items():
            print(f"{word:12} {count:5}")
        return 0
    found = complaints()
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
