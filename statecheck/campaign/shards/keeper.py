"""Puts what was found elsewhere where people of this machine look for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import ModuleType

from statecheck.campaign.corpus import Corpus
from statecheck.campaign.pages.page import write_reports
from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.record_parts import BucketRecord
from statecheck.case import Case
from statecheck.report.markdown import write_report
from statecheck.subject import load


class Keeper:
    """Puts what was found elsewhere into the corpus and the reports of this machine.

    `troubles` says what could not be written; the record has it all the same.
    """

    def __init__(self, corpus: Path, reports: Path, subject: str) -> None:
        self.troubles: list[str] = []
        self._corpus, self._reports, self._subject = Corpus(corpus, reports / "corpus"), reports, subject

    def save(self, buckets: Iterable[BucketRecord]) -> None:
        """Into the corpus, which keeps the smallest case of each."""
        for bucket in buckets:
            self._written(bucket, self._into_corpus)

    def reported(self, bucket: BucketRecord) -> BucketRecord:
        """The bucket with the places of its case and of its own report, which are written."""
        # What a machine calls its corpus and its reports is nothing to go by on another.
        here = replace(bucket, corpus="", report="")
        here = self._written(here, self._into_corpus) or here
        return self._written(here, self._into_reports) or here

    def conclude(self) -> list[str]:
        """All that went wrong."""
        return list(dict.fromkeys([*self.troubles, *self._corpus.troubles]))

    def _written(
        self, bucket: BucketRecord, write: Callable[[BucketRecord], BucketRecord]
    ) -> BucketRecord | None:
        """The bucket, None if it could not be written: a broken case of another machine keeps no other case from its file."""
        if not bucket.case:
            return None
        try:
            return write(bucket)
        except Exception as error:
            self.troubles.append(f"bucket {bucket.id} was not written: {type(error).__name__}: {error}")
            return None

    def _into_corpus(self, bucket: BucketRecord) -> BucketRecord:
        path = self._corpus.add(_case(bucket), first_seen=bucket.first_seen)
        if not path.is_file():
            return bucket
        first_seen = Case.load(path).first_seen or bucket.first_seen
        return replace(bucket, corpus=str(path), first_seen=first_seen)

    def _into_reports(self, bucket: BucketRecord) -> BucketRecord:
        folder = write_report(_case(bucket), self._reports, self._module, note=bucket.note)
        return replace(bucket, report=str(folder.relative_to(self._reports)))

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


def _case(bucket: BucketRecord) -> Case:
    return Case.from_data(bucket.case)


def write_down(record: CampaignRecord, reports: Path, keeper: Keeper) -> CampaignRecord:
    """Write the campaign's folder, its buckets' reports and their cases; returns the record as it is written."""
    buckets = [keeper.reported(bucket) for bucket in record.buckets]
    troubles = dict.fromkeys([*record.troubles, *keeper.conclude()])
    whole = replace(record, buckets=buckets, troubles=list(troubles))
    write_reports(whole, reports / "campaigns" / whole.id)
    return whole
