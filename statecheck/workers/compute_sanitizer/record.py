"""Examples of properties as cases, without a subject: what the rules expect stands in for what it would answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis.errors import HypothesisException

from statecheck.case import Case
from statecheck.case.values import Returned
from statecheck.execution.example import Bench
from statecheck.execution.machines import MachineProperty
from statecheck.execution.private.hypothesis import run_machine
from statecheck.execution.registry import Property
from statecheck.execution.rules_port import RulesPort
from statecheck.subject import Subject

MACHINE_STEPS = 8
_DRAWS = 3
"""So many examples are drawn for each that is kept: among the smallest are many that launch nothing."""
_MAX_CHARACTERS = 16 << 20
"""Of a case as JSON. Histories in large pools take a hundred times as much, for the same launches."""


@dataclass
class Recorded:
    """Cases of one property, and how many examples could not be recorded, by reason."""

    cases: list[Case] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    def save(self, folder: Path) -> list[Path]:
        """Write the cases into `folder`; their paths."""
        names = ((f"{case.property_name}-{case.digest}.json", case) for case in self.cases)
        return [case.save(folder / name, durable=False) for name, case in names]


@dataclass
class LaunchRecorder:
    """Records examples of properties for `subject`; the same seed records the same ones."""

    subject: Subject
    device: str
    seed: int

    def port(self) -> RulesPort:
        return RulesPort(self.device, profile=self.subject.profile)

    def record(self, tested: Property, examples: int) -> Recorded:
        """Up to `examples` different cases, of those that launch a kernel if there are any."""
        port, recorded = self.port(), Recorded()
        bench = Bench(self.subject, port, self.seed)
        found: dict[str, Case] = {}

        def keep() -> None:
            case = self._case(tested, port)
            if case.calls and _is_small(case, recorded.skipped):
                found.setdefault(case.digest, case)

        try:
            self._draw(tested, bench, keep, recorded.skipped, _DRAWS * examples)
        except Exception as error:
            # Whatever ends a machine's scenario ends the run of all of its scenarios; what was recorded before stays.
            recorded.skipped[_reason(error)] += 1
        recorded.skipped += Counter()
        recorded.cases = _spread([*found.values()], tested, examples)
        return recorded

    def _draw(
        self, tested: Property, bench: Bench, keep: Callable[[], None], skipped: Counter[str], draws: int
    ) -> None:
        chosen = settings(
            max_examples=draws,
            stateful_step_count=MACHINE_STEPS,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
            database=None,
            deadline=None,
            derandomize=False,
            verbosity=Verbosity.quiet,
            print_blob=False,
        )
        if isinstance(tested, MachineProperty):
            _live(tested, bench, keep, chosen, self.seed)
        else:
            _take(tested, bench, keep, skipped, chosen, self.seed)

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


def _take(
    tested: Property,
    bench: Bench,
    keep: Callable[[], None],
    skipped: Counter[str],
    chosen: settings,
    seed: int,
) -> None:
    """Examples of a body; one that does not go through on the rules' answers is skipped."""

    def example(**drawn: Any) -> None:
        try:
            tested.example(bench, **drawn)
        except HypothesisException:
            raise
        except Exception as error:
            skipped[_reason(error)] += 1
        else:
            keep()

    chosen(hypothesis.seed(seed)(given(**tested.strategies)(example)))()


def _live(
    tested: MachineProperty, bench: Bench, keep: Callable[[], None], chosen: settings, seed: int
) -> None:
    """Scenarios of a machine; its rules are Hypothesis's to call, so that one that fails ends them all."""

    class KeptMachine(tested.machine):  # type: ignore[name-defined]
        def teardown(self) -> None:
            super().teardown()
            keep()

    def begin() -> Any:
        return KeptMachine(bench.begin(tested))

    run_machine(begin, chosen, seed)


def _is_small(case: Case, skipped: Counter[str]) -> bool:
    small = len(case.to_json()) <= _MAX_CHARACTERS
    skipped["larger than 16 MiB"] += not small
    return small


def _spread(cases: list[Case], tested: Property, examples: int) -> list[Case]:
    """So many of them, small and large, those that launch nothing only where there are no others."""
    chosen = [case for case in cases if launches(tested, case)] or cases
    # Examples grow as they are drawn; the last one is always among the chosen.
    apart = max(1, len(chosen) // max(1, examples))
    return chosen[::-1][::apart][:examples]


def launches(tested: Property, case: Case) -> bool:
    """Whether a call of the case launches kernels, unless the subject finds that there is nothing to do."""
    called = (
        one.function
        for one, expected in zip(case.calls, case.expected, strict=True)
        if isinstance(expected, Returned)
    )
    return any(replace(tested, functions=(function,)).launches for function in called)


def _reason(error: Exception) -> str:
    """The first line of an error."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
