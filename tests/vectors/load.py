"""A corpus read again, as another program reads it: by its files alone."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Any

import numpy as np

from statecheck.data.decode import format_value
from statecheck.data.json_files import load as read_json
from statecheck.vectors.write import SCHEMA

Vector = dict[str, Any]


def load(folder: Path) -> list[Vector]:
    """The vectors of a corpus, with the elements in the place of references.

    Raises:
        ValueError: another version of the format.
    """
    index = read_json(folder / "index.json", "an index of vectors")
    schema = index.get("schema") if isinstance(index, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"schema = {format_value(schema)}, but should be {SCHEMA} [{folder}]")
    return [vector for one in index["files"] for vector in _topic(folder, one["file"], one["npz"])]


def _topic(folder: Path, file: str, npz: str | None) -> list[Vector]:
    for name in (file, npz or file):
        if PurePath(name).name != name:
            raise ValueError(f"file = {name!r}, but should be the name of a file [{folder / 'index.json'}]")
    vectors = read_json(folder / file, "vectors")["vectors"]
    if npz is None:
        return list(vectors)
    with np.load(folder / npz, allow_pickle=False) as archive:
        return [_plain_data(vector, archive) for vector in vectors]


def _plain_data(data: Any, archive: Any) -> Any:
    if isinstance(data, list):
        return [_plain_data(item, archive) for item in data]
    if not isinstance(data, dict):
        return data
    if "key" not in data:
        return {name: _plain_data(item, archive) for name, item in data.items()}
    array = archive[data["key"]]
    assert [array.dtype.name, list(array.shape)] == [data["dtype"], data["shape"]], f"{data} is another array"
    flat = array.ravel()
    return {
        "dtype": data["dtype"],
        "shape": data["shape"],
        "data": flat.tobytes() if array.dtype == np.uint8 else flat.tolist(),
    }
