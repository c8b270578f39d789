"""Sessions of the release: the clock by which it looks for closed ones, and the slots that they keep between requests."""

from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

from subjects.kit.objects import names_in
from subjects.sglang.engine.inputs import message
from subjects.sglang.release import RELEASE, NotOffered

_OLDEST = (0, 5, 22)
"""Refused and aborted turns of the releases before fail in ways that are not triaged; see docs/findings/triage.md."""
_CONTROLLER = "sglang.srt.session.session_controller"
_SECOND = 1.5
"""The release looks for closed sessions when more than a second has passed."""


def session_arguments(wanted: bool) -> dict[str, Any]:
    """The arguments of an engine with sessions.

    Raises:
        NotOffered: the adapter does not know the release's sessions.
    """
    if not wanted:
        return {}
    if RELEASE < _OLDEST:
        raise NotOffered("sessions")
    return {"enable_streaming_session": True}


class Sessions:
    """The sessions of a scheduler, whose clock stands still until it is said to go on.

    Args:
        scheduler: the release's.
        wanted: whether it has sessions at all.
    """

    def __init__(self, scheduler: Any, wanted: bool) -> None:
        self.tree = scheduler.tree_cache
        self.now = 0.0
        self.controller = scheduler.session_controller if wanted else None
        if self.controller is not None:
            names_in(_CONTROLLER)["time"] = SimpleNamespace(monotonic=lambda: self.now)
            reap = self.controller.maybe_reap
            self.controller.maybe_reap = lambda _: reap(self.now)

    def second_passes(self) -> None:
        self.now += _SECOND

    def kept(self, held: Collection[Any]) -> dict[str, Any]:
        """By session, what it keeps while none of the requests that hold slots uses it."""
        if self.controller is None:
            return {}
        used = {id(request.kv) for request in held}
        records = [(name, slot.kv) for name, slot in self.tree.session.slots.items()]
        return {
            name: SimpleNamespace(kv=record)
            for name, record in records
            if id(record) not in used and (record.holds_kv or record.holds_mamba)
        }

    @property
    def open(self) -> Sequence[str]:
        """Those that the release has not ended."""
        return [] if self.controller is None else list(self.controller.sessions)

    def close_all(self) -> Sequence[Any]:
        """The messages that do."""
        return [message("CloseSessionReqInput", session_id=name) for name in self.open]
