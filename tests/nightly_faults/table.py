"""The table of faults."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.nightly_faults import kills, places, processes
from tests.nightly_faults.ground import Ground
from tests.nightly_faults.observed import Observed

FILE = Path(__file__).resolve().parents[1] / "FAULTS.md"
_ROOM = 150
_HEAD = """# Faults that nightly campaigns were put through

Each was tried for real by `python -m tests.nightly_faults --write`, which writes this table: a campaign as a process of
its own, on a CPU, with a broken copy of the implementation as its subject. Found: buckets that a line or the record has told of,
and of how many of them a case can be read afterwards, in the corpus, the folder that it falls back to, or the output.

| fault | what was done | exit code | what was said | kept of found | seconds |
|---|---|---|---|---:|---:|
"""
_TAIL = """
# Ports that misbehave

Tried on a port of `chunk_offsets`, in campaigns of 5 to 12 s with one worker on a CPU.

| what the port or the surroundings did | what comes of it |
|---|---|
| raises `KeyboardInterrupt`, `GeneratorExit`, `SystemExit(0)`, an exception group of these, `pytest.skip`, `hypothesis.reject()`, `StopTest`, or the harness's own exceptions | FALSIFIED, and the replay fails; a `KeyboardInterrupt` ended the worker before, without a finding |
| an exception whose `str` raises, or ends the process; a message of 50 MB, lone surrogates, NUL | FALSIFIED, the case is kept |
| declares all refusals of all functions as one known defect | refused with exit code 3; it was CLEAN |
| returns a generator, a set, a dictionary | FALSIFIED; it was CLEAN, or a hang where the generator has no end |
| objects that equal everything, and lie about `__index__` | FALSIFIED |
| a list that gives other items when it is iterated than it holds | FALSIFIED |
| replaces functions of the harness or of the rules while it is called | ERROR, INCOMPLETE, and they are put back; it was CLEAN |
| is right the first time only, or asks whether it is in a replay | FALSIFIED; of a port that behaves in replays alone a replay says NOT REPRODUCED |
| an import that ends the process, or never ends, or does so the second time only | exit code 3 with the reason; it was exit code 0 without a word, and a wait without end |
| a condition of a known defect that ends its process, or never ends | the case is kept and counts as new |
| stops the process that forks workers (SIGSTOP) | that is continued; the campaign waited without end |
| closes all descriptors of its worker | FALSIFIED in the call that does so, and the case is kept |
| jumping clocks, the umask, timers, threads that spin, hanging exit handlers, children that keep pipes | no false alarm, nothing lost |
| the reports are removed during the campaign, or a file is put in their place | NOT CLEAN; the case goes elsewhere, or into the output; a file ended the campaign with a traceback before |
| `RLIMIT_NOFILE` of 3, every descriptor taken, `RLIMIT_FSIZE` of 512 and of 0, each set in a call | FALSIFIED, the case is kept |
| reports on a tmpfs; on one of 64 KiB; on one that can only be read | FALSIFIED; the case goes to a temporary folder, and is named, where the reports take none |
| calls of 0.9 times the limit; an import of 20 s; 10,000 known defects | no false alarm; 1,136 examples in 6 s beside the last |
| an alarm that repeats every 2 ms, set in each call | it is put back after the call, with a remark; what its handler raises in a call is what the call raised |
| `--workers 9999` | refused with exit code 3: at most 8 for each processor |
"""


@dataclass(frozen=True)
class InjectedFault:
    """`done`: what is done to the campaign."""

    name: str
    done: str
    run: Callable[[Ground], Observed]


FAULTS = {
    one.name: one
    for one in (
        InjectedFault(
            "disk_fills_up", "their disk is filled once the first case is kept", places.disk_fills_up
        ),
        InjectedFault(
            "no_room_anywhere", "no file may be longer than 512 bytes (RLIMIT_FSIZE)", places.no_room_anywhere
        ),
        InjectedFault("read_only_corpus", "the corpus may only be read", places.read_only_corpus),
        InjectedFault(
            "corrupt_corpus",
            "truncated, binary, of a newer version, empty, nested, a list, a folder, forbidden, a link to nothing; subject intact",
            places.corrupt_corpus,
        ),
        InjectedFault("two_at_once", "two campaigns, one corpus, one folder of reports", places.two_at_once),
        InjectedFault(
            "clock_jumps", "the wall clock of all processes goes +1 day, then -1 day", processes.clock_jumps
        ),
        InjectedFault(
            "devices_lost",
            "no worker of the second of two devices gets ready any more, then none of the first",
            processes.devices_lost,
        ),
        InjectedFault(
            "device_of_no_use", "one of two devices never gets a worker ready", processes.device_of_no_use
        ),
        InjectedFault("worker_killed", "SIGKILL to a process that runs the subject", kills.worker_killed),
        InjectedFault("server_killed", "SIGKILL to the process that forks these", kills.server_killed),
        InjectedFault("engine_killed", "SIGKILL to an engine", kills.engine_killed),
        InjectedFault(
            "campaign_killed", "SIGKILL to all processes, then the next campaign", kills.campaign_killed
        ),
        InjectedFault(
            "engine_without_memory",
            "no more address space for the engine (RLIMIT_AS)",
            processes.engine_without_memory,
        ),
        InjectedFault(
            "subject_without_memory",
            "the subject raises MemoryError, and torch's OutOfMemoryError",
            processes.subject_without_memory,
        ),
        InjectedFault(
            "broken_locale",
            "LC_ALL=C, LANG=xx_YY, PYTHONIOENCODING=ascii, no UTF-8 mode, TERM=dumb",
            processes.broken_locale,
        ),
        InjectedFault(
            "output_without_reader",
            "standard output closed, on a full device, a pipe whose reader left",
            processes.output_without_reader,
        ),
        InjectedFault(
            "fails_nearly_always", "a subject that is wrong for every input", processes.fails_nearly_always
        ),
        InjectedFault(
            "coordinator_killed",
            "SIGKILL to the coordinator at random moments, then --resume",
            kills.coordinator_killed,
        ),
    )
}


def text(results: Mapping[str, Observed], earlier: str = "") -> str:
    """The table as Markdown; faults that were not tried now have their row of an `earlier` one."""
    rows = {line.split(" | ")[0].removeprefix("| "): line + "\n" for line in earlier.splitlines()}
    rows |= {name: _row(FAULTS[name], seen) for name, seen in results.items()}
    return _HEAD + "".join(rows[name] for name in FAULTS if name in rows) + _TAIL


def _row(fault: InjectedFault, seen: Observed) -> str:
    said = f"not tried: {seen.skipped}" if seen.skipped else "<br>".join(map(_brief, seen.said)) or "nothing"
    wrong = "".join(f"<br>WRONG: {_brief(one)}" for one in seen.wrong)
    kept = f"{seen.kept} of {seen.announced}"
    cells = (fault.name, fault.done, seen.code, said + wrong, kept, f"{seen.seconds:.0f}")
    return "| " + " | ".join(cells) + " |\n"


def _brief(line: str) -> str:
    """A sentence without folders, which are others each time."""
    line = re.sub(r"/\S*?/(small|filling|\w+)/(reports|corpus)\b", r"\2", line.strip().partition("\n")[0])
    line = re.sub(r"/tmp/\S*/", "", line).replace("|", "\\|").replace("<", "&lt;")  # noqa: S108 - is looked for
    return line if len(line) <= _ROOM else line[: _ROOM - 1] + "…"
