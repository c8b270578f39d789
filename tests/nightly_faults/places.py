"""Faults of the places that a campaign writes to and reads from."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statecheck.campaign.corpus import Corpus
from statecheck.case.bucket import bucket_of
from tests.breakages.broken import a_case
from tests.nightly_faults.ground import Ground
from tests.nightly_faults.night import Night
from tests.nightly_faults.observed import Observed, judged

_UNWRITTEN = "could not be written|was not written|took no case"
_LIMITED = ("prlimit", "--fsize=512")
"""No file may be longer, and every case and record is."""


class NoMount(Exception):
    """Nothing can be mounted here."""


@contextmanager
def _disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own with room for so much."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NoMount(str(error)) from error
    if mounted.returncode:
        raise NoMount(mounted.stderr.strip())
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


def disk_fills_up(ground: Ground) -> Observed:
    """Room, until the first case stands in the corpus."""
    try:
        with _disk(ground.folder / "filling", "4m") as disk:
            night = Night(ground, "disk_fills_up", place=disk)
            night.wait_for(lambda: list(night.corpus.glob("*.json")))
            _fill(disk / "fill")
            return judged(night, code=1, says=[_UNWRITTEN], least=2, recorded=False)
    except NoMount as error:
        return Observed(skipped=f"no disk can be mounted: {error}")


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while file.write(b"\0" * size):
                    pass
            except OSError:
                """Full, but for less than that."""


def no_room_anywhere(ground: Ground) -> Observed:
    """Neither reports nor corpus nor temporary files take more than a few bytes."""
    night = Night(ground, "no_room", through=_LIMITED)
    return judged(night, code=1, says=[_UNWRITTEN], least=2, recorded=False)


def read_only_corpus(ground: Ground) -> Observed:
    """Reports may be written, the corpus only read."""
    if ground.powerless is None:
        return Observed(skipped="no process can be started for which permissions hold")

    def prepare(night: Night) -> None:
        night.corpus.mkdir()
        night.corpus.chmod(0o555)

    night = Night(ground, "read_only", through=ground.powerless, before=prepare)
    seen = judged(night, code=1, says=["corpus took no case"], least=2)
    moved = len(Corpus(night.reports / "corpus").entries())
    wrong = [] if moved == len(night.announced) else [f"{moved} cases in the fallback folder"]
    return seen.and_then(Observed(seen.code, wrong=tuple(wrong)))


_CORRUPT = {
    "truncated": lambda text: text[: len(text) // 2].encode(),
    "binary": lambda text: bytes(range(256)) * 4,
    "newer": lambda text: re.sub(r'"schema": \d+', '"schema": 99', text, count=1).encode(),
    "empty": lambda text: b"",
    "nested": lambda text: b"[" * 100_000,
    "list": lambda text: b"[1, 2]",
}


def corrupt_corpus(ground: Ground) -> Observed:
    """The subject is intact, so that nothing but the corpus is wrong."""
    if ground.powerless is None:
        return Observed(skipped="no process can be started for which permissions hold")
    names = [*_CORRUPT, "folder", "forbidden", "link"]
    night = Night(ground, "corrupt", "--subject", "impl", through=ground.powerless, before=_corrupted)
    says = [rf"trouble: .*/{name}\.json of the corpus cannot be replayed" for name in names]
    seen = judged(night, code=2, says=says)
    changed = [name for name, content in _contents().items() if _of(night, name).read_bytes() != content]
    wrong = [f"{name} was changed" for name in changed]
    short = (f"{len(names)} files named, such as: {seen.said[0]}",) if seen.said else ()
    return Observed(seen.code, short, 0, 0, seen.seconds, (*seen.wrong, *wrong))


def _contents() -> dict[str, bytes]:
    text = a_case().to_json()
    return {name: spoil(text) for name, spoil in _CORRUPT.items()}


def _of(night: Night, name: str) -> Path:
    return night.corpus / f"{name}.json"


def _corrupted(night: Night) -> None:
    night.corpus.mkdir()
    for name, content in _contents().items():
        _of(night, name).write_bytes(content)
    _of(night, "folder").mkdir()
    _of(night, "forbidden").write_text(a_case().to_json(), encoding="utf-8")
    _of(night, "forbidden").chmod(0)
    _of(night, "link").symlink_to("nothing.json")


def two_at_once(ground: Ground) -> Observed:
    """Two campaigns start in the same second, with one corpus and one folder of reports."""
    place = ground.folder / "shared"
    first, second = (Night(ground, f"two_{number}", place=place) for number in range(2))
    seen = judged(first, code=1, least=2).and_then(judged(second, code=1, least=2))
    entries = Corpus(place / "corpus").entries()
    ids = [bucket_of(entry.case).id for entry in entries if entry.case is not None]
    wrong = [] if len(entries) == len(set(ids)) == len(ids) else [f"not a file for each bucket: {entries}"]
    wrong += [] if len(first.records) == 2 else [f"{len(first.records)} records, but should be 2"]
    said = (f"{len(first.records)} records; a file in the corpus for each of {len(ids)} buckets",)
    return seen.and_then(Observed(seen.code, said, wrong=tuple(wrong)))
