"""What is known of a campaign, as data: what reports are made from, what shards add up to, what `--resume` goes on with."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from properties.harness.files import write_whole

SCHEMA = 1
FILE = "campaign.json"


@dataclass
class PropertyRecord:
    """One property: what became of it, with how many examples in how many seconds of an engine's time.

    `status` is a value of `campaign.Status`. `behaviours` counts the different sets of marks that its examples reached.
    `launches`: its examples launch kernels.
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
        case: the JSON of its shrunk `Case`.
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
    """A case of the corpus that the campaign replayed first: "FIXED", "FAILED", "NOT APPLICABLE" or "UNREADABLE"."""

    file: str
    verdict: str
    message: str


@dataclass
class Moment:
    """Where the campaign stood `at` seconds after it began."""

    at: float
    examples: int
    behaviours: int
    buckets: int


@dataclass
class Record:
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
        kernels: {name: {"variants": [...], "compilations": n}}; empty where kernels are interpreted.
        faults: device faults by kind, with how often they came up.
        troubles: what went wrong on the campaign's own side, a sentence each.
        canary: how the property that must fail was found; "" while it was not.
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
    kernels: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)
    canary: str = ""
    series: list[Moment] = field(default_factory=list)

    @property
    def examples(self) -> int:
        return sum(one.examples for one in self.properties)

    def to_json(self) -> str:
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Record:
        """The record in `text`.

        Raises:
            ValueError: not JSON, another schema, or not the fields of a record.
        """
        content = json.loads(text)
        schema = content.pop("schema", None) if isinstance(content, dict) else None
        if schema != SCHEMA:
            raise ValueError(f"schema = {schema}, but should be {SCHEMA} [Record.from_json]")
        try:
            for name, kind in _LISTS.items():
                content[name] = [kind(**item) for item in content[name]]
            return cls(**content)
        except (TypeError, KeyError) as error:
            raise ValueError(
                f"record = {error}, but should have exactly a record's fields [Record.from_json]"
            ) from error

    def save(self, path: Path) -> Path:
        """Write it so that at every moment `path` holds a whole record or the one before."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, self.to_json(), durable=False)
        return path

    @classmethod
    def load(cls, path: Path) -> Record:
        return cls.from_json(path.read_text(encoding="utf-8"))


_LISTS: dict[str, type] = {
    "properties": PropertyRecord,
    "buckets": BucketRecord,
    "marks": MarkRecord,
    "corpus": CorpusRecord,
    "series": Moment,
}
assert set(_LISTS) <= {one.name for one in fields(Record)}
