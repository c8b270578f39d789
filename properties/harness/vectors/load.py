"""A corpus read again, as somebody else reads it: by its files alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from properties.harness.vectors.write import SCHEMA

Vector = dict[str, Any]


def load(folder: Path) -> list[Vector]:
    """The vectors of a corpus, with the elements in the place of references.

    Raises:
        ValueError: another version of the format.
    """
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    if index["schema"] != SCHEMA:
        raise ValueError(f"schema = {index['schema']}, but should be {SCHEMA} [{folder}]")
    return [vector for one in index["files"] for vector in _topic(folder, one["file"], one["npz"])]


def _topic(folder: Path, file: str, npz: str | None) -> list[Vector]:
    vectors = json.loads((folder / file).read_text(encoding="utf-8"))["vectors"]
    if npz is None:
        return list(vectors)
    with np.load(folder / npz, allow_pickle=False) as archive:
        return [_spelled(vector, archive) for vector in vectors]


def _spelled(data: Any, archive: Any) -> Any:
    if isinstance(data, list):
        return [_spelled(item, archive) for item in data]
    if not isinstance(data, dict):
        return data
    if "key" not in data:
        return {name: _spelled(item, archive) for name, item in data.items()}
    array = archive[data["key"]]
    assert [array.dtype.name, list(array.shape)] == [data["dtype"], data["shape"]], f"{data} is another array"
    flat = array.ravel()
    return {
        "dtype": data["dtype"],
        "shape": data["shape"],
        "data": flat.tobytes() if array.dtype == np.uint8 else flat.tolist(),
    }
