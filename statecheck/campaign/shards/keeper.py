"""Puts what was found elsewhere where people of this machine look for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import ModuleType

from statecheck.campaign.keeper import Keeper
from statecheck.campaign.pages.page import write_reports
from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.record_parts import BucketRecord
from statecheck.case import Case
from statecheck.subject import load


class BucketKeeper:
    """Puts buckets of other machines into the corpus and the reports of this one.

    `troubles` says what could not be written; the record has it all the same.
    """

    def __init__(self, corpus: Path, reports: Path, subject: str) -> None:
        self.troubles: list[str] = []
        self._subject = subject
        self._keeper = Keeper(corpus, reports, lambda: self._module, self.troubles.append)

    def save(self, buckets: Iterable[BucketRecord]) -> None:
        """Into the corpus, which keeps the smallest case of each."""
        for bucket in buckets:
            self._saved(bucket)

    def reported(self, bucket: BucketRecord) -> BucketRecord:
        """The bucket with the places of its case and of its own report, which are written."""
        here = self._saved(bucket)
        try:
            case = Case.from_data(bucket.case)
        except Exception:
            # It has been said that this bucket was not written.
            return here
        folder = self._keeper.report(case, here.note)
        return replace(here, report=str(Path(folder).relative_to(self._keeper.reports)) if folder else "")

    def _saved(self, bucket: BucketRecord) -> BucketRecord:
        """The bucket with the place of its case. A broken case of another machine keeps no other case from its file."""
        # What a machine calls its corpus and its reports is nothing to go by on another.
        here = replace(bucket, corpus="", report="")
        try:
            kept = self._keeper.keep(Case.from_data(bucket.case), bucket.first_seen) if bucket.case else ""
            first_seen = Case.load(Path(kept)).first_seen if kept else {}
            return replace(here, corpus=kept, first_seen=first_seen or bucket.first_seen)
        except Exception as error:
            self.troubles.append(f"bucket {bucket.id} was not written: {type(error).__name__}: {error}")
            return here

    @cached_property
    def _module(self) -> ModuleType:
        """The subject's, or one without a place where it cannot be imported: that of a machine that only adds up."""
        try:
            return load(self._subject).module
        except Exception as error:
            self.troubles.append(f"scripts that reproduce know no path of {self._subject}: {error}")
            nowhere = ModuleType(self._subject)
            nowhere.__file__ = None
            return nowhere


def write_down(record: CampaignRecord, reports: Path, keeper: BucketKeeper) -> CampaignRecord:
    """Write the campaign's folder, its buckets' reports and their cases; returns the record as it is written."""
    buckets = [keeper.reported(bucket) for bucket in record.buckets]
    troubles = dict.fromkeys([*record.troubles, *keeper.troubles])
    whole = replace(record, buckets=buckets, troubles=list(troubles))
    write_reports(whole, reports / "campaigns" / whole.id)
    return whole
