"""What a campaign's coordinator and its workers send each other: tasks, and events.

To a worker: `Explore`, `Replay`, `RunCanary`, or None to stop. From it: `WorkerReady` once, then `CallBegan`, `ExamplesRun`, `ExampleFailed`,
`SearchEnded`, and at the end of a task `Explored`, `Replayed` or `CanaryResult`; `DeviceLost` where its device is of no use. `WorkerLost` is what
the pool sees of a worker from outside.
"""

from __future__ import annotations

import builtins
from collections import Counter
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from statecheck.campaign.plan import Plan
from statecheck.campaign.record import CorpusRecord
from statecheck.execution.enumerations import Slice
from statecheck.execution.verdict import Counts
from statecheck.kernels.launch_counts import How

BEAT_SECONDS = 0.2
"""The shortest time between two `CallBegan` messages of a worker: sending a message takes as long as a short call."""


def unit_name(name: str, configuration: str = "") -> str:
    """The unit of schedule and verdict: a property with a configuration of the subject, such as a model of a library of sequences."""
    return f"{name} of {configuration}" if configuration else name


@dataclass(frozen=True)
class Setting(Plan):
    """What all tasks of a campaign have in common: its plan, and where a worker finds what it needs.

    Args:
        pending: folder of this campaign alone, in which failing inputs stand until they are in a report or in the corpus.
        gpu: the index of the only GPU to use, "" for the first.
        first_seen: the date and commit of what is found.
    """

    pending: str = ""
    gpu: str = ""
    first_seen: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Explore:
    """Explore one property with up to `max_examples` examples drawn from `seed`.

    Args:
        known: buckets that were met; failing examples of these are counted, and gone past.
        patience: seconds after which it ends, unless something was found: what was is shrunk until `deadline`.
        deadline: seconds after which it ends, whatever was found.
        shrinking: seconds for which the first failing input is shrunk.
        as_found: the first failing input ends it, and is reported as it is: neither shrunk nor run again.
        enough: it ends after so many compared examples; 0: it does not.
        simplest: the exploration begins with the simplest example (see `Property.explore`).
        sanitized: the sanitizer watches everything, where it does in the campaign; otherwise bounds and overflows alone.
        isolated: the subject runs in a process of its own, also where the campaign has it in the worker.
        inputs: those to try, in place of drawn ones.
        configuration: the only one of the subject's that is tried, such as a model of a library; "" for a subject that has none.
    """

    property: str
    seed: int
    max_examples: int
    _: KW_ONLY
    known: frozenset[str] = frozenset()
    patience: float = float("inf")
    deadline: float = float("inf")
    shrinking: float = float("inf")
    as_found: bool = False
    enough: int = 0
    simplest: bool = True
    sanitized: bool = True
    isolated: bool = False
    inputs: Slice | None = None
    configuration: str = ""

    @builtins.property
    def unit(self) -> str:
        """What it is about, see `unit_name`."""
        return unit_name(self.property, self.configuration)


@dataclass(frozen=True)
class Replay:
    """Replay a file of the corpus; `isolated`: with the subject in a process of its own."""

    path: str
    isolated: bool = False


@dataclass(frozen=True)
class RunCanary:
    """Find the canary, report it in the folder, and replay it."""

    folder: str


Task = Explore | Replay | RunCanary


@dataclass(frozen=True)
class WorkerReady:
    """The worker has imported what it needs."""


@dataclass(frozen=True)
class CallBegan:
    """A call of the subject begins, here or in an isolated process."""


@dataclass(frozen=True)
class ExamplesRun:
    """Examples run since the last message."""

    property: str
    examples: int
    compared: int = 0


@dataclass(frozen=True)
class ExampleFailed:
    """An example has failed for the first time in its exploration, and is shrunk from now on."""

    property: str


@dataclass(frozen=True)
class SearchEnded:
    """From here on the limit of other work holds: what was found is confirmed and reported, or a saved case is replayed in another process."""


@dataclass(frozen=True)
class Found:
    """A failing case, and the buckets of the failing examples that led to it, its own first.

    `case` is the JSON of the case, `report` and `corpus` the places where it stands, `note` what is to be said of it; `shrunk`: no
    smaller one is to be looked for.
    """

    buckets: tuple[str, ...]
    case: dict[str, Any]
    report: str
    corpus: str
    note: str
    shrunk: bool = True


@dataclass(frozen=True)
class Explored:
    """The end of an exploration.

    Args:
        status: "passed", "falsified" or "error"; `detail` the message or the traceback.
        counts: what became of its examples, as far as no `ExamplesRun` has them.
        known: failing examples of known defects, by the defect's name.
        hidden: one of these was the sanitizer's finding, behind which nothing is seen.
        found: the smallest case, and others that failed in another way and were not shrunk.
        failing: failing examples by bucket.
        faults: how often a call ended the isolated process that it ran in, or had no answer in time.
        late: it ended because its time was up.
        shrinking: of the seconds, those after its first failing example.
        marks: situations that examples reached, with how many did.
        launched: how often kernels were launched since then.
        gone: why the device can be used no more.
        tried, exhausted: of inputs that are not drawn, how many were tried to their end, and whether these are all.
        warnings: what could not be done, a sentence each.
    """

    property: str
    status: str
    seconds: float
    detail: str = ""
    counts: Counts = field(default_factory=Counts)
    known: dict[str, int] = field(default_factory=dict)
    hidden: bool = False
    found: tuple[Found, ...] = ()
    failing: dict[str, int] = field(default_factory=dict)
    faults: int = 0
    late: bool = False
    shrinking: float = 0.0
    marks: dict[str, int] = field(default_factory=dict)
    launched: Counter[How] = field(default_factory=Counter)
    gone: str = ""
    tried: int = 0
    exhausted: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Replayed:
    """What became of a case of the corpus; `case` is the one that still fails, `launched` as above."""

    result: CorpusRecord
    case: dict[str, Any] = field(default_factory=dict)
    launched: Counter[How] = field(default_factory=Counter)


@dataclass(frozen=True)
class CanaryResult:
    """How the canary was found; "", and why, where it was not."""

    found: str
    why: str = ""


@dataclass(frozen=True)
class DeviceLost:
    """The device is of no use, so that there is no worker on it."""

    why: str


@dataclass(frozen=True)
class WorkerLost:
    """The worker's process has ended, or does not go on. `from_outside`: another process may have ended it."""

    why: str
    from_outside: bool = False


Event = (
    WorkerReady
    | CallBegan
    | ExamplesRun
    | ExampleFailed
    | SearchEnded
    | Explored
    | Replayed
    | CanaryResult
    | DeviceLost
    | WorkerLost
)
