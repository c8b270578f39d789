"""The execution port: the one place where plain data becomes tensors and a subject is called.

Properties never hold a tensor. They hand steps to a port and get outcomes back, so a port that runs in another
process, or on another machine, needs no change in any property.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, NoReturn

import torch

from statecheck.case.findings import Finding, NotExecuted
from statecheck.case.raised import from_outside, message_of, name_of
from statecheck.case.values import (
    Call,
    Let,
    Outcome,
    Overwrite,
    Raised,
    Returned,
    Step,
    Value,
)
from statecheck.execution.objects.arena import Arena
from statecheck.execution.objects.blocks import (
    Allocation,
    Named,
    Scope,
    SubjectError,
    Window,
)
from statecheck.execution.objects.build import Bound, Builder
from statecheck.execution.objects.describe import Describer
from statecheck.execution.objects.own import OWN_FUNCTIONS, launch
from statecheck.execution.objects.sanitizer import Watched
from statecheck.execution.objects.source_line import source_line
from statecheck.kernels.orders import program_schedule
from statecheck.subject import NotOffered, Subject, is_engine
from statecheck.subject.process_state import ProcessState


class InProcess:
    """Executes in this process, on `device` ("cpu" or "cuda").

    Args:
        sanitized: watch every launch with the sanitizer; what it finds is what the call raises.
        record: the sanitizer keeps who wrote what.
        arena: small tensors lie in one piece of memory, see `Arena`; by default on every device but the CPU.
        on_call: called before each call of the subject.

    Raises:
        ValueError: kernels are to be watched on a device where they are compiled.
    """

    def __init__(
        self,
        subject: Subject,
        device: str,
        *,
        sanitized: bool = False,
        record: bool = False,
        arena: bool | None = None,
        on_call: Callable[[], None] = lambda: None,
    ) -> None:
        if sanitized and device != "cpu":
            raise ValueError(f"sanitized = True, but should be False on {device} [InProcess]")
        self.subject = subject
        self.device = device
        self.on_call = on_call
        self.watched = Watched(record=record) if sanitized else None
        together = device != "cpu" if arena is None else arena
        self._builder = Builder(
            subject, device, watched=self.watched, arena=Arena(device) if together else None
        )
        self._describer = Describer(device, self._builder.allocator.imaged)
        self._refuses_waiting = False
        self._state = ProcessState()

    def begin(self) -> None:
        self._state.begin()
        self._builder.names.clear()
        self._builder.allocator.begin_example()
        if self.watched is not None:
            self.watched.begin()

    def give_back(self) -> None:
        """Memory of gigabytes that no name is bound to goes back to the device, for other processes."""
        self._builder.allocator.give_back()

    def execute(self, step: Step) -> Outcome | None:
        if isinstance(step, Let):
            self._builder.let(step.name, step.value)
        elif isinstance(step, Overwrite):
            self._builder.overwrite(step)
        else:
            self.on_call()
            return self._call(step)
        return None

    def bound(self, name: str) -> Bound | None:
        """What a step of the example in hand has bound to a name."""
        return self._builder.names.get(name)

    def views(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors that steps of the example in hand have bound to these names."""
        bound = ((name, self.bound(name)) for name in names)
        return ((name, one.view) for name, one in bound if isinstance(one, Allocation | Window))

    def materialise(self, value: Value) -> Any:
        """The object that `value` stands for, on this port's device."""
        built = self._builder.build(value, "", Scope())
        self._builder.allocator.flush()
        return built

    def _call(self, call: Call) -> Outcome:
        scope = Scope()
        self._builder.allocator.begin_call()
        before = self.subject.own_calls()
        try:
            with ExitStack() as stack:
                # It has the subject forget what it remembers, by the subject's own code.
                self._builder.run(stack.enter_context, self.subject.environment(dict(call.environment)))
                result = self._run(self._prepared(call, scope), call, scope)
        except SubjectError as error:
            self._builder.allocator.pull()
            self._bind(call, error)
            cause = error.__cause__
            assert cause is not None
            finding = cause if isinstance(cause, Finding) else None
            return Raised(
                name_of(type(cause)),
                message_of(cause),
                *self._traces(call, scope),
                at=source_line(cause) if finding is None else None,
                kind="refusal" if finding is None else finding.kind,
                access=None if finding is None else finding.access.fields,
                by_subject=self._is_own(call, before),
                not_offered=isinstance(cause, NotOffered | NotExecuted),
            )
        self._bind(call, Named(result, Scope()))
        described = self._describer.result(result, "result", scope, by_content=call.by_content)
        return Returned(described, *self._traces(call, scope), self._is_own(call, before))

    def _is_own(self, call: Call, before: int | None) -> bool:
        """Whether a function of the subject ran in the call, of whose functions `before` were called before it."""
        return self.subject.is_own(call.function) if before is None else self.subject.own_calls() != before

    def _prepared(self, call: Call, scope: Scope) -> Callable[[], Any]:
        build = self._builder.build
        arguments = [build(value, name, scope) for name, value in call.arguments]
        keywords = {name: build(value, name, scope) for name, value in call.keywords}
        owner, _, name = call.function.partition(".")
        function: Any
        if owner != "harness":
            function = self.subject.resolve(call.function)
        else:
            function = partial(launch, self.subject) if name == "launch" else OWN_FUNCTIONS[name]
        return partial(function, *arguments, **keywords)

    def _bind(self, call: Call, result: Named | SubjectError) -> None:
        if call.bind:
            self._builder.names[call.bind] = result

    def _traces(self, call: Call, scope: Scope) -> tuple[tuple[str, ...], tuple[tuple[str, Value], ...]]:
        """What was written to and is not observed, and what everything observed holds."""
        names = self._builder.names
        after = tuple((name, self._describer.observed(names, name)) for name in call.observes)
        observed = [names[name] for name in call.observes if name in names]
        blocks = [bound for bound in observed if isinstance(bound, Allocation)]
        for bound in observed:
            if isinstance(bound, Window):
                bound.accept()
        changed = scope.changed(blocks)
        for block in blocks:
            block.accept()
        return changed, after

    @contextmanager
    def waiting_refused(self) -> Iterator[None]:
        self._refuses_waiting = self.device != "cpu"
        try:
            yield
        finally:
            self._refuses_waiting = False

    def _run(self, function: Callable[[], Any], call: Call, scope: Scope) -> Any:
        watching: AbstractContextManager[None] = nullcontext()
        # An engine's kernels work in memory of its own, of which the sanitizer knows nothing.
        if self.watched is not None and not is_engine(call.function):
            watching = self.watched.watching(scope, kept=call.keeps)
        self._builder.allocator.flush()
        process = os.getpid()
        try:
            with (
                self._waiting_is_error() if self._refuses_waiting else nullcontext(),
                watching,
                program_schedule(call.schedule),
                self._state.kept(),
            ):
                result = function()
            if os.getpid() != process:
                _end_child()
            # Until everything that the call has started is done, copies to host memory among it. The download is asked for first: where
            # processes share a GPU, each wait is for all of their turns. What an engine launches next would not wait for other
            # streams of the subject's either.
            with self._builder.allocator.fetching():
                if self.device != "cpu":
                    torch.cuda.synchronize()
        except BaseException as error:
            if os.getpid() != process:
                _end_child(error)
            if from_outside(error):
                raise
            raise SubjectError from error
        return result

    @staticmethod
    @contextmanager
    def _waiting_is_error() -> Iterator[None]:
        try:
            with warnings.catch_warnings():
                # The first time in a process it warns that it may miss some; as an error that would leave it on.
                warnings.simplefilter("ignore", UserWarning)
                torch.cuda.set_sync_debug_mode("error")
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


def _end_child(error: BaseException | None = None) -> NoReturn:
    """End a process that the subject forked and that came out of the call: it would go on as a second one like its parent."""
    code = error.code if isinstance(error, SystemExit) else int(error is not None)
    os._exit(code if isinstance(code, int) else int(code is not None))
