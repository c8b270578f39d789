"""What was found, by whom, where: kept in `results.json`, since no machine can run everything."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.gallery.detectors import CPU, CUDA, TOOLS, Detection, Detector, machine
from tests.gallery.exhibit import TWINS, Twin
from tests.gallery.exhibits import EXHIBITS

FILE = Path(__file__).with_name("results.json")
_TOOLS_AT_A_TIME = 6


@dataclass(frozen=True)
class Result:
    """One detector's verdict on one twin of an exhibit, and the machine that it comes from."""

    exhibit: str
    detector: str
    twin: Twin
    found: bool | None
    words: str
    machine: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.exhibit, self.detector, self.twin


def load(file: Path = FILE) -> list[Result]:
    if not file.exists():
        return []
    return [Result(**one) for one in json.loads(file.read_text(encoding="utf-8"))]


def save(results: Iterable[Result], file: Path = FILE) -> None:
    lines = ",\n".join(json.dumps(asdict(one), ensure_ascii=False) for one in results)
    file.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def merged(old: Iterable[Result], new: Iterable[Result]) -> list[Result]:
    """All of both, in the table's order; of two of the same kind the new one, unless the detector did not run."""
    by_key = {one.key: one for one in old}
    by_key |= {one.key: one for one in new if one.found is not None or one.key not in by_key}
    keys = [(e.name, d, twin) for e in EXHIBITS for d in (*CPU, *CUDA) for twin in TWINS]
    return [by_key[key] for key in keys if key in by_key]


def on_this_machine(device: str, only: Iterable[str] = ()) -> list[Result]:
    """Every exhibit, both twins, before the detectors that the device is for; `only` these of them, if any are named."""
    detectors = {
        name: one for name, one in (CPU if device == "cpu" else CUDA).items() if name in (only or (name,))
    }
    place = machine(device)
    in_turn = {name: one for name, one in detectors.items() if name not in TOOLS}
    at_once = {name: one for name, one in detectors.items() if name in TOOLS}
    with ThreadPoolExecutor(_TOOLS_AT_A_TIME) as pool:
        outside = pool.map(lambda task: _result(place, *task), _tasks(at_once))
        inside = [_result(place, *task) for task in _tasks(in_turn)]
        return [*inside, *outside]


def _tasks(detectors: Mapping[str, Detector]) -> list[tuple[str, Detector, str, Twin]]:
    return [(name, one, e.name, twin) for name, one in detectors.items() for e in EXHIBITS for twin in TWINS]


def _result(place: str, name: str, detector: Detector, exhibit: str, twin: Twin) -> Result:
    verdict = detector(exhibit, twin)
    return Result(exhibit, name, twin, verdict.found, verdict.words, place)


__all__ = ["FILE", "Detection", "Result", "load", "merged", "on_this_machine", "save"]
