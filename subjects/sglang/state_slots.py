"""The release's kernels of slots, behind the stand-ins for packages that it imports."""

from subjects.sglang.release import RELEASE_NAME
from subjects.shared import state_slots

__all__ = ["StateSlots"]
StateSlots = state_slots.StateSlots
assert RELEASE_NAME, "the release is looked at first, so that its packages can be imported"
