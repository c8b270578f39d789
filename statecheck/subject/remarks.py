"""What is to be said of a subject beside its failures, a sentence for each kind of thing."""

from __future__ import annotations

_noted: dict[str, str] = {}
_reported: set[str] = set()


def note(what: str, sentence: str) -> None:
    """Remark something about the subject, once in a process for each kind of thing.

    Args:
        what: the kind, such as "the working folder".
    """
    if what not in _reported:
        _reported.add(what)
        _noted[what] = sentence


def take_remarks() -> dict[str, str]:
    """Sentences by kind that were noted since the last call of this function."""
    taken = dict(_noted)
    _noted.clear()
    return taken
