"""The release's own event loop, a turn at a time, what it receives, and its sessions with their clock."""

import threading
from array import array
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

from subjects.kit.objects import names_in
from subjects.sglang.engine.releases import begin_turns_with
from subjects.sglang.release import RELEASE, NotOffered, find

_MESSAGES = "sglang.srt.managers.io_struct"
_ABSENT = ("input_text", "input_embeds", "mm_inputs", "token_type_ids", "token_ids_logprob")
"""Fields of a request that have no default."""
_CAPACITY = 1000
"""Of a session, in characters; the release keeps the number."""


def message(name: str, **given: Any) -> Any:
    """A message of the release by the name of its class."""
    return find(f"{_MESSAGES}:{name}")(**given)


def generate(
    id: str,  # noqa: A002
    tokens: Sequence[int],
    max_tokens: int,
    stop: int | None = None,
    **more: Any,
) -> Any:
    """A request that samples greedily and stops after `max_tokens`, and before that behind the token `stop`."""
    ends = {"ignore_eos": True} if stop is None else {"ignore_eos": False, "stop_token_ids": [stop]}
    parameters = find("sglang.srt.sampling.sampling_params:SamplingParams")(
        max_new_tokens=max_tokens, temperature=0.0, **ends
    )
    parameters.normalize(None)
    return message(
        "TokenizedGenerateReqInput",
        rid=id,
        input_ids=array("q", tokens),
        sampling_params=parameters,
        return_logprob=False,
        logprob_start_len=-1,
        top_logprobs_num=0,
        stream=True,
        **dict.fromkeys(_ABSENT),
        **more,
    )


def open_session(id: str, streaming: bool) -> Any:  # noqa: A002
    """A session begins."""
    return message("OpenSessionReqInput", capacity_of_str_len=_CAPACITY, session_id=id, streaming=streaming)


def session_parameters(session: str, after: str, offset: int, *, drops_output: bool, replaces: bool) -> Any:
    """A request's place in its session: the request that it continues, and which of its tokens it keeps."""
    return message(
        "SessionParams",
        id=session,
        rid=after or None,
        offset=offset if offset > 0 else None,
        replace=replaces or None,
        drop_previous_output=drops_output or None,
    )


def release_memory() -> Any:
    """The memory of weights and caches is given back."""
    return message("ReleaseMemoryOccupationReqInput")


def resume_memory(*tags: str) -> Any:
    """Memory is taken again; all of it without tags."""
    return message("ResumeMemoryOccupationReqInput", tags=list(tags) or None)


def update_weights() -> Any:
    """Weights are read from files, and caches are emptied."""
    return message("UpdateWeightFromDiskReqInput", model_path="", flush_cache=True)


class Loop:
    """The loop that `run_event_loop` of a scheduler chooses: `event_loop_normal` or `event_loop_overlap`.

    Args:
        scheduler: what receives its requests is replaced, by which the loop begins each of its turns.
    """

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self._inputs: Sequence[Any] = ()
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._error: BaseException | None = None
        self._stopped = False
        self._processes = begin_turns_with(scheduler, self._ingest)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._done.acquire()

    def turn(self, inputs: Sequence[Any]) -> None:
        """A turn of the loop, which begins with these inputs.

        Raises:
            BaseException: what the loop raised; it has ended then.
        """
        if self._error is not None:
            raise RuntimeError("the event loop has ended [turn]")
        self._inputs = inputs
        self._go.release()
        self._done.acquire()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End the loop at the beginning of its next turn."""
        self._stopped = True
        self._inputs = ()
        self._go.release()
        self._thread.join()

    def _run(self) -> None:
        try:
            self.scheduler.run_event_loop()
        except _Stopped:
            return
        except BaseException as error:
            self._error = error
        self._done.release()

    def _ingest(self, **_: Any) -> Sequence[Any]:
        self._done.release()
        self._go.acquire()
        if self._stopped:
            raise _Stopped
        if self._processes:
            self.scheduler.process_input_requests(list(self._inputs))
        return list(self._inputs)


class _Stopped(BaseException):
    """Ends a loop."""


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
        """The requests that the release has not ended."""
        return [] if self.controller is None else list(self.controller.sessions)

    def close_all(self) -> Sequence[Any]:
        """The messages that do."""
        return [message("CloseSessionReqInput", session_id=name) for name in self.open]
