"""The stages of a pipeline, each a worker of the release's V2 model runner: what connects them, their streams, and how late each comes to a batch."""

import collections
import contextlib
import copy
import importlib
import pickle
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from oracle.lifecycle.observed import ObservedStep
from statecheck.subject.subject import NotOffered
from subjects.kit.objects import bare
from subjects.vllm.engine.parts import GPU_FOLDER, HostBuffer
from subjects.vllm.engine.settings import LiveSettings
from subjects.vllm.engine.states import LiveMemory
from subjects.vllm.engine.v1 import HostTorch
from subjects.vllm.engine.v2 import LiveWorkerV2
from subjects.vllm.release import RELEASE, find

HANDLER, WORKER = f"{GPU_FOLDER}.pp_utils", "vllm.v1.worker.gpu_worker"
_NOT_YET = 1
"""The value of memory that a broadcast has not reached."""


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
        """Tensors that the stage before has sent for the next batch."""
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
    """Have the release's modules ask for the stage that runs, and for its streams."""
    host = HostTorch(torch)
    host.cuda.Stream, host.cuda.current_stream = _Stream, _Stream
    vars(host)["distributed"] = SimpleNamespace(broadcast=lambda tensor, group, **_: group.broadcast(tensor))
    torch.Tensor.record_stream = lambda *_: None  # type: ignore[method-assign]
    for name in (HANDLER, WORKER):
        vars(importlib.import_module(name))["get_pp_group"] = lambda: Running.rank
    vars(importlib.import_module(HANDLER))["torch"] = host
    vars(importlib.import_module(WORKER))["get_tp_group"] = lambda: None


class LiveStage(LiveWorkerV2):
    """The worker of one stage, around its model runner."""

    def __init__(
        self, rank: Rank, settings: LiveSettings, config: Any, caches: Any, plan: Any, dim_first: bool
    ) -> None:
        self.rank = rank
        config = copy.copy(config)
        config.compilation_config = copy.copy(config.compilation_config)
        config.compilation_config.static_forward_context = {}
        with Running.of(rank):
            memory = LiveMemory(settings, dim_first, rank.rank)
            super().__init__(settings, config, copy.deepcopy(caches), memory, plan)
            self._as_stage()
        self._worker = bare(
            find(f"{WORKER}:Worker"),
            model_runner=self.runner,
            vllm_config=config,
            parallel_config=config.parallel_config,
            use_v2_model_runner=True,
            profiler=None,
            _pp_send_work=[],
        )

    @property
    def released(self) -> Any:
        """The release's worker, which takes in what the stage before has sent."""
        return self._worker

    def _as_stage(self) -> None:
        runner, rank = self.runner, self.rank
        runner.use_pp, runner.pp_handler = (
            True,
            find(f"{HANDLER}:PPHandler")(
                max_num_reqs=self.settings.max_num_seqs,
                num_speculative_steps=self.settings.num_spec,
                device=runner.device,
            ),
        )
        runner.is_first_pp_rank, runner.is_last_pp_rank = rank.is_first_rank, rank.is_last_rank
        size = self.settings.max_num_batched_tokens + 64
        Tensors = find("vllm.sequence:IntermediateTensors")
        self.output = {name: torch.zeros(size, dtype=torch.int64) for name in ("tokens", "states")}
        """As a graph that was captured has it: in the same memory for every batch."""
        if not rank.is_first_rank:
            runner.intermediate_tensors = Tensors(
                {name: tensor.clone() for name, tensor in self.output.items()}
            )
        if not rank.is_last_rank:
            runner.sampler = runner.rejection_sampler = runner.speculator = runner.prompt_logprobs_worker = (
                None
            )

    def run(self, metadata: dict[str, Any], _: Any = None) -> Any:
        """The stage's output: the next tokens in the last stage, and the tensors that are sent in the others."""
        batch = self.batch
        starts = batch.query_start_loc.tolist()[: batch.num_reqs + 1]
        tokens, handed = batch.input_ids[: starts[-1]].tolist(), []
        if not self.rank.is_first_rank:
            # A later stage sees no token but what is sent to it.
            taken = self.runner.intermediate_tensors.tensors
            tokens, handed = (taken[name][: starts[-1]].tolist() for name in ("tokens", "states"))
        self.run_layers(batch.req_ids, starts, tokens, metadata, handed)
        assert self.forward is not None
        count = batch.num_tokens_after_padding
        if self.rank.is_last_rank:
            following = torch.zeros(count, dtype=torch.int64)
            following[: len(tokens)] = torch.tensor(self.forward.following, dtype=torch.int64)
            return following
        for name, values in (("tokens", tokens), ("states", self.forward.handed_on)):
            self.output[name][: len(values)] = torch.tensor(values, dtype=torch.int64)
        sent = {name: values[:count] for name, values in self.output.items()}
        return find("vllm.sequence:IntermediateTensors")(sent)


class LivePipeline:
    """The workers of all stages, in the place of one."""

    def __init__(
        self, settings: LiveSettings, config: Any, caches: Any, memory: LiveMemory, plan: Any
    ) -> None:
        if settings.runner != "V2" or settings.connector or settings.inside:
            raise NotOffered("stages with the V1 model runner, with a connector, or with a port inside")
        if settings.num_spec and not settings.async_scheduling:
            raise NotOffered("stages with drafts that the scheduler waits for")
        if settings.num_spec and (0, 30) <= RELEASE < (0, 31):
            raise NotOffered(
                "stages with drafts in 0.30, whose failures are not triaged (docs/compatibility.md)"
            )
        with_stages()
        self.late = settings.late_stages
        self.ranks = [Rank(number, settings.stages) for number in range(settings.stages)]
        for before, after in zip(self.ranks, self.ranks[1:], strict=False):
            before.outgoing = after.incoming
        self.stages = [
            LiveStage(rank, settings, config, caches, plan, memory.dim_first) for rank in self.ranks
        ]
        for rank in self.ranks[:-1]:
            rank.wait_for = lambda count, rank=rank: self._arrive(rank, count)  # type: ignore[misc]
        self.batches: list[bytes] = []
        """As the engine sends them to its workers."""
        self.scheduled: list[ObservedStep] = []
        self.done = [0] * settings.stages
        """By stage, the batches that it has run."""
        self.outputs: dict[int, Any] = {}
        self.read: collections.defaultdict[int, list[Any]] = collections.defaultdict(list)
        """By batch, the stage, and what it handed to its device."""
        self.seen: list[tuple[int, ObservedStep]] = []

    @property
    def slots(self) -> dict[str, int]:
        """Slots of all stages."""
        return {
            f"{name} of stage {number}": slot
            for number, stage in enumerate(self.stages)
            for name, slot in stage.slots.items()
        }

    def execute(self, scheduled: Any, seen: ObservedStep) -> "LivePipeline.Output":
        """Send a batch to all stages, some of which run it at once."""
        self.batches.append(pickle.dumps(scheduled))
        self.scheduled.append(copy.copy(seen))
        number = len(self.batches) - 1
        for stage in range(len(self.stages)):
            late = self.late[stage] if stage < len(self.late) else 0
            self._run_through(stage, number - late)
        return LivePipeline.Output(self, number)

    class Output:
        """The last stage's output of a batch, when it is read."""

        def __init__(self, pipeline: "LivePipeline", number: int) -> None:
            self.pipeline, self.number = pipeline, number

        def get_output(self) -> Any:
            self.pipeline._run_through(len(self.pipeline.stages) - 1, self.number)
            output = self.pipeline.outputs.pop(self.number)
            return output.get_output() if hasattr(output, "get_output") else output

    def drafts(self) -> None:
        """The scheduler gets no output of drafts: the stages send these to each other."""

    def observed(self) -> list[tuple[int, ObservedStep]]:
        """Steps of stages since the last call."""
        seen, self.seen = self.seen, []
        return seen

    def _run_through(self, stage: int, number: int) -> None:
        while self.done[stage] <= number:
            batch = self.done[stage]
            if stage:
                self._run_through(stage - 1, batch)
            self._run(stage, batch)
            self.done[stage] += 1
            if stage == len(self.stages) - 1:
                self._end(batch)

    def _run(self, number: int, batch: int) -> None:
        stage, step = self.stages[number], self.scheduled[batch]
        seen = ObservedStep(scheduled=step.scheduled, owners=step.owners)
        with Running.of(stage.rank):
            HostBuffer.read = []
            output = stage.execute(pickle.loads(self.batches[batch]), seen)  # noqa: S301 - our own
            self.read[batch] += [(number, *entry) for entry in HostBuffer.read]
        seen.published = [(*one[:4], stage.memory.contents(*one[:2])) for one in step.published]
        if stage.rank.is_last_rank:
            self.outputs[batch] = output
        self.seen.append((number, seen))

    def _end(self, batch: int) -> None:
        """The last stage has run a batch: until then its host memory had to stay as it was."""
        for number, view, before in self.read.pop(batch, ()):
            after = tuple(view.flatten().tolist())
            if before != after:
                self.seen.append((number, ObservedStep(host_memory=((before, after),))))

    def _arrive(self, rank: Rank, count: int) -> None:
        """The first so many broadcasts come to a stage."""
        last = len(self.stages) - 1
        while len(self.ranks[last].sent) < count:
            if self.done[last] == len(self.batches):
                raise RuntimeError(f"stage {rank.rank} waits for a broadcast of a batch that comes later")
            self._run_through(last, self.done[last])
        for at in range(rank.arrived, count):
            wanted, sent = rank.wanted[at], self.ranks[last].sent[at]
            if wanted.shape != sent.shape:
                raise RuntimeError(
                    f"stage {rank.rank} receives {tuple(wanted.shape)} of a broadcast of {tuple(sent.shape)}"
                )
            wanted.copy_(sent)
        rank.arrived = max(rank.arrived, count)
