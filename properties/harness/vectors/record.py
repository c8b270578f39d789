"""What the properties ask, and what the rules answer, without any subject."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import oracle
from oracle.marks import take
from properties.harness.machines import MachineProperty
from properties.harness.marks import AskedPort, drawing_only, load
from properties.harness.registry import Property, load_properties
from properties.harness.trial import Bench
from properties.harness.values import Call, Outcome, Tensor, Value
from properties.subjects import Subject


@dataclass(frozen=True)
class Asked:
    """One call, resolved, with its outcome by the rules.

    `known` are contents by name before the call, `sizes` the bytes of each tensor of bytes that has a name, `marks` the
    situations that the call reached.
    """

    call: Call
    known: Mapping[str, Value]
    sizes: Mapping[str, int]
    outcome: Outcome
    marks: frozenset[str]

    @property
    def function(self) -> str:
        """The documented name: that of the kernel where one is launched by itself."""
        return (
            str(self.call.named["kernel"]) if self.call.function == "harness.launch" else self.call.function
        )


class RecordingPort(AskedPort):
    """Tells every call and what the rules answer to it."""

    def __init__(self, note: Callable[[Asked], None]) -> None:
        super().__init__()
        self._note = note

    def _answered(self, call: Call) -> Outcome:
        resolved, known = self._memory.resolved(call), self._memory.known(call)
        tensors = {name: one for name, one in self._memory.names.items() if isinstance(one, Tensor)}
        sizes = {name: one.storage_size for name, one in tensors.items() if one.dtype == "uint8"}
        outcome = super()._answered(call)
        self._note(Asked(resolved, known, sizes, outcome, take()))
        return outcome


def recorded(
    properties: Iterable[Property], note: Callable[[Property, Asked], None], *, seed: int, examples: int
) -> None:
    """Draw so many examples of each property, and note every call. The same calls every time."""
    load()
    for tested in properties:
        port = RecordingPort(lambda asked, tested=tested: note(tested, asked))  # type: ignore[misc]
        with drawing_only():
            tested.explore(Bench(Subject("the rules", oracle), port), seed=seed, max_examples=examples)


def recordable(functions: Iterable[str]) -> list[Property]:
    """The properties that call one of the functions on any device, by name; not whole lives of requests."""
    wanted = set(functions)
    found = sorted(load_properties().items())
    return [
        one
        for _, one in found
        if one.device is None and not isinstance(one, MachineProperty) and wanted.intersection(one.functions)
    ]
