"""The engine notices metadata that send a forward to states that are not its own."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from statecheck.execution.example import ExecutionContext
from tests.unit.properties.engine.driven import (
    BUILD,
    EVERY_BOUNDARY,
    GDN,
    IN_ONE_COLUMN,
    PADDED,
    edited,
    says,
    world,
)

GDN_BUILD = "GDNAttentionMetadataBuilder.build"
WORLDS = {
    "usual": world(),
    "gdn": GDN,
    "in one column": IN_ONE_COLUMN,
    "every boundary": EVERY_BOUNDARY,
    "padded": PADDED,
}
MISLEADING = tomllib.loads(Path(__file__).with_name("misleading_metadata.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "row", MISLEADING["misleading"], ids=lambda row: f"{row['name']}{', GDN' * (row['world'] == 'gdn')}"
)
def test_metadata_that_mislead_the_forward_are_named(trial: ExecutionContext, row: dict[str, Any]) -> None:
    number = row["words"].count("step") + row["words"].count("pad") - 1
    build = GDN_BUILD if row["world"] == "gdn" else BUILD
    tamper = edited(row["field"], row["element"], row["value"])
    assert (
        says(trial, WORLDS[row["world"]], row["words"], build, number, tamper)
        == f"in step {number}, {row['says']}"
    )
