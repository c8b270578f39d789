"""Campaigns that are killed: `python -m properties.meta.campaign.kills --kind worker --moments 50` loses no counterexample.

At moments drawn from the whole life of a campaign a process of it gets SIGKILL: a "worker", which runs the subject, the
"server" that forks workers, an "engine", which searches, the "coordinator", or the whole "campaign" at once. What was
announced by then, with a line, a report or a pending case, has to be on disk and to fail when it is replayed. A campaign
that loses a helper has to find all the rest; what is left of one that ends is replayed by the next. No process may survive.

The subject is a copy of the implementation in which every property that is explored fails, one of them by a segmentation
fault. The work is in examples, so that neither a campaign's life nor what it finds depends on how fast the machine is.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from properties.harness.campaign.record import FILE, CampaignRecord
from properties.harness.case import Case
from properties.harness.case.bucket import bucket_of
from properties.harness.device.log import SUFFIX
from properties.harness.device.port import InWorker
from properties.harness.device.recovered import recover
from properties.harness.diagnose.rerun import replay
from properties.harness.execution.variants import Variant, broken_copy, implementation
from properties.meta.breakages.broken import ROOT
from properties.meta.breakages.stateless import STATELESS
from properties.meta.breakages.table import finders

KINDS = WORKER, SERVER, ENGINE, COORDINATOR, CAMPAIGN = (
    "worker",
    "server",
    "engine",
    "coordinator",
    "campaign",
)
_GOES_ON = (WORKER, SERVER, ENGINE)
_SUBJECT = "broken_in_many_ways"
_DEFECTS = (
    "a sequence is cut at multiples counted from its own start",
    "chunk offsets are the counts and not their sums",
    "the temporal state is always that of the running block",
    "padded tokens belong to nobody",
    "query lengths are the ends of the queries",
)
_CRASHING = "division_is_exact_or_refused"
_CRASH = Variant(
    _SUBJECT,
    "types.py",
    "return dividend // divisor",
    'return dividend // divisor if dividend < 100 else __import__("ctypes").string_at(0)',
)
_BREAKAGES = tuple(one for one in STATELESS if one.name in _DEFECTS)
FAILING = (*(name for one in _BREAKAGES for name in finders(one)), _CRASHING)
_GONE_SECONDS = 30.0
_POLL_SECONDS = 0.02
_TRIES = 5
_FAILED, _FIXED = "FAILED", "FIXED"
_UNFINISHED = ".unfinished.json"
_FILES = ("report.md", "repro.py")
_LINE = re.compile(r"^FALSIFIED ([0-9a-f]{10}): ", re.MULTILINE)


@dataclass(frozen=True)
class KillGround:
    """Where campaigns run: the folder of the broken subject, and what they have in common.

    `seconds`: what one may take at most. `engines`: its processes that search. `explored`: of `FAILING`. `examples`: of each of
    these. `warm`: moments count from when a campaign is ready to explore, and not from its start.
    """

    folder: Path
    device: str
    seconds: float = 180.0
    engines: int = 2
    explored: tuple[str, ...] = FAILING
    examples: int = 80
    warm: bool = False

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(self.folder)))}


def broken_in(folder: Path) -> Path:
    """Put the subject into a folder that is to be on the import path."""
    intact = implementation()
    for number, one in enumerate(_BREAKAGES):
        step = folder / "steps"
        intact = broken_copy(replace(one.variant, package=f"step{number}"), intact, step)
    return broken_copy(_CRASH, intact, folder)


@dataclass(frozen=True)
class CampaignProcess:
    """A process as the system sees it."""

    pid: int
    parent: int
    name: str
    command: str
    state: str


def processes_of(mark: str) -> list[CampaignProcess]:
    """The processes that run with `mark` in their environment, whoever their parents are by now."""
    found = (_process(folder, mark.encode()) for folder in Path("/proc").iterdir() if folder.name.isdigit())
    return [one for one in found if one is not None]


def _process(folder: Path, mark: bytes) -> CampaignProcess | None:
    try:
        if mark not in (folder / "environ").read_bytes():
            return None
        name = (folder / "comm").read_text(encoding="utf-8").strip()
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        state, parent = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return CampaignProcess(int(folder.name), int(parent), name, command, state) if state not in "ZX" else None


class Trail:
    """What a campaign leaves: output, reports, pending cases and logs. `mark` is in the environment of all that it starts."""

    def __init__(self, folder: Path, name: str = "first") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._output = folder, folder / f"{name}.txt"
        self.reports, self.corpus = folder / "reports", folder / "corpus"
        self.mark = str(folder / "hypothesis")

    @property
    def output(self) -> str:
        """The lines that were printed to their ends."""
        return self._output.read_text(encoding="utf-8", errors="replace").rpartition("\n")[0] + "\n"

    @property
    def pending(self) -> set[Path]:
        return set(self.reports.glob("campaigns/*/pending/*.json"))

    @property
    def logs(self) -> set[Path]:
        return set(self.reports.glob(f"campaigns/*/pending/*{SUFFIX}"))

    @property
    def reported(self) -> set[Path]:
        """The cases of the reports."""
        return set(self.reports.glob("*/case.json"))

    @property
    def kept(self) -> dict[str, Path]:
        """The files of the corpus by the ids of their buckets."""
        return {path.stem.rpartition("-")[2]: path for path in self.corpus.glob("*.json")}

    @property
    def record(self) -> CampaignRecord | None:
        """Of the latest campaign here that has one."""
        found = sorted(self.reports.glob(f"campaigns/*/{FILE}"))
        return CampaignRecord.load(found[-1]) if found else None

    def survivors(self) -> list[CampaignProcess]:
        """What still runs after a while; it is then ended."""
        deadline = time.monotonic() + _GONE_SECONDS
        while (found := processes_of(self.mark)) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        for one in found:
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
        return found


class Running(Trail):
    """A campaign in a process group of its own."""

    def __init__(
        self, ground: KillGround, folder: Path, *, name: str = "first", examples: int | None = None
    ) -> None:
        super().__init__(folder, name)
        wanted = examples or ground.examples * len(ground.explored)
        command = [sys.executable, "-u", "-m", "properties", "nightly", "--isolated"]
        command += ["--subject", _SUBJECT, "--device", ground.device, "--examples", str(wanted)]
        command += ["--reports", str(self.reports), "--corpus", str(self.corpus)]
        command += ["--engines", str(ground.engines), "--only", " or ".join(ground.explored)]
        environment = ground.environment | {"HYPOTHESIS_STORAGE_DIRECTORY": self.mark}
        self.started, self.lived, self.warm = time.monotonic(), 0.0, ground.warm
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def victims(self, kind: str) -> list[CampaignProcess]:
        """The processes of a kind that there are at the moment."""
        ours = processes_of(self.mark)
        engines = [one for one in ours if one.name == "engine"]
        workers = [one for one in ours if one.name == "worker"]
        servers = [one for one in ours if one.pid in {worker.parent for worker in workers}]
        here = [one for one in ours if one.pid == self.process.pid]
        return {WORKER: workers, SERVER: servers, ENGINE: engines, COORDINATOR: here, CAMPAIGN: here}[kind]

    def finish(self, seconds: float) -> int | None:
        """The exit code, None for a campaign that does not end and is killed."""
        try:
            code = self.process.wait(timeout=seconds)
            self.lived = time.monotonic() - self.started
            return code
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            return None


@dataclass
class Seen:
    """What became of a campaign in which a process was killed: the cases that it had announced, and what is wrong."""

    killed: bool = False
    pending: set[Path] = field(default_factory=set)
    in_hand: list[Case] = field(default_factory=list)
    announced: set[Path] = field(default_factory=set)
    failed: int = 0
    orphans: int = 0
    wrong: list[str] = field(default_factory=list)


class Jury:
    """Replays cases on the broken subject, in a worker that stays."""

    def __init__(self, ground: KillGround) -> None:
        self._lock = threading.Lock()
        sys.path.insert(0, str(ground.folder))
        self._port = InWorker(_SUBJECT, ground.device)

    def verdict(self, path: Path) -> str:
        """`_FAILED`, `_FIXED`, or what prevents the case from being run."""
        try:
            with self._lock:
                return _FAILED if replay(Case.load(path), self._port) is not None else _FIXED
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def close(self) -> None:
        self._port.close()


def kill(running: Running, kind: str, moment: float, dice: random.Random) -> Seen:
    """Kill a process of a kind after `moment` seconds, or as soon as there is one; what was there just before."""
    while running.warm and running.record is None and not running.ended:
        time.sleep(_POLL_SECONDS)
    since = time.monotonic() if running.warm else running.started
    time.sleep(max(0.0, since + moment - time.monotonic()))
    while not (victims := running.victims(kind)) and not running.ended:
        time.sleep(_POLL_SECONDS)
    seen = Seen(pending=running.pending)
    if running.ended:
        return seen
    pid = dice.choice(victims).pid
    with suppress(ProcessLookupError):
        if kind == ENGINE:
            seen.in_hand = _in_hand_of(pid)
        (os.killpg if kind == CAMPAIGN else os.kill)(pid, signal.SIGKILL)
        seen.killed = True
    return seen


def _in_hand_of(engine: int) -> list[Case]:
    """Stop an engine; the examples in the logs that it has open."""
    os.kill(engine, signal.SIGSTOP)
    while (now := _process(Path(f"/proc/{engine}"), b"")) is not None and now.state not in "Tt":
        time.sleep(0.001)
    cases = []
    with suppress(OSError):
        opened = [descriptor.readlink() for descriptor in Path(f"/proc/{engine}/fd").iterdir()]
        cases = [_copied(path) for path in opened if path.suffix == SUFFIX]
    return [one for one in cases if one is not None]


def _copied(log: Path) -> Case | None:
    """What a log will be recovered to when its owner lets go of it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / log.name
        copy.write_bytes(log.read_bytes())
        return recover(copy)


def unfinished(paths: set[Path]) -> set[Path]:
    """Cases of what was being run, of which nobody knows whether it fails."""
    return {path for path in paths if path.name.endswith(_UNFINISHED)}


def judge(left: Trail, seen: Seen, jury: Jury) -> None:
    """Hold what was announced against what is on disk, and replay it."""
    orphans = left.survivors()
    seen.orphans = len(orphans)
    seen.wrong += [f"{one.command} (parent {one.parent}) survives" for one in orphans]
    seen.wrong += _lost(left, seen.pending - unfinished(seen.pending))
    kept = left.pending | left.reported | set(left.kept.values())
    seen.announced = kept - unfinished(kept)
    for path in sorted(kept):
        verdict = jury.verdict(path)
        seen.failed += path in seen.announced and verdict == _FAILED
        if verdict != _FAILED and (path in seen.announced or verdict != _FIXED):
            seen.wrong.append(f"{path}: {verdict}")


def _lost(left: Trail, pending: set[Path]) -> Iterator[str]:
    """What was announced and is not on disk."""
    record, kept = left.record, left.kept
    recorded = {one.id: one for one in record.buckets} if record is not None else {}
    for bucket in sorted({*_LINE.findall(left.output), *recorded}):
        if bucket not in kept:
            yield f"{bucket} was announced, but is not in the corpus"
        if bucket not in recorded:
            yield f"{bucket} was announced, but is not in the record"
        elif report := recorded[bucket].report:
            files = (Path(report) / file for file in _FILES)
            yield from (f"{file} is missing" for file in files if not file.exists())
    for path in sorted(pending):
        if not path.exists() and _bucket_of(path) not in kept:
            yield f"{path} was pending, and is lost"


def _bucket_of(pending: Path) -> str:
    """Of a file called `<property>.<bucket>.<process>.json`."""
    return pending.name.split(".")[-3]


def went_on(running: Trail, seen: Seen, code: int | None, lost: int) -> None:
    """All but `lost` properties were falsified in the end, and nothing is in hand any more."""
    record = running.record
    if code != 1 or record is None:
        seen.wrong.append(f"exit code = {code}, but should be 1: {running.output[-2000:]}")
        return
    others = {one.name: one.status for one in record.properties if one.status != "FALSIFIED"}
    if len(others) > lost:
        seen.wrong.append(f"not falsified: {others}, but should be {lost} at most: {running.output[-2000:]}")
    seen.wrong += [] if record.canary else [f"the canary was silent: {record.troubles}"]
    seen.wrong += [
        f"{path} was left" for path in running.logs | running.pending - unfinished(running.pending)
    ]
    for case in seen.in_hand:
        if case.property_name in others and not _put_down(running, case):
            seen.wrong.append(f"what was in hand of {case.property_name} is lost: {case.steps}")


def _put_down(running: Trail, case: Case) -> bool:
    put_down = running.reports.glob(f"campaigns/*/pending/{case.property_name}.*{_UNFINISHED}")
    return any(Case.load(path).steps == case.steps for path in put_down)


def followed(running: Running, ground: KillGround, seen: Seen) -> None:
    """The next campaign replays what this one has left, and puts down what it was killed in."""
    held = {path: case for path in running.logs if (case := recover(path)) is not None}
    left = running.pending - unfinished(running.pending)
    buckets = set(running.kept) | {bucket_of(Case.load(path)).id for path in left}
    following = Running(ground, running.folder, name="next", examples=1)
    code, record = following.finish(ground.seconds), following.record
    if record is None or code not in ((1,) if buckets else (0, 1, 2)):
        seen.wrong.append(f"exit code of the next = {code}, but should be 1: {following.output[-2000:]}")
        return
    failed = {
        one.file.rpartition("-")[2].removesuffix(".json") for one in record.corpus if one.verdict == "FAILED"
    }
    seen.wrong += [f"{bucket} is not replayed by the next campaign" for bucket in sorted(buckets - failed)]
    seen.wrong += [f"{path} was left by the next campaign" for path in left | running.logs if path.exists()]
    seen.wrong += [f"what {path} held is lost" for path, case in held.items() if not _put_down(running, case)]
    seen.wrong += [f"{one.command} survives the next campaign" for one in following.survivors()]


def struck(
    running: Running, kind: str, moment: float, ground: KillGround, jury: Jury, dice: random.Random
) -> Seen:
    """One campaign from its start to its end, which comes early where a process of it takes the rest along."""
    seen = kill(running, kind, moment, dice)
    code = running.finish(ground.seconds)
    judge(running, seen, jury)
    if kind in _GOES_ON or not seen.killed:
        went_on(running, seen, code, lost=int(seen.killed and kind == ENGINE))
    else:
        followed(running, ground, seen)
    return seen


class Range:
    """A place for campaigns that are killed, `jobs` at a time, at random moments of a life of `life` seconds."""

    def __init__(self, ground: KillGround, *, jobs: int = 1, life: float = 0.0) -> None:
        self.ground, self.jobs = ground, jobs
        broken_in(ground.folder)
        self.jury = Jury(ground)
        self.life = life or self._measured()

    def _measured(self) -> float:
        """How long a campaign lives beside others if it is left alone."""
        with ThreadPoolExecutor(self.jobs) as pool:
            return min(pool.map(self._undisturbed, range(self.jobs)))

    def _undisturbed(self, number: int) -> float:
        """Raises RuntimeError: something is wrong although nobody was killed."""
        running, seen = Running(self.ground, self.ground.folder / f"undisturbed-{number}"), Seen()
        code = running.finish(self.ground.seconds)
        judge(running, seen, self.jury)
        went_on(running, seen, code, lost=0)
        if seen.wrong:
            raise RuntimeError("\n".join(seen.wrong))
        return running.lived

    def moments(self, kind: str, many: int, seed: int) -> list[Seen]:
        """Kill a process of a kind at `many` random moments, each of a campaign of its own."""
        with ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(lambda number: self._moment(kind, f"{seed}-{number}"), range(many)))

    def _moment(self, kind: str, name: str) -> Seen:
        """The first campaign of a few that has not found everything before the moment came."""
        dice, life = random.Random(f"{kind}-{name}"), self.life
        for attempt in range(_TRIES):
            running = Running(self.ground, self.ground.folder / f"{kind}-{name}-{attempt}")
            seen = struck(running, kind, dice.uniform(0.0, life), self.ground, self.jury, dice)
            if seen.killed or seen.wrong:
                break
            life = min(life, running.lived)
        return seen

    def close(self) -> None:
        self.jury.close()


def table(found: dict[str, list[Seen]]) -> Table:
    """A row for each kind."""
    shown = Table(show_edge=False, pad_edge=False)
    for column in (
        "kind",
        "moments",
        "kills",
        "announced cases",
        "replayed FAILED",
        "not replayed",
        "orphans",
        "violations",
    ):
        shown.add_column(column, justify="left" if column == "kind" else "right")
    for kind, seen in found.items():
        announced, failed = sum(len(one.announced) for one in seen), sum(one.failed for one in seen)
        counts = len(seen), sum(one.killed for one in seen), announced, failed, announced - failed
        more = sum(one.orphans for one in seen), len(violations(seen))
        shown.add_row(kind, *map(str, counts + more))
    return shown


def violations(seen: Sequence[Seen]) -> list[str]:
    """What is wrong in any moment."""
    return [one for moment in seen for one in moment.wrong]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m properties.meta.campaign.kills")
    parser.add_argument(
        "--kind", nargs="+", choices=KINDS, default=KINDS, help="whom to kill (default: each)"
    )
    parser.add_argument("--moments", type=int, default=50, help="how often, of each kind (default 50)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="cpu or cuda (default cpu)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and the victims (default 0)")
    parser.add_argument("--seconds", type=float, default=180.0, help="for a campaign at most (default 180)")
    parser.add_argument("--examples", type=int, default=80, help="of each property (default 80)")
    parser.add_argument("--engines", type=int, default=2, help="of a campaign (default 2)")
    parser.add_argument("--jobs", type=int, default=1, help="campaigns at a time (default 1)")
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    with tempfile.TemporaryDirectory() as folder:
        ground = KillGround(
            Path(folder), options.device, options.seconds, options.engines, examples=options.examples
        )
        place = Range(ground, jobs=options.jobs)
        print(f"a campaign that nobody disturbs takes {place.life:.1f} s", flush=True)
        found = {}
        for kind in options.kind:
            found[kind] = place.moments(kind, options.moments, options.seed)
            # Kind by kind, for whoever has no time to wait for all of them.
            console.print(table({kind: found[kind]}), *violations(found[kind]), sep="\n")
        place.close()
    return 1 if any(map(violations, found.values())) else 0


if __name__ == "__main__":
    sys.exit(main())
