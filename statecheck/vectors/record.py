"""What the properties ask, and what the rules answer, without any subject."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import oracle
from oracle.situations.registry import take
from statecheck.campaign.marks import drawing_only, unnoted
from statecheck.case.former import first_name
from statecheck.case.values import Call, Expected, Outcome, Step, Tensor, Value
from statecheck.execution.example import Bench
from statecheck.execution.machines import MachineProperty
from statecheck.execution.ports.rules import NOTHING, RulesPort
from statecheck.execution.registry import Property, load_properties
from statecheck.subject import Subject


@dataclass(frozen=True)
class RecordedCall:
    """One call, resolved, with its outcome by the rules.

    `known` are contents by name before the call, `sizes` the bytes of each tensor of bytes that has a name, `marks` the
    situations that the call reached.
    """

    call: Call
    known: Mapping[str, Value]
    sizes: Mapping[str, int]
    outcome: Expected
    marks: frozenset[str]

    @property
    def function(self) -> str:
        """The documented name: that of the kernel where one is launched by itself."""
        return (
            str(self.call.named["kernel"]) if self.call.function == "harness.launch" else self.call.function
        )


class RecordingPort(RulesPort):
    """Tells every call and what the rules answer to it."""

    def __init__(self, note: Callable[[RecordedCall], None]) -> None:
        super().__init__(around=self._asking)
        self._note = note
        self._reached = frozenset[str]()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        with unnoted():
            yield
            self._reached = take()

    def execute(self, step: Step) -> Outcome | None:
        if not isinstance(step, Call):
            return super().execute(step)
        memory = self._rules.memory
        resolved, known = memory.resolved(step), memory.known(step)
        tensors = {name: one for name, one in memory.names.items() if isinstance(one, Tensor)}
        sizes = {name: one.storage_size for name, one in tensors.items() if one.dtype == "uint8"}
        outcome = super().execute(step)
        expected = self.expected[-1]
        unknown = tuple((name, NOTHING) for name in step.observes if name not in dict(expected.after))
        whole = replace(expected, after=expected.after + unknown)
        self._note(RecordedCall(resolved, known, sizes, whole, self._reached))
        return outcome


def recorded(
    properties: Iterable[Property],
    note: Callable[[Property, RecordedCall], None],
    *,
    seed: int,
    examples: int,
) -> None:
    """Draw so many examples of each property, and note every call. The same calls every time."""
    for tested in properties:
        port = RecordingPort(lambda asked, tested=tested: note(tested, asked))  # type: ignore[misc]
        with drawing_only():
            tested.explore(Bench(Subject("the rules", oracle), port), seed=seed, max_examples=examples)


def recordable(functions: Iterable[str]) -> list[Property]:
    """The properties that call one of the functions on any device, by name; not scenarios."""
    wanted = set(functions)
    found = sorted(load_properties().items(), key=lambda item: first_name(item[0]))
    return [
        one
        for _, one in found
        if one.device is None and not isinstance(one, MachineProperty) and wanted.intersection(one.functions)
    ]
