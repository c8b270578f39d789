"""Faults of processes, devices, memory, clocks and streams."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.nightly_faults.ground import DIVISION, Ground
from tests.nightly_faults.night import Night
from tests.nightly_faults.observed import Observed, judged

_GRACE_SECONDS = 25.0
_ASCII = {
    "LC_ALL": "C",
    "LANG": "xx_YY",
    "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0",
    "PYTHONIOENCODING": "ascii",
    "TERM": "dumb",
    "NIGHT_DIVIDES": "letters",
}
_LETTERS = "\u00fcberlauf"


def clock_jumps(ground: Ground) -> Observed:
    """Four seconds after its start every process is a day ahead, and after seven a day behind."""
    path = os.pathsep.join(map(str, (ground.clock_path, ground.subject_path)))
    root = str(Path(__file__).resolve().parents[2])
    options = ("--budget", f"{ground.seconds:g}s")
    night = Night(ground, "clock", *options, environment={"PYTHONPATH": os.pathsep.join((path, root))})
    seen = judged(night, code=1, least=2)
    ran = night.record.seconds if night.record is not None else 0.0
    kept = ground.seconds <= ran <= ground.seconds + _GRACE_SECONDS
    wrong = () if kept else (f"{ran} s, but should be {ground.seconds}",)
    return seen.and_then(
        Observed(seen.code, (f"ran for {ran:.1f} s of {ground.seconds:.0f} s",), wrong=wrong)
    )


def devices_lost(ground: Ground) -> Observed:
    """The second of two devices is lost, and then the first."""
    lost = ground.folder / "lost"
    lost.mkdir()
    night = _on_devices(ground, "devices_lost", lost, "--gpus", "0,1", "--engines", "2")
    # Something has to be known, or nothing could be lost.
    night.wait_for(lambda: any(record.buckets for record in night.records))
    wrong = [*_lose(night, lost, "1", "GPU 1 is gone"), *_lose(night, lost, "0", "GPU 0 is gone")]
    says = ["GPU 1 is gone after .* others go on", "GPU 0 is gone after .* there is no other"]
    return judged(night, code=1, says=says, least=1, wrong=wrong)


def device_of_no_use(ground: Ground) -> Observed:
    """One of two devices does not work from the beginning: the other one does all."""
    lost = ground.folder / "useless"
    lost.mkdir()
    (lost / "1").touch()
    options = ("--gpus", "0,1", "--engines", "2", "--examples", str(ground.examples))
    entrance = ("-m", "tests.nightly_faults.on_cpus")
    environment = {"NIGHT_LOST": str(lost)}
    night = Night(
        ground, "device_useless", "--isolated", *options, environment=environment, entrance=entrance
    )
    return judged(night, code=1, says=["GPU 1 is gone after .* others go on"], least=2)


def _on_devices(ground: Ground, name: str, lost: Path, *options: str) -> Night:
    """Without an end of its own, on devices that are CPUs."""
    entrance = ("-m", "tests.nightly_faults.on_cpus")
    options = ("--isolated", "--budget", "100s", *options)
    return Night(ground, name, *options, environment={"NIGHT_LOST": str(lost)}, entrance=entrance)


def _lose(night: Night, lost: Path, device: str, told: str) -> list[str]:
    """Take a device away once something is known; its workers are killed, and no other one gets ready."""
    begun = night.wait_for(lambda: any(record.examples > 0 for record in night.records))
    (lost / device).touch()
    for worker in night.workers:
        with suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
    gone = night.wait_for(lambda: told in night.output)
    return [] if begun and (gone or told in night.output) else [f"{told!r} was not said"]


def engine_without_memory(ground: Ground) -> Observed:
    """An engine may have no more address space than it has: memory ends anywhere in it."""
    night = Night(ground, "no_memory")
    night.wait_for(lambda: list(night.corpus.glob("*.json")))
    for engine in night.engines:
        with suppress(OSError):
            size = int(Path(f"/proc/{engine.pid}/statm").read_text(encoding="utf-8").split()[0])
            allowed = size * resource.getpagesize()
            resource.prlimit(engine.pid, resource.RLIMIT_AS, (allowed, allowed))
    return judged(night, code=1, least=2)


def subject_without_memory(ground: Ground) -> Observed:
    """What the subject raises is a finding, of torch and of Python."""
    seen = [_raises(ground, name) for name in ("MemoryError", "OutOfMemoryError")]
    return seen[0].and_then(seen[1])


def _raises(ground: Ground, name: str) -> Observed:
    night = Night(ground, f"raises_{name}", "--only", DIVISION, environment={"NIGHT_DIVIDES": name})
    return judged(night, code=1, says=[f"FALSIFIED .*{name}"], least=1)


def broken_locale(ground: Ground) -> Observed:
    """LC_ALL=C, an unknown LANG, ASCII for output and nothing else, TERM=dumb; messages have other letters."""
    night = Night(ground, "locale", environment=_ASCII)
    seen = judged(night, code=1, says=[r"FALSIFIED .*\\xfcberlauf"], least=3)
    texts = [path.read_text(encoding="utf-8") for path in _pages(night)]
    wrong = () if texts and any(_LETTERS in text for text in texts) else ("reports are not UTF-8",)
    return seen.and_then(Observed(seen.code, wrong=wrong))


def _pages(night: Night) -> Iterator[Path]:
    yield from (path for path in night.reports.rglob("*") if path.suffix in {".html", ".md", ".xml", ".json"})


def output_without_reader(ground: Ground) -> Observed:
    """Standard output closed from the start, a full device, and a pipe whose reader leaves after a line."""
    closed = Night(ground, "closed", through=("sh", "-c", 'exec "$@" >&-', "sh"))
    seen = judged(closed, code=1, least=2, recorded=False)
    with Path("/dev/full").open("wb") as full:
        seen = seen.and_then(judged(Night(ground, "full_output", output=full), code=1, least=2))
    left = ("bash", "-c", 'set -o pipefail; "$@" | head -n 1', "bash")
    return seen.and_then(judged(Night(ground, "left", through=left), code=1, least=2))


def fails_nearly_always(ground: Ground) -> Observed:
    """Every legal input fails, and is gone past."""
    options = ("--only", DIVISION, "--examples", str(ground.failing))
    night = Night(ground, "failing", *options, environment={"NIGHT_DIVIDES": "wrong"})
    night.wait_for(lambda: night.engines)
    peak = _peak(night)
    seen = judged(night, code=1, least=1)
    record = night.record
    if record is None:
        return seen
    told = sum(bucket.examples for bucket in record.buckets)
    size = sum(path.stat().st_size for path in night.folder.rglob("*") if path.is_file())
    files = len(list(night.corpus.glob("*.json")))
    said = (
        f"{record.examples:,} examples at {record.examples / record.seconds:,.0f}/s, {told:,} failed, "
        f"{files} files in the corpus, {size / 1e6:.1f} MB written, {peak[0]} MB and then {peak[1]} MB of memory"
    )
    wrong = [f"{files} files for {len(record.buckets)} buckets"] if files != len(record.buckets) else []
    wrong += [f"{told} of {record.examples} failed"] if told < record.examples / 4 else []
    wrong += [f"{size} bytes"] if size > 20e6 else []
    wrong += [f"{peak} MB of memory"] if peak[1] > peak[0] + 400 else []
    return seen.and_then(Observed(seen.code, (said,), wrong=tuple(wrong)))


def _peak(night: Night) -> tuple[int, int]:
    """Memory of the engine after the first finding, and the most later, in MB."""
    night.wait_for(lambda: list(night.corpus.glob("*.json")))
    first, most = _memory(night), 0

    def ended() -> bool:
        nonlocal most
        most = max(most, _memory(night))
        return False

    night.wait_for(ended)
    return first, max(first, most)


def _memory(night: Night) -> int:
    pages = 0
    for engine in night.engines:
        with suppress(OSError):
            pages += int(Path(f"/proc/{engine.pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * resource.getpagesize() >> 20
