"""Examples of properties as cases, without a subject: what the rules expect stands in for what it would answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from statecheck.case import Case
from statecheck.case.values import Returned
from statecheck.execution.example import Bench
from statecheck.execution.registry import Property
from statecheck.execution.rules_port import RulesPort
from statecheck.subject import Subject

_DRAWS = 3
"""So many examples are drawn for each that is kept: among the smallest are many that launch nothing."""
_MAX_CHARACTERS = 16 << 20
"""Of a case as JSON. Histories in large pools take a hundred times as much, for the same launches."""


@dataclass(frozen=True)
class LaunchRecorder:
    """Records examples of properties for `subject`; the same seed records the same ones."""

    subject: Subject
    device: str
    seed: int

    def bench(self) -> Bench:
        """A bench on which the rules answer in the subject's place."""
        return Bench(self.subject, RulesPort(self.device, profile=self.subject.profile), self.seed)

    def record(self, tested: Property, examples: int) -> tuple[list[Case], str]:
        """Up to `examples` different cases, of those that launch a kernel if there are any; and why drawing ended early, "" if it did not."""
        bench, cases = self.bench(), dict[str, Case]()
        port = bench.port
        assert isinstance(port, RulesPort)

        def keep() -> None:
            """The example that ends as the next one begins."""
            case = self._case(tested, port)
            if case.calls and len(case.to_json()) <= _MAX_CHARACTERS:
                cases.setdefault(case.digest, case)

        bench.on_example, reason = keep, ""
        try:
            tested.explore(bench, seed=self.seed, max_examples=_DRAWS * examples)
            keep()
        except Exception as error:
            # Only a subject can give the answer that it waits for; what was recorded before stays.
            reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        return _spread([*cases.values()], tested, examples), reason

    def _case(self, tested: Property, port: RulesPort) -> Case:
        return Case(
            property_name=tested.name,
            sentence=tested.sentence,
            subject=self.subject.name,
            steps=tuple(port.steps),
            expected=tuple(port.expected),
            actual=tuple(port.actual),
            failure=None,
            device=self.device,
            seed=self.seed,
            property_id=tested.id,
        )


def _spread(cases: Sequence[Case], tested: Property, examples: int) -> list[Case]:
    """So many of them, small and large, those that launch nothing only where there are no others."""
    chosen = [case for case in cases if launches(tested, case)] or cases
    # Examples grow as they are drawn; the last one is always among the chosen.
    apart = max(1, len(chosen) // max(1, examples))
    return list(chosen[::-1][::apart][:examples])


def launches(tested: Property, case: Case) -> bool:
    """Whether a call of the case launches kernels, unless the subject finds that there is nothing to do."""
    called = (
        one.function
        for one, expected in zip(case.calls, case.expected, strict=True)
        if isinstance(expected, Returned)
    )
    return any(replace(tested, functions=(function,)).launches for function in called)
