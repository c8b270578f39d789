"""The places of stages in a pipeline, as a release's worker and runner ask for them: what connects them, and their streams."""

import collections
import contextlib
import importlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from statecheck.subject.not_offered import NotOffered
from subjects.vllm.engine.parts import GPU_FOLDER, HostBuffer
from subjects.vllm.engine.v1 import HostTorch
from subjects.vllm.release import RELEASE_NAME, optional

HANDLER, WORKER = f"{GPU_FOLDER}.pp_utils", "vllm.v1.worker.gpu_worker"
_NOT_YET = 1
"""What is in memory that a broadcast has not come to."""


class Rank:
    """A stage's place among the others, as the release asks for it."""

    def __init__(self, number: int, count: int) -> None:
        self.rank = self.rank_in_group = number
        self.ranks = list(range(count))
        self.world_size, self.last_rank = count, count - 1
        self.is_first_rank, self.is_last_rank = number == 0, number == count - 1
        self.sent: list[torch.Tensor] = []
        """Of the last stage: what it has broadcast."""
        self.wanted: list[torch.Tensor] = []
        """Of another stage: memory for that, of which so many have `arrived`."""
        self.arrived = 0
        self.wait_for: Callable[[int], None] = lambda _: None
        self.outgoing: collections.deque[_Sent] = collections.deque()
        self.incoming: collections.deque[_Sent] = collections.deque()

    def make_sibling_device_group(self, group_desc: str) -> "Rank":  # noqa: ARG002 - the release's
        return self

    def broadcast(self, tensor: torch.Tensor) -> None:
        """A broadcast of the last stage, in whose order the others have it."""
        if self.is_last_rank:
            self.sent.append(tensor.clone())
        else:
            self.wanted.append(tensor.fill_(_NOT_YET))

    def isend_tensor_dict(self, tensors: dict[str, torch.Tensor], **_: Any) -> list[Any]:
        """Send to the next stage. The first handle is that of what the tensors are like."""
        sent = _Sent(tensors)
        self.outgoing.append(sent)
        return [SimpleNamespace(wait=lambda: None), sent]

    def irecv_tensor_dict(self, **_: Any) -> tuple[dict[str, torch.Tensor], list[Any], list[Any]]:
        """What the stage before has sent for the next batch."""
        sent = self.incoming.popleft()
        sent.wait()
        return sent.tensors, [], []


class _Sent:
    """Tensors on their way: they are read when it is waited for."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self.tensors, self._is_read = tensors, False

    def wait(self) -> None:
        if not self._is_read:
            self.tensors = {name: tensor.clone() for name, tensor in self.tensors.items()}
        self._is_read = True


class _Stream:
    """A stream of the stage that runs: all is done on it but broadcasts, which an event stands behind."""

    def __init__(self, *_: Any) -> None:
        self.rank = Running.rank

    def record_event(self) -> Callable[[], None]:
        count, rank = len(self.rank.wanted), self.rank
        return lambda: rank.wait_for(count)

    def wait_event(self, event: Callable[[], None]) -> None:
        event()

    def wait_stream(self, _: Any) -> None: ...

    def synchronize(self) -> None: ...


class Running:
    """The stage that runs."""

    rank: Rank

    @staticmethod
    @contextlib.contextmanager
    def of(rank: Rank) -> Iterator[None]:
        before, read = getattr(Running, "rank", rank), HostBuffer.read
        Running.rank = rank
        try:
            yield
        finally:
            Running.rank, HostBuffer.read = before, read


def with_stages() -> None:
    """Have the release's modules ask for the stage that runs, and for its streams.

    Raises:
        NotOffered: the release has no such stages.
    """
    if optional(f"{HANDLER}:PPHandler") is None or optional(f"{WORKER}:Worker") is None:
        raise NotOffered(f"release {RELEASE_NAME} has no stages that run without a GPU")
    host = HostTorch(torch)
    host.cuda.Stream, host.cuda.current_stream = _Stream, _Stream
    vars(host)["distributed"] = SimpleNamespace(broadcast=lambda tensor, group, **_: group.broadcast(tensor))
    torch.Tensor.record_stream = lambda *_: None  # type: ignore[method-assign]
    for name in (HANDLER, WORKER):
        vars(importlib.import_module(name))["get_pp_group"] = lambda: Running.rank
    vars(importlib.import_module(HANDLER))["torch"] = host
    vars(importlib.import_module(WORKER))["get_tp_group"] = lambda: None
