"""All exhibits. Importing this decorates kernels: say first where they run, with `triton_mode.prepare`."""

from __future__ import annotations

from tests.gallery import bounds, contents, faults, races
from tests.gallery.exhibit import Exhibit

EXHIBITS: tuple[Exhibit, ...] = (
    *bounds.EXHIBITS,
    *races.EXHIBITS,
    *contents.EXHIBITS,
    *faults.EXHIBITS,
)
BY_NAME = {one.name: one for one in EXHIBITS}
