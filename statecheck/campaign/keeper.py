"""Where failing cases go: into a corpus, and into reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

from statecheck.campaign.corpus import Corpus
from statecheck.case import Case


class Keeper:
    """Puts cases into a corpus and writes their reports.

    What cannot be written is a trouble and no exception: what was found must not be lost with its report.

    Args:
        reports: folder of the reports.
        module: the subject's, for scripts that reproduce.
        trouble: called with a sentence for each thing that could not be written, possibly more than once.
    """

    def __init__(
        self, corpus: Path, reports: Path, module: Callable[[], ModuleType], trouble: Callable[[str], None]
    ) -> None:
        self.reports = reports
        self._corpus = Corpus(corpus)
        self._module, self._trouble = module, trouble

    def keep(self, case: Case, first_seen: Mapping[str, str]) -> str:
        """Put a case into the corpus, which keeps the smallest of a bucket; the bucket's file, "" where the corpus did not take it.

        Args:
            first_seen: date and commit, for a bucket that was never met before.
        """
        path = self._corpus.add(case, first_seen=dict(first_seen))
        for sentence in self._corpus.troubles:
            self._trouble(sentence)
        return str(path) if path is not None else ""

    def report(self, case: Case, note: str = "") -> str:
        """Write a report; its folder, "" where it could not be written."""
        from statecheck.report.markdown import write_report

        try:
            return str(write_report(case, self.reports, self._module(), note=note))
        except Exception as error:
            self._trouble(not_written(self.reports, error))
            return ""


def not_written(place: Path, error: Exception) -> str:
    """A sentence about something that could not be written."""
    why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    return f"{place} could not be written: {why}"
