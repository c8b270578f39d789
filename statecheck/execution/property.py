"""A property: its sentence, its kind, the functions that it is about, and the Hypothesis test that checks it."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.stateful import RuleBasedStateMachine
from hypothesis.strategies import SearchStrategy

from statecheck.case import Case
from statecheck.case.values import Step
from statecheck.execution.example import (
    ORDER_FREE,
    REFUSAL,
    Example,
    ExampleEnded,
    ExecutionContext,
    Falsified,
)
from statecheck.execution.private.hypothesis import (
    ENDS_EXAMPLES,
    run_machine,
    states_kept_once,
    with_no_database_key,
    without_reading_constants,
    without_simplest,
)
from statecheck.subject import Subject, is_engine
from statecheck.subject.subject import LIBRARY, OF_LIBRARY
from statecheck.util.files import in_file_name

ERRORS = "errors"
"""The folder of reports with inputs on which a property raised, although each outcome is what the rules expect."""
_ON_A_CPU = 5
# A turn of a campaign ends after some twelve compared examples, most of which are to be drawn.
_WRITTEN_IN_A_SEARCH = 4
_LAUNCHING = frozenset(
    {
        "harness.launch",
        "batch_memcpy",
        "do_mamba_copy_block",
        "preprocess_mamba",
        "postprocess_mamba_align_gpu",
        "MambaSpecDecodeGPUContext.run_fused_postprocess",
        "MambaSpecDecodeGPUContext.run_fused_precopy",
        "MambaSpecDecodeGPUContext.run_fused_postprocess_align",
        "StateSlots.clear",
        "StateSlots.copy",
        "StateSlots.last_accepted",
        "StateSlots.of_rows",
        "StateSlots.scatter",
        "StateSlots.track",
    }
)


def launches(function: str) -> bool:
    """Whether a documented function launches kernels."""
    return function in _LAUNCHING or function.startswith("Recurrences.") or is_engine(function)


@dataclass(frozen=True)
class Property:
    """One sentence about one or more documented functions, and the Hypothesis test that checks it.

    `id`, such as "v1-postprocess/boundary", is its only name: people type it, and files keep it. `device` restricts it to one device ("cuda") where the sentence has no meaning elsewhere.
    `any_of`: it is about each function alone, and applies where there is one of them.
    `situations`: those that it is for, by names: an example is compared where it reaches one of them, and the property passes where each was reached.
    `written`: arguments of the body for written examples: inputs that drawn examples seldom have.
    """

    id: str
    sentence: str
    kind: str
    functions: tuple[str, ...]
    body: Callable[..., None]
    strategies: dict[str, SearchStrategy[Any]]
    module: str
    device: str | None = None
    any_of: bool = False
    situations: tuple[str, ...] = ()
    written: tuple[Mapping[str, Any], ...] = ()

    @property
    def topic(self) -> str:
        """The name of its module, without what all modules of properties begin with."""
        return self.module.rpartition(".")[2].removeprefix("test_")

    @property
    def is_of_library(self) -> bool:
        """Whether it is about a library of sequences, with each of its models."""
        return LIBRARY in self.functions

    @property
    def launches(self) -> bool:
        """Whether its examples launch kernels, which take milliseconds each on a CPU; what is refused is refused before a launch."""
        return self.kind != REFUSAL and any(map(launches, self.functions))

    def examples(self, context: ExecutionContext, most: int | None = None) -> int:
        """How many examples a test run gives it: `most`, or a share of them where kernels are executed on a CPU.

        These take many times as long as others; campaigns give them time, a test run does not.

        Args:
            most: by default as many as the profile has.
        """
        shared = _ON_A_CPU if self.launches and context.port.device == "cpu" else 1
        return max(1, (most or settings().max_examples) // shared)

    def example(self, context: ExecutionContext, **drawn: Any) -> None:
        """Run the body on one example; a failure that the subject declares is none."""
        with contextlib.suppress(ExampleEnded), discards_counted(context):
            trial = context.begin(self)
            with trial.reading():
                # Inputs from which releases are taken through other steps have a method that gives the same for a release.
                given = {
                    name: value.of_release(trial.profile) if hasattr(value, "of_release") else value
                    for name, value in drawn.items()
                }
                self.body(trial, **given)
            trial.end()
        context.observer.example_ended()

    def run_written(self, context: ExecutionContext, most: int | None = None) -> None:
        """Run the next written examples that have not run in the context, all or `most`; raises what the first failing example raises."""
        for written in self.written[context.written[self.id] :][:most]:
            test, before = with_no_database_key(hypothesis.example(**written)(self.test())), context.examples
            try:
                self._settings(1, database=None, phases=[Phase.explicit])(test)(context)
            finally:
                # None where the observer ended the search before the example: it runs in the next search.
                context.written[self.id] += context.examples - before

    def test(self) -> Callable[..., None]:
        """The Hypothesis test; its argument `trial` is the `ExecutionContext` to run on."""

        @functools.wraps(self.body)
        def example(trial: ExecutionContext, **drawn: Any) -> None:
            self.example(trial, **drawn)

        put_at(example, *self.place)
        return given(**self.strategies)(example)

    def keep_unread(self, case: Case, reports: Path) -> str:
        """Save the input of an error of its own below `reports`; where it stands and what has to be repaired, in a sentence.

        Raises:
            OSError: the folder cannot be written to.
        """
        path = case.save(reports / ERRORS / f"{in_file_name(case.property_id)}.json", durable=False)
        file, line = self.place
        return (
            f"the subject's results are what the rules expect, so that the property has to be repaired: "
            f"{Path(file).name}:{line}; its input is in {path}"
        )

    @property
    def place(self) -> tuple[str, int]:
        """File and line of its statement."""
        code = getattr(inspect.unwrap(self.body), "__code__", None)
        return (code.co_filename, code.co_firstlineno) if code is not None else ("", 1)

    @property
    def own_settings(self) -> dict[str, Any]:
        """Settings of Hypothesis that hold for it in every run."""
        return {}

    def search(self, context: ExecutionContext, most: int | None = None) -> None:
        """Run the examples of a test run under the user's own profile; raises what the test raises for the shrunk one."""
        self.run(context, self._settings(self.examples(context, most)))
        self.run_written(context)

    def explore(
        self, context: ExecutionContext, *, seed: int, max_examples: int, simplest: bool = True
    ) -> None:
        """Run up to `max_examples` fresh examples; raises what the test raises for the shrunk one.

        Args:
            simplest: begin with the simplest example. If False, the first example is a random one, the simplest example is only a
                candidate of the shrinker, no constants are read from the subject's source, and written examples wait for the next
                search. A state machine always begins with the simplest example.
        """
        failed: Falsified | None = None
        try:
            if simplest:
                # Of all ways to break a contract, drawn examples have few.
                self.run_written(context, None if self.kind == REFUSAL else _WRITTEN_IN_A_SEARCH)
        except Falsified as error:
            # Drawn examples are shrunk: what they show, too, is shown by a smaller input.
            failed = error
        explored = self if simplest else replace(self, strategies=without_simplest(self.strategies))
        with nullcontext() if simplest else without_reading_constants():
            # The corpus remembers what failed; with a database, a seed would draw other inputs after a failure.
            explored.run(context, self._settings(max_examples, database=None), seed)
        if failed is not None:
            raise failed

    def _settings(self, max_examples: int, **others: Any) -> settings:
        """What holds for properties whatever the profile; it decides about the rest."""
        return settings(
            max_examples=max_examples,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            **self.own_settings,
            **others,
        )

    def run(self, context: ExecutionContext, chosen: settings, seed: int | None = None) -> None:
        """Run the test with these settings and, if there is one, this seed."""
        test = self.test() if chosen.database is not None else with_no_database_key(self.test())
        if seed is None:
            chosen(test)(context)
            return
        with states_kept_once():
            chosen(hypothesis.seed(seed)(test))(context)

    def not_applicable(self, context: ExecutionContext) -> str | None:
        """Why this property says nothing about the context's subject or device, or None."""
        wanted, missing = self._wanted_and_missing(context.subject)
        if missing:
            return f"{context.subject.name} has no {', '.join(missing)}"
        if wanted and context.subject.supplied.issuperset(wanted):
            return f"the adapter supplies {', '.join(wanted)}, not {context.subject.name}"
        if self.kind == REFUSAL and not context.subject.refuses:
            return f"{context.subject.name} does not promise to refuse what is undocumented"
        choices = context.subject.sequences
        if choices is not None and self.is_of_library:
            if not choices.models:
                return f"every model of {context.subject.name} is declared as unsupported"
            if operations := self._missing_operations(context.subject):
                return f"{context.subject.name} has no {', '.join(operations)}"
        device = context.port.device
        if self.device not in (None, device):
            return f"needs {self.device}, runs on {device}"
        if self.kind == ORDER_FREE and device != "cpu":
            return f"where kernels are compiled, on {device}, programs run in an order of the device's own"
        # No input of any function that it needs may be inside of the subject's contract.
        reasons = [context.subject.never(function) for function in wanted]
        if not wanted or None in reasons:
            return None
        return "; ".join(dict.fromkeys(filter(None, reasons)))

    def lacking(self, subject: Subject) -> list[str]:
        """The functions and operations that it needs and the subject does not offer."""
        return self._wanted_and_missing(subject)[1] or self._missing_operations(subject)

    def _wanted_and_missing(self, subject: Subject) -> tuple[list[str], list[str]]:
        """The functions of the subject that it calls, and of these the ones that it cannot do without and the subject lacks."""
        wanted = [function for function in self.functions if not function.startswith("harness.")]
        missing = [function for function in wanted if not subject.has(function)]
        if self.any_of and len(missing) < len(wanted):
            return [one for one in wanted if one not in missing], []
        return wanted, missing

    def _missing_operations(self, subject: Subject) -> list[str]:
        if (choices := subject.sequences) is None:
            return []
        operations = (name.removeprefix(OF_LIBRARY) for name in self.functions if name.startswith(OF_LIBRARY))
        return [name for name in operations if not choices.offers(name)]


def put_at(test: Any, file: str, line: int) -> None:
    """Let pytest, which asks a function's code, say that a test stands there."""
    test.__code__ = test.__code__.replace(co_filename=file, co_firstlineno=line)


@contextlib.contextmanager
def discards_counted(context: ExecutionContext) -> Iterator[None]:
    """Count the example that ends here because the property itself, or Hypothesis, does not want it."""
    try:
        yield
    except ENDS_EXAMPLES:
        context.counts.discarded += 1
        raise


# Properties of sequences: Hypothesis state machines whose every step is held against the rules.


class ExampleMachine(RuleBasedStateMachine):
    """A state machine whose scenario is one example of one property: its rules hold steps against the rules on `trial`.

    After a failure that the subject declares, the rest of the scenario says nothing any more.
    """

    steps: ClassVar[int] = 10
    """Rules in a scenario, at most."""

    def __init__(self, trial: Example) -> None:
        super().__init__()
        self.trial = trial
        self.known_failure = False

    def follow(self, **given: Any) -> None:
        """Let a scenario of these arguments happen, in place of a drawn one; its machine has them if there are enumerations of it."""
        raise NotImplementedError

    def teardown(self) -> None:
        """The scenario is over. Hypothesis has the machine in cycles of its own, and what these keep waits to be collected."""
        del self.trial

    def agrees(self, *steps: Step) -> None:
        if self.known_failure:
            return
        try:
            self.trial.agrees(*steps)
        except ExampleEnded:
            self.known_failure = True


def no_body() -> None:
    """A machine has rules in place of a body."""


@dataclass(frozen=True)
class MachineProperty(Property):
    """A property that is checked after every step of a state machine's scenario."""

    machine: type[ExampleMachine] = ExampleMachine

    def example(self, context: ExecutionContext, **drawn: Any) -> None:
        """Run the scenario of these arguments; a failure that the subject declares is none."""
        with contextlib.suppress(ExampleEnded), discards_counted(context):
            machine = self.machine(context.begin(self))
            try:
                machine.follow(**drawn)
            finally:
                machine.teardown()

    def examples(self, context: ExecutionContext, most: int | None = None) -> int:
        """Half as many as of other properties, since a scenario takes as long as many examples."""
        return max(1, super().examples(context, most) // 2)

    def test(self) -> Callable[..., None]:
        def test(trial: ExecutionContext) -> None:
            self.run(trial, settings(max_examples=self.examples(trial), **self.own_settings))

        put_at(test, *self.place)
        # pytest looks for names that begin with test_, as the name of a class does not.
        test.__name__ = f"test_{re.sub(r'[/-]', '_', self.id)}"
        test.__doc__, test.__module__ = self.sentence, self.module
        return test

    @property
    def place(self) -> tuple[str, int]:
        return inspect.getsourcefile(self.machine) or "", inspect.getsourcelines(self.machine)[1]

    @property
    def own_settings(self) -> dict[str, Any]:
        return {"stateful_step_count": self.machine.steps}

    def run(self, context: ExecutionContext, chosen: settings, seed: int | None = None) -> None:
        with nullcontext() if seed is None else states_kept_once():
            run_machine(lambda: self.machine(context.begin(self)), chosen, seed)
