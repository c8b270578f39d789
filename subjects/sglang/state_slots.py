"""The release's kernels of slots, behind the stand-ins for packages that it imports."""

from subjects.kit import state_slots
from subjects.sglang.release import RELEASE_NAME

__all__ = ["StateSlots"]
StateSlots = state_slots.StateSlots
assert RELEASE_NAME, "the release is looked at first, so that its packages can be imported"
