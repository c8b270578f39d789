"""What is known of a campaign, as data: what reports are made from, what shards add up to, what `--resume` goes on with."""

from __future__ import annotations

import builtins
import json
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from statecheck.campaign.launched import KernelRecord
from statecheck.campaign.record_rules import check_number, check_record
from statecheck.case.former_names import name_today
from statecheck.data.decode import Decoder, format_value
from statecheck.data.files import write_whole
from statecheck.data.json_files import load, parse
from statecheck.execution.counts import Counts
from statecheck.execution.verdict import TELLING, Status

SCHEMA = 3
_READABLE = (3, 2, 1)
FILE = "campaign.json"
_RULE = f"a campaign's record of schema {SCHEMA}"
_LARGEST = 1 << 28


@dataclass
class PropertyRecord:
    """One property: what became of it, with how many examples in how many seconds of an engine's time.

    `status` is a value of `verdict.Status`. `behaviours` counts the different sets of marks that its examples reached, and the
    branches of kernels that they took.
    `launches`: its examples launch kernels. In `compared` of the examples, `parts` rows, fields and bytes that the subject's
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
    behaviours: int = 0
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
        return Counts(*numbers, no_evidence, unchecked, self.parts)

    @property
    def lacked_time(self) -> bool:
        """Whether it is not tested because there were too few examples to say why not."""
        return self.status == Status.NOT_TESTED.value and self.examples < TELLING

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

    @builtins.property
    def named(self) -> str:
        """The property's name, and its id where it has one."""
        return f"{self.property} ({self.property_id})" if self.property_id else self.property


@dataclass
class MarkRecord:
    """A named situation, the topic that declares it, how many examples reached it, and which property did so first."""

    name: str
    topic: str
    examples: int = 0
    at: float | None = None
    property: str = ""


@dataclass
class CorpusRecord:
    """What became of a case of the corpus: "UNREADABLE", or as `Replay` says."""

    file: str
    verdict: str
    message: str


@dataclass
class KnownRecord:
    """A known defect as the campaign met it.

    `standing` is "showed", "no longer fails", "not tried enough" or "not tried"; `properties` has its failing examples by
    property, `report` the folder of its report, "" without one.
    """

    id: str
    title: str = ""
    link: str = ""
    standing: str = "not tried"
    properties: dict[str, int] = field(default_factory=dict)
    report: str = ""
    remark: str = ""

    @property
    def examples(self) -> int:
        return sum(self.properties.values())

    @property
    def stale(self) -> bool:
        """Whether it is declared, and no longer fails."""
        return self.standing == "no longer fails"


@dataclass
class CompiledRecord:
    """A kernel that Triton compiled: its variants, each a signature and a specialisation, and how often it was compiled."""

    variants: list[str | list[str]] = field(default_factory=list)
    compilations: int = 0


@dataclass
class ProgressPoint:
    """Where the campaign stood `at` seconds after it began."""

    at: float
    examples: int
    behaviours: int
    buckets: int


@dataclass
class CampaignRecord:
    """One campaign, or one shard of it.

    Args:
        id: the campaign's name, also that of its folder; shards of one campaign have it in common.
        commit: of the repository, 12 hexadecimal digits, with "+" behind them where files were changed; "" unknown.
        gpus: device names by index, such as {"0": "NVIDIA H200"}; {"cpu": "..."} without a GPU.
        began: when, ISO 8601 with time zone. For people only: durations are measured, not subtracted.
        seconds: how long it ran, over all the times that it was resumed.
        budget: seconds, or None where `examples_wanted` says how much work it is.
        rounds: how many were begun; `first_round` is the number of the first.
        complete: the budget was used up; otherwise `--resume` continues it.
        kernels: by name; empty on a CPU, where no kernel is compiled.
        launched: kernels that were executed or interpreted; empty where they are compiled.
        faults: device faults by kind, with how often they came up.
        troubles: what went wrong on the campaign's own side, a sentence each.
        remarks: what the subject did to its process beside returning results, a sentence each; no part of the verdict.
        canary: how the property that must fail was found; "" while it was not.
        known: the defects that the subject declares.
        seed: from which the random choices of all tasks follow, None where they follow from the commit.
        fail_on_untested: an applicable property that is not tested is a failure.
        marks: every declared one that the chosen properties could reach; `examples` 0 is a missed one.
    """

    id: str
    subject: str
    device: str
    commit: str
    only: str = ""
    shard: int = 0
    shards: int = 1
    gpus: dict[str, str] = field(default_factory=dict)
    engines: int = 1
    began: str = ""
    seconds: float = 0.0
    budget: float | None = None
    examples_wanted: int | None = None
    first_round: int = 0
    rounds: int = 0
    complete: bool = False
    interrupted: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    properties: list[PropertyRecord] = field(default_factory=list)
    buckets: list[BucketRecord] = field(default_factory=list)
    marks: list[MarkRecord] = field(default_factory=list)
    corpus: list[CorpusRecord] = field(default_factory=list)
    kernels: dict[str, CompiledRecord] = field(default_factory=dict)
    launched: list[KernelRecord] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    canary: str = ""
    known: list[KnownRecord] = field(default_factory=list)
    seed: int | None = None
    fail_on_untested: bool = False
    series: list[ProgressPoint] = field(default_factory=list)

    @property
    def examples(self) -> int:
        return sum(one.examples for one in self.properties)

    def to_json(self) -> str:
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> CampaignRecord:
        """The record in `text`.

        Raises:
            ValueError: not JSON, another schema, or not the fields of a record.
        """
        return cls.from_data(parse(text, _RULE))

    @classmethod
    def from_data(cls, data: Any) -> CampaignRecord:
        """As `from_json`, of parsed JSON; `data` is not changed."""
        content = dict(data) if isinstance(data, dict) else {}
        schema = content.pop("schema", None)
        if type(schema) is not int or schema not in _READABLE:
            newer = type(schema) is int and schema > SCHEMA
            why = ": a newer version has written it" if newer else ""
            raise ValueError(
                f"schema = {format_value(schema)}, but should be {SCHEMA} [Record.from_json]{why}"
            )
        try:
            record: CampaignRecord = Decoder(check=check_number).build(cls, content)
            check_record(record)
            _name_as_today(record)
        except ValueError as error:
            raise ValueError(f"{error} [Record.from_json]") from error
        if schema == 1:
            record.properties = [_from_schema_1(one) for one in record.properties]
        return record

    def save(self, path: Path) -> Path:
        """Write it so that at every moment `path` holds a whole record or the one before."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, self.to_json(), durable=False)
        return path

    @classmethod
    def load(cls, path: Path) -> CampaignRecord:
        """The record in a file.

        Raises:
            OSError: there is no such file, or nobody may read it.
            ValueError: no regular file, too large, or no record; names the file.
        """
        try:
            return cls.from_data(load(path, _RULE, largest=_LARGEST))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


_EARLIER = {"not reached": "not tested", "known deviation": "known"}


def _from_schema_1(record: PropertyRecord) -> PropertyRecord:
    """A property as schema 1 has it: all examples of a property that passed count as compared."""
    status = _EARLIER.get(record.status, record.status)
    return replace(record, status=status, compared=record.examples)


def _name_as_today(record: CampaignRecord) -> None:
    """Call every property by the name that it has today."""
    for one in record.properties:
        one.name = name_today(one.name)
    for bucket in record.buckets:
        bucket.property = name_today(bucket.property)
    for mark in record.marks:
        mark.property = name_today(mark.property)
    for known in record.known:
        known.properties = {name_today(name): count for name, count in known.properties.items()}
