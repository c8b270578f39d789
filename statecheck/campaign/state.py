"""What a campaign knows: of every property, of every bucket, of marks, kernels and troubles."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from oracle.situations.registry import Situation
from statecheck.campaign.keeper import Keeper
from statecheck.campaign.launched import records_of
from statecheck.campaign.processes.tasks import Explored, Found, unit_name
from statecheck.campaign.property_state import PropertyState, record_of
from statecheck.campaign.record import CampaignRecord
from statecheck.campaign.record_parts import (
    BucketRecord,
    CorpusRecord,
    MarkRecord,
)
from statecheck.case import Case
from statecheck.case.bucket import Bucket, bucket_of
from statecheck.execution.registry import Property
from statecheck.kernels.launch_counts import How
from statecheck.subject.remarks import take_remarks

REPLAYED = "Replayed from the corpus."


class CampaignState:
    """All of it. `record` is what it comes to.

    Args:
        skipped: reasons by property that does not apply, or by unit.
        expected: gives the marks that should be reached. The sources of all rules are read for it, when the marks are asked for.
        first_seen: date and commit for buckets that were never met before.
        keeper: takes cases that workers could not write.
        kept_before: ids of the buckets that were kept when the campaign began.
        configurations: by property, those of the subject that it is explored with, each for itself. `property_states` has one for each unit
            (see `tasks.unit_name`).
    """

    def __init__(
        self,
        properties: Iterable[Property],
        skipped: dict[str, str],
        expected: Callable[[], Iterable[Situation]],
        first_seen: dict[str, str],
        keeper: Keeper | None = None,
        kept_before: Collection[str] = (),
        configurations: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self.property_states: dict[str, PropertyState] = {}
        for row in properties:
            applies = row.name not in skipped
            for name in (configurations.get(row.name) if applies else None) or ("",):
                reason = skipped.get(row.name, "") or skipped.get(unit_name(row.name, name), "")
                self.property_states[unit_name(row.name, name)] = PropertyState(
                    row, reason, configuration=name
                )
        self.names = frozenset(property_state.name for property_state in self.property_states.values())
        """Of the properties."""
        self.shrinking = 0.0
        """Seconds that workers have spent on inputs that had failed."""
        self.buckets: dict[str, BucketRecord] = {}
        self._expected = expected
        self._marked: dict[str, MarkRecord] = {}
        """Marks that were reached, and, once the marks are asked for, those that should be."""
        self.corpus: list[CorpusRecord] = []
        self.launched: Counter[How] = Counter()
        self.troubles: list[str] = []
        self.remarks: dict[str, str] = {}
        """About the subject, by kind: the first sentence of each."""
        self.canary = ""
        self.first_failure: dict[str, float] = {}
        self.first_seen, self.keeper = first_seen, keeper
        self._kept_before = frozenset(kept_before)
        # This process has imported the subject, too.
        self.remark(take_remarks())

    @cached_property
    def marks(self) -> dict[str, MarkRecord]:
        """The marks that should be reached."""
        found = {}
        for one in self._expected():
            found[one.name] = self._marked.setdefault(one.name, MarkRecord(one.name, ""))
            found[one.name].topic = one.topic
        return found

    @property
    def examples(self) -> int:
        return sum(property_state.examples for property_state in self.property_states.values())

    def trouble(self, sentence: str) -> None:
        if sentence not in self.troubles:
            self.troubles.append(sentence)

    def remark(self, remarks: dict[str, str]) -> None:
        self.remarks = remarks | self.remarks

    def standing_of(self, case: Case) -> PropertyState | None:
        """The standing that a case belongs to; None where its property, or its configuration, was not chosen."""
        unit = unit_name(case.property_name, case.model)
        return self.property_states.get(unit) or self.property_states.get(case.property_name)

    def progress(self, unit: str, examples: int, compared: int = 0) -> None:
        """Add examples to a unit. Examples of the canary are not counted."""
        if unit in self.property_states:
            self.property_states[unit].counts.examples += examples
            self.property_states[unit].counts.compared += compared

    def note_failure(self, at: float) -> None:
        """An example has failed; only the first one of the campaign is noted."""
        self.first_failure = self.first_failure or {"examples": self.examples, "seconds": round(at, 2)}

    def explored(self, message: Explored, at: float, unit: str = "", *, isolated: bool = False) -> None:
        """An exploration has ended.

        Args:
            unit: that it was of; "" where the subject has no configurations.
        """
        self.property_states[unit or message.property].explored(message, isolated=isolated)
        self.shrinking += message.shrinking
        self.count_launches(message.launched)
        for trouble in message.troubles:
            self.trouble(trouble)
        self.remark(message.remarks)
        self._mark(message, at)
        for found in message.found:
            self.find(found, at)
        self._count(message.failing)

    def count_launches(self, launched: Counter[How]) -> None:
        """Kernels were launched."""
        self.launched += launched

    def _mark(self, message: Explored, at: float) -> None:
        for name, examples in message.marks.items():
            mark = self._marked.setdefault(name, MarkRecord(name, ""))
            if mark.at is None:
                mark.at, mark.property = round(at, 1), message.property
            mark.examples += examples

    def _count(self, failing: dict[str, int]) -> None:
        for bucket, examples in failing.items():
            if bucket in self.buckets:
                self.buckets[bucket].examples += examples

    def find(self, found: Found, at: float) -> None:
        """A case was found. Where the worker could not put it into the corpus, this process does."""
        case = Case.from_data(found.case)
        if not found.corpus:
            found = replace(found, corpus=self.keep(case))
        bucket = bucket_of(case)
        known = self.buckets.get(bucket.id)
        if known is None:
            self.buckets[bucket.id] = self._bucket(bucket, case, found, at)
        elif (not found.shrunk, _size(found.case)) < (not known.shrunk, _size(known.case)):
            known.case, known.message, known.report = found.case, case.message, found.report
            known.note = found.note
        self.buckets[bucket.id].shrunk |= found.shrunk
        property_state = self.standing_of(case)
        if property_state is not None:
            buckets = (bucket.id, *found.buckets[1:])
            property_state.found(buckets, case.message, found.report, shrunk=found.shrunk)

    def keep(self, case: Case) -> str:
        """Put a case into the corpus that no worker has put there; its file, "" where there is none."""
        path = self.keeper.keep(case, self.first_seen) if self.keeper is not None else ""
        if path:
            self.trouble(f"a case was not on disk, and the coordinator has written it: {path}")
        return path

    def _bucket(self, bucket: Bucket, case: Case, found: Found, at: float) -> BucketRecord:
        return BucketRecord(
            id=bucket.id,
            property=bucket.property,
            rule=bucket.rule,
            fault=bucket.fault,
            subject=bucket.subject,
            sentence=case.sentence,
            message=case.message,
            examples=0,
            at=round(at, 1),
            report=found.report,
            corpus=found.corpus,
            first_seen=self._since(found.corpus),
            note=found.note,
            case=found.case,
            shrunk=found.shrunk,
            property_id=case.property_id or self._id_of(case.property_name),
            kept_before=bucket.id in self._kept_before,
        )

    def _id_of(self, name: str) -> str:
        """The id that a property has now, of which cases from before there were ids say nothing."""
        ids = (
            property_state.tested.id
            for property_state in self.property_states.values()
            if property_state.name == name
        )
        return next(ids, "")

    def _since(self, corpus: str) -> dict[str, str]:
        """When it was first seen, according to the corpus."""
        try:
            return dict(Case.load(Path(corpus)).first_seen) or dict(self.first_seen)
        except (OSError, ValueError):
            return dict(self.first_seen)

    def replayed(self, result: CorpusRecord, path: Path, case: dict[str, Any]) -> None:
        """A case of the corpus was replayed before everything else."""
        self.corpus.append(result)
        if result.verdict == "UNREADABLE":
            self.trouble(f"{path} of the corpus cannot be replayed: {result.message}")
        if result.verdict == "FAILED":
            found = Case.from_data(case)
            bucket = bucket_of(found)
            self.find(Found((bucket.id,), case, "", str(path), REPLAYED), 0.0)

    def fill(self, record: CampaignRecord) -> CampaignRecord:
        """Write what is known into the record."""
        together: dict[str, list[PropertyState]] = {}
        for property_state in self.property_states.values():
            together.setdefault(property_state.name, []).append(property_state)
        record.properties = [record_of(property_states) for property_states in together.values()]
        record.buckets = list(self.buckets.values())
        record.marks = list(self.marks.values())
        record.corpus, record.troubles, record.canary = self.corpus, self.troubles, self.canary
        record.first_failure = self.first_failure
        record.launched = records_of(self.launched)
        record.remarks = [*self.remarks.values()]
        return record


def _size(case: dict[str, Any]) -> int:
    return len(json.dumps(case))
