"""The files of a corpus: JSON, and archives of NumPy arrays for bytes, the same ones every time."""

from __future__ import annotations

import io
import json
import shutil
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
from numpy.lib import format as npy

from statecheck import rooms
from statecheck.case.codec import spread
from statecheck.vectors.choose import Vector, blobs, in_place_of_blobs
from statecheck.vectors.topics import FUNCTIONS, TOPICS
from statecheck.vectors.values import Blob

SCHEMA = 1
"""The version of the format. It grows with every change that a reader can notice."""
FOLDER = rooms.FOLDER / "vectors"
COMPANIONS = ("README.md", "schema.json", "check.js", "port_batches.js", "port_shapes.js", "port_copies.js")
"""What a corpus brings along, so that it is complete without this repository."""
_NAME = "statecheck"
_OLDEST = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Origin:
    """Which search made the corpus. The same one in the same sources makes the same files."""

    seed: int
    examples: int
    only: str = ""


def write(vectors: Sequence[Vector], folder: Path, origin: Origin) -> dict[str, Any]:
    """Write the corpus into `folder`; its index."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [_write_topic(topic, _of(topic, vectors), folder) for topic in TOPICS if _of(topic, vectors)]
    index = {
        "schema": SCHEMA,
        "package": _package(),
        "hypothesis": hypothesis.__version__,
        "seed": origin.seed,
        "examples": origin.examples,
        "only": origin.only,
        "vectors": len(vectors),
        "marks": sorted({mark for vector in vectors for mark in vector.marks}),
        "files": files,
    }
    _write_json(folder / "index.json", index)
    for name in COMPANIONS:
        shutil.copyfile(FOLDER / name, folder / name)
    return index


def _of(topic: str, vectors: Iterable[Vector]) -> list[Vector]:
    return [one for one in vectors if FUNCTIONS[one.function] == topic]


def _package() -> dict[str, str]:
    if not rooms.is_checkout():
        return {"name": _NAME, "version": version(_NAME)}
    project = tomllib.loads((rooms.FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"name": project["name"], "version": project["version"]}


def _write_topic(topic: str, vectors: list[Vector], folder: Path) -> dict[str, Any]:
    kept = {one.key: one for one in blobs([[one.arguments, one.expected] for one in vectors])}
    archive = f"{topic}.npz" if kept else None
    offsets = write_archive(folder / archive, kept) if archive else {}
    data = [_vector_data(one, archive, offsets) for one in vectors]
    _write_json(folder / f"{topic}.json", {"schema": SCHEMA, "topic": topic, "vectors": data})
    return {
        "file": f"{topic}.json",
        "npz": archive,
        "functions": dict(Counter(one["function"] for one in data)),
    }


def _vector_data(vector: Vector, archive: str | None, offsets: dict[str, int]) -> dict[str, Any]:
    def reference(blob: Blob) -> dict[str, Any]:
        form = {"dtype": blob.dtype, "shape": list(blob.shape)}
        return {**form, "npz": archive, "key": blob.key, "offset": offsets[blob.key]}

    return {
        "id": vector.id,
        "function": vector.function.removesuffix(".fget"),
        "property": vector.tested,
        "sentence": vector.sentence,
        "marks": list(vector.marks),
        "environment": vector.environment,
        "arguments": in_place_of_blobs(vector.arguments, reference),
        "expected": in_place_of_blobs(vector.expected, reference),
    }


def write_archive(path: Path, kept: dict[str, Blob]) -> dict[str, int]:
    """An archive as `numpy.load` reads it, nothing in it compressed; where in the file each array's elements begin."""
    offsets = {}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for key, blob in sorted(kept.items()):
            entry = zipfile.ZipInfo(f"{key}.npy", _OLDEST)
            content = _npy(blob)
            archive.writestr(entry, content)
            # The archive's file stands behind what was written last.
            end = entry.header_offset + len(entry.FileHeader()) + len(content)
            offsets[key] = end - len(blob.raw)
    return offsets


def _npy(blob: Blob) -> bytes:
    held = io.BytesIO()
    array = np.frombuffer(blob.raw, np.dtype(blob.dtype).newbyteorder("<")).reshape(blob.shape)
    npy.write_array(held, array, version=(1, 0), allow_pickle=False)
    return held.getvalue()


def _write_json(path: Path, data: Any) -> None:
    text = spread(data) + "\n"
    assert json.loads(text) == json.loads(json.dumps(data)), f"{path} says something else"
    path.write_text(text, encoding="utf-8")
