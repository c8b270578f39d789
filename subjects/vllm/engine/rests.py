"""Sleep and updates of weights, by the release's own engine core: it pauses, waits until no work is left, empties its caches, and goes on."""

import collections
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from statecheck.subject.subject import NotOffered
from subjects.kit.objects import bare
from subjects.vllm.engine.states import LiveMemory
from subjects.vllm.release import find


class _Executor:
    """In the place of the release's executor: what it holds is the memory of a scenario."""

    def __init__(self, memory: LiveMemory, initialize: Callable[[], None]) -> None:
        self._memory, self._initialize, self.is_sleeping = memory, initialize, False
        self.anew = False
        """Whether caches are initialised again behind a sleep."""

    def sleep(self, level: int) -> None:  # noqa: ARG002 - weights are the scenario's
        self._memory.lose()
        self.is_sleeping = True

    def wake_up(self, tags: Any = None) -> None:  # noqa: ARG002 - all of it wakes up
        if self.is_sleeping and self.anew:
            self._initialize()
        self.is_sleeping = False

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class LiveRests:
    """The rests of an engine, one at a time.

    Args:
        keeps_blocks: whether the release may refuse to empty its caches.
        dummy_batch: runs a dummy batch, if the engine runs any.
        initialize: initialises the caches again.
    """

    def __init__(
        self,
        scheduler: Any,
        memory: LiveMemory,
        in_flight: collections.deque[Any],
        keeps_blocks: Callable[[], bool],
        dummy_batch: Callable[[], None],
        initialize: Callable[[], None],
    ) -> None:
        self._keeps_blocks, self._dummy_batch = keeps_blocks, dummy_batch
        self._executor = _Executor(memory, initialize)
        self._end: Callable[[], None] | None = None
        self._waits: Future[Any] = Future()
        self.core = bare(
            find("vllm.v1.engine.core:EngineCoreProc"),
            scheduler=scheduler,
            model_executor=self._executor,
            batch_queue=in_flight,
            engines_running=False,
            output_queue=SimpleNamespace(put_nowait=lambda _: None),
            mm_receiver_cache=None,
            _idle_state_callbacks=[],
        )

    @property
    def under_way(self) -> bool:
        return self._end is not None

    def begin(
        self,
        level: int | None,
        mode: str,
        end: Callable[[], None] = lambda: None,
        *,
        anew: bool = False,
    ) -> None:
        """Pause, and at a level sleep; `end` is done when all has stopped, unless the release refuses. A second rest of an engine that rests only aborts.

        Args:
            anew: caches that are lost in a sleep are initialised again.

        Raises:
            NotOffered: the release's core empties no caches for it.
        """
        if not hasattr(self.core, "_finish_pause"):
            raise NotOffered("a core that pauses")
        if self.under_way:
            self.core.pause_scheduler(mode, False)
            return
        self._end, self._waits, self._executor.anew = end, Future(), anew
        try:
            later = self.core.pause_scheduler(mode) if level is None else self.core.sleep(level, mode)
        except Exception as error:
            self._waits.set_exception(error)
        else:
            if later is None:
                self._waits.set_result(None)
            else:
                self._waits = later
        self.go_on()

    def go_on(self) -> None:
        """Wake up, if nothing is left to wait for."""
        if self._end is None:
            return
        if not self.core.has_work():
            self.core._notify_idle_state_callbacks()
        if not self._waits.done():
            return
        end, self._end = self._end, None
        try:
            self._waits.result()
        except RuntimeError as error:
            # Other errors than the release's refusal are its defects.
            if not (self._keeps_blocks() and str(error).startswith("Failed to reset")):
                raise
        else:
            end()
        if not self._executor.is_sleeping:
            # Other engines of its group still run.
            self._dummy_batch()
        self.core.wake_up()
