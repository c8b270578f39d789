"""The pages of a checkout that show what campaigns on releases found."""

from __future__ import annotations

from pathlib import Path

from statecheck.releases.compatibility.record import loaded
from statecheck.releases.compatibility.table import summary, table

FILES = {"compatibility": "docs/compatibility.md", "releases": "README.md"}
"""Where each part stands, by its name."""


def parts_of_releases(results: Path) -> dict[str, str]:
    """The text of each part, by its name, from saved results."""
    found = loaded(results)
    return {"compatibility": table(found), "releases": summary(found)}
