"""The records that a campaign's record consists of: of properties, failures, marks, cases and known defects."""

from __future__ import annotations

import builtins
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from statecheck.execution.counts import Counts
from statecheck.execution.verdict import TELLING, Status
from statecheck.util.text import first_names

_MOST_NAMES, _SEVERAL = 6, 2


@dataclass
class PropertyRecord:
    """One property: what became of it, with how many examples in how many seconds of an engine's time.

    Of a subject with configurations, such as the models of a library: `statuses` has the status of each, `reasons` why it is so,
    `configurations` the compared examples, `unverified` why nothing can be said of it. `status` is then the worst of them that says something.

    `status` is a value of `verdict.Status`. `launches`: its examples launch kernels. In `compared` of the examples, `parts` rows, fields and bytes that the subject's
    functions returned were compared; `outside` and `not_offered` ended before, and `no_evidence` came to their end without what the property is about, by the reason; `discarded`
    ones the property did not want. `unchecked` are places that were observed, and that no rule says anything about. `known` are failing examples of
    known defects, by the defect's name, and `report` is the folder of the latest report. `id` is what a person types for it, "" in
    records from before there were ids.
    """

    name: str
    sentence: str
    kind: str
    status: str
    examples: int = 0
    seconds: float = 0.0
    launches: bool = False
    detail: str = ""
    compared: int = 0
    outside: dict[str, int] = field(default_factory=dict)
    not_offered: dict[str, int] = field(default_factory=dict)
    discarded: int = 0
    known: dict[str, int] = field(default_factory=dict)
    report: str = ""
    no_evidence: dict[str, int] = field(default_factory=dict)
    unchecked: dict[str, int] = field(default_factory=dict)
    id: str = ""
    parts: int = 0
    configurations: dict[str, int] = field(default_factory=dict)
    unverified: dict[str, str] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def short(self) -> str:
        """What tables call it."""
        return self.id or self.name

    @property
    def named(self) -> str:
        """Its name, and its id where it has one."""
        return f"{self.name} ({self.id})" if self.id else self.name

    @property
    def counts(self) -> Counts:
        """What became of its examples."""
        outside, not_offered = Counter(self.outside), Counter(self.not_offered)
        no_evidence, unchecked = Counter(self.no_evidence), Counter(self.unchecked)
        numbers = (self.examples, self.compared, outside, not_offered, self.discarded)
        models = Counter(self.configurations), dict(self.unverified)
        return Counts(*numbers, no_evidence, unchecked, self.parts, *models)

    def with_status(self, *wanted: Status) -> list[str]:
        """The configurations with one of these statuses."""
        values = {one.value for one in wanted}
        return [name for name, status in self.statuses.items() if status in values]

    @property
    def share(self) -> str:
        """Such as "passed for 17 of 30 models; FALSIFIED for 1: mamba; not tested for 12: …"; "" with one configuration or none."""
        if len(self.statuses) < _SEVERAL:
            return ""
        passed = f"passed for {len(self.with_status(Status.PASSED))} of {len(self.statuses)} models"
        others = {status: self.with_status(status) for status in Status if status is not Status.PASSED}
        shown = (
            f"{status.value} for {len(names)}: {first_names(names, _MOST_NAMES)}"
            for status, names in others.items()
            if names
        )
        return "; ".join([passed, *shown])

    @property
    def lacked_time(self) -> bool:
        """Whether it is not tested because there were too few examples to say why not."""
        few = max(TELLING, TELLING * len(self.statuses))
        return self.status == Status.NOT_TESTED.value and self.examples < few

    @property
    def rate(self) -> float:
        """Examples per second of an engine's time."""
        return self.examples / self.seconds if self.seconds > 0 else 0.0


@dataclass
class BucketRecord:
    """One thing that is wrong: every failing example of the same property, rule, fault and subject.

    Args:
        id: of the bucket; the name of its file in the corpus begins with the property's and ends with it.
        rule: what the subject broke, see `bucket.Bucket`.
        fault: kind of device fault or of the sanitizer's finding, "" for a wrong answer.
        message: what was seen instead.
        examples: failing examples that were seen of it.
        at: seconds from the campaign's beginning to the first of them.
        report: folder of its own report below the folder of reports; "" where none could be written.
        corpus: its file in the corpus; "" where none could be written.
        first_seen: {"date": "2026-11-21", "commit": "0123456789ab"} of the first campaign that met it.
        note: such as that it did not repeat.
        shrunk: its case is the smallest that was found, and not only one that was met.
        case: the JSON of its shrunk `Case`.
        property_id: the property's id, "" where it has none.
        kept_before: the folder in which this campaign keeps its cases had one of the bucket when the campaign began.
    """

    id: str
    property: str
    rule: str
    fault: str
    subject: str
    sentence: str
    message: str
    examples: int
    at: float
    report: str = ""
    corpus: str = ""
    first_seen: dict[str, str] = field(default_factory=dict)
    note: str = ""
    case: dict[str, Any] = field(default_factory=dict)
    shrunk: bool = True
    property_id: str = ""
    kept_before: bool = False

    @builtins.property
    def named(self) -> str:
        """The property's name, and its id where it has one."""
        return f"{self.property} ({self.property_id})" if self.property_id else self.property


EFFECTS = "effects of features"
"""The topic of marks that are what features of a port of sequences have done, see docs/sequences.md."""


@dataclass
class MarkRecord:
    """A named situation, the topic that declares it, how many examples reached it, and which property did so first."""

    name: str
    topic: str
    examples: int = 0
    at: float | None = None
    property: str = ""


def bucket_in(file: str) -> str:
    """The id of the bucket that a file of a corpus is of, with which its name ends, or which a number follows; "" without any."""
    found = re.search(r"-([0-9a-f]{10})(-\d+)?$", PurePath(file).stem)
    return found[1] if found else ""


NOT_REPLAYED = "NOT REPLAYED"
"""The verdict on a case of the corpus that the campaign had no time for."""
CORPUS_VERDICTS = (
    "FAILED",
    "UNREADABLE",
    "KNOWN",
    "FIXED",
    "NOT REPRODUCED",
    "NOT APPLICABLE",
    "LEFT OUT",
    NOT_REPLAYED,
)
"""All verdicts on cases of a corpus. Of the verdicts of several shards on a case, the first in this order counts: another shard may have
replayed what there was no time for in this one."""


@dataclass
class CorpusRecord:
    """What became of a case of the corpus: "UNREADABLE", "NOT REPLAYED", or as `ReplayVerdict` says.

    `last`: of a case that was not replayed to its end, its verdict when it last was, "" if that is not known.
    """

    file: str
    verdict: str
    message: str
    last: str = ""


STANDINGS = ("showed", "not tried enough", "no longer fails", "not tried")
"""All standings of known defects. Of those of several shards, the first in this order counts."""


@dataclass
class KnownRecord:
    """A known defect as the campaign met it.

    `property_state` is "showed", "no longer fails", "not tried enough" or "not tried"; `properties` has its failing examples by
    property.
    """

    id: str
    title: str = ""
    link: str = ""
    standing: str = "not tried"
    properties: dict[str, int] = field(default_factory=dict)
    remark: str = ""

    @property
    def examples(self) -> int:
        return sum(self.properties.values())

    @property
    def stale(self) -> bool:
        """Whether it is declared, and no longer fails."""
        return self.standing == "no longer fails"
