"""Inputs on which a property raised, although each outcome is what the rules expect."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from statecheck.case import Case

if TYPE_CHECKING:
    from statecheck.execution.registry import Property

FOLDER = "errors"


def kept_unread(case: Case, reports: Path, tested: Property) -> str:
    """Save the input of an error below `reports`; where it stands and which property has to be repaired, in a sentence.

    Raises:
        OSError: the folder cannot be written to.
    """
    path = case.save(reports / FOLDER / f"{case.property_name}.json", durable=False)
    file, line = tested.place
    return (
        f"the subject's results are what the rules expect, so that the property has to be repaired: "
        f"{Path(file).name}:{line}; its input is in {path}"
    )
