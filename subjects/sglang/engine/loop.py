"""The release's own event loop, a turn at a time: it runs in a thread and waits where it asks for requests."""

import threading
from collections.abc import Sequence
from typing import Any

from subjects.sglang.engine.releases import begin_turns_with


class Loop:
    """What `run_event_loop` of a scheduler chooses: `event_loop_normal` or `event_loop_overlap`.

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
