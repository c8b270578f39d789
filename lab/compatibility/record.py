"""What campaigns on several releases found: for each property and release one cell, kept as JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from statecheck.campaign.record import FILE, CampaignRecord, PropertyRecord
from statecheck.case.case import spread
from statecheck.execution.verdict import Status
from statecheck.releases.start import last_line
from statecheck.rooms import FOLDER
from statecheck.subject.loading import Project
from statecheck.util.decode import Decoder
from statecheck.util.files import load_json
from statecheck.util.text import brief

CAMPAIGN, LOG = FILE, "log.txt"
PASSED, KNOWN, NEW, GONE = "passed", "known defect", "NEW", "gone"
ERROR, NOT_TESTED, NOT_APPLICABLE = "error", "not tested", "not applicable"
_LONGEST = 300
_STATES = {
    Status.PASSED.value: PASSED,
    Status.KNOWN.value: KNOWN,
    Status.FALSIFIED.value: NEW,
    Status.UNEXPECTED_PASS.value: GONE,
    Status.ERROR.value: ERROR,
    Status.NOT_APPLICABLE.value: NOT_APPLICABLE,
}


@dataclass(frozen=True)
class ReleaseResult:
    """One property on one release: what came of it, and the ids of the known defects that showed in it."""

    state: str
    known: tuple[str, ...] = ()
    detail: str = ""


@dataclass(frozen=True)
class Column:
    """One release.

    Args:
        problem: why there is no campaign, "" if there is one.
        seconds: how long the campaign took.
        cells: by property.
        statuses: of the known defects that are declared for it, by id: as in `campaign.json`.
    """

    release: str
    problem: str = ""
    device: str = ""
    seconds: float = 0.0
    examples: int = 0
    cells: dict[str, ReleaseResult] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)

    def count(self, state: str) -> int:
        return Counter(cell.state for cell in self.cells.values())[state]


@dataclass(frozen=True)
class Known:
    """A known defect, as far as the table tells of it."""

    id: str
    title: str
    link: str


@dataclass(frozen=True)
class Compatibility:
    """Releases side by side; `topics` has the topic of each property."""

    releases: tuple[Column, ...]
    known: tuple[Known, ...]
    topics: dict[str, str]

    @property
    def clean(self) -> bool:
        """Whether nothing is new and nothing declared is gone."""
        return not any(
            release.count(NEW) + release.count(GONE) + len(gone_in(release)) for release in self.releases
        )

    @property
    def complete(self) -> bool:
        """Whether every release has been through a whole campaign."""
        return not any(
            release.problem or release.count(ERROR) + release.count(NOT_TESTED) for release in self.releases
        )

    def with_older(self, kept: Compatibility, oldest: str) -> Compatibility:
        """With the columns of another table for releases before `oldest`, which are a record: no campaign can be run on them."""
        older = [release for release in kept.releases if _version(release.release) < _version(oldest)]
        columns = tuple({one.release: one for one in (*older, *self.releases)}.values())
        declared = {name for column in columns for name in column.statuses}
        known = {one.id: one for one in (*kept.known, *self.known) if one.id in declared}
        topics = {name: kept.topics[name] for one in older for name in one.cells} | self.topics
        return Compatibility(columns, tuple(known[name] for name in sorted(known)), topics)

    def save(self, path: Path) -> None:
        """Write it as JSON, of which most lines are a property on a release."""
        path.write_text(spread(json.loads(json.dumps(asdict(self)))) + "\n", encoding="utf-8")


def results_of(project: Project) -> Path:
    """Where its table is kept as JSON."""
    return FOLDER / f"{named_for('compatibility', project)}.json"


def named_for(name: str, project: Project) -> str:
    """A name of what is kept for a project: vLLM's has none added."""
    return name if project.subject == "vllm" else f"{name}-{project.subject}"


def gone_in(column: Column) -> list[str]:
    """The known defects that no longer fail there."""
    return [name for name, status in column.statuses.items() if status == "no longer fails"]


def loaded(path: Path) -> Compatibility:
    """What `save` wrote.

    Raises:
        ValueError: the file is something else.
    """
    found: Compatibility = Decoder().decode(load_json(path, "a table of releases"), Compatibility)
    return found


def collected(folders: Iterable[Path], topics: Mapping[str, str]) -> Compatibility:
    """What the campaigns in these folders found, each called as its release.

    Args:
        topics: of the properties that there are; one that is gone since is among "others".
    """
    found = [(folder, _campaign_in(folder)) for folder in folders]
    columns = tuple(_column(folder, campaign) for folder, campaign in found)
    known = {
        defect.id: Known(defect.id, defect.title, defect.link)
        for _, record in found
        if record
        for defect in record.known
    }
    named = {name: topics.get(name, "others") for column in columns for name in column.cells}
    return Compatibility(columns, tuple(known[name] for name in sorted(known)), named)


def by_release(folder: Path) -> list[Path]:
    """The folders of releases in a folder of reports, the oldest release first.

    Raises:
        ValueError: there are none.
    """
    found = [path.parent for name in (CAMPAIGN, LOG) for path in folder.glob(f"*/{name}")]
    if not found:
        raise ValueError(
            f"from = {str(folder)!r}, but should be a folder with <release>/{CAMPAIGN} [compatibility]"
        )
    return sorted(set(found), key=lambda path: (_version(path.name), path.name))


def _version(release: str) -> list[int]:
    return [int(one) for one in re.findall(r"\d+", release)]


def _campaign_in(folder: Path) -> CampaignRecord | None:
    """None where it is missing or broken, which the column then says."""
    with suppress(OSError, ValueError):
        return CampaignRecord.load(folder / CAMPAIGN)
    return None


def _column(folder: Path, campaign: CampaignRecord | None) -> Column:
    if campaign is None or not campaign.properties:
        log = folder / LOG
        return Column(folder.name, f"no campaign was saved{f': {last_line(log)}' if log.is_file() else ''}")
    return Column(
        folder.name,
        "",
        campaign.plan.device,
        round(campaign.seconds),
        campaign.examples,
        {row.id: _result(row) for row in campaign.properties},
        {defect.id: defect.status for defect in campaign.known},
    )


def _result(row: PropertyRecord) -> ReleaseResult:
    state = _STATES.get(row.status, NOT_TESTED)
    detail = "" if state in (PASSED, KNOWN) else brief(row.detail, _LONGEST)
    return ReleaseResult(state, tuple(sorted(row.known)), detail)
