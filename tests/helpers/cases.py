"""Cases, properties and subjects that a test makes without running anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from statecheck.case import Case
from statecheck.case.failure import Failure, failure_of, outcome_difference, raised_instead, stated
from statecheck.case.values import Call, DType, Expected, Outcome, Raised, Refusal, Step, call, record
from statecheck.subject.loading import load
from statecheck.subject.profile import Profile
from subjects import KnownDeviation, Subject

if TYPE_CHECKING:
    from statecheck.execution.registry import Property


def toy(*deviations: KnownDeviation, **names: Any) -> Subject:
    """A subject that has nothing but `names`."""
    module = ModuleType("toy")
    vars(module).update(names)
    return Subject("toy", module, deviations)


PAGES = call(
    "MambaSpec.max_memory_usage_bytes",
    self=record(
        "MambaSpec",
        block_size=4,
        shapes=((1,),),
        dtypes=(DType("int8"),),
        mamba_cache_mode="all",
        num_speculative_blocks=2,
    ),
    vllm_config=record("VllmConfig", model_config=record("ModelConfig", max_model_len=10)),
)
"""Three pages by the documents, and five in a release that keeps pages of drafts."""


def toy_of_pages(pages: int, profile: Profile) -> Subject:
    """A subject whose requests take so many pages, of a release with that profile."""
    subject = toy(MambaSpec=SimpleNamespace(max_memory_usage_bytes=lambda self, vllm_config: pages))
    subject.profile = profile
    return subject


def a_property(body: Callable[..., None] = lambda trial: None, **changes: Any) -> Property:
    """A property that no campaign knows."""
    from statecheck.execution.registry import Property

    fields: dict[str, Any] = {
        "id": "toys/divide",
        "sentence": "Toys divide.",
        "kind": "agreement",
        "functions": ("divide",),
        "body": body,
        "strategies": {},
        "module": __name__,
    }
    return Property(**fields | changes)


@dataclass
class Pipe:
    """The coordinator's end, as a list of what was sent; `on_send` looks at the world at that moment."""

    sent: list[Any] = field(default_factory=list)

    def send(self, message: Any) -> None:
        self.sent.append(message)


def case_of(subject: Subject, device: str, *steps: Step) -> Case:
    """The case that a trial makes of `steps`, whether or not the subject answers them by the rules."""
    from statecheck.execution.example import ExecutionContext, Falsified
    from statecheck.execution.in_process import InProcess

    trial = ExecutionContext(subject, InProcess(subject, device)).begin(a_property())
    trial.run(*steps)
    try:
        trial.holds(False, "made for a test", "should not be")
    except Falsified as falsified:
        return falsified.case
    raise AssertionError("a condition that is false held")


def failure_in(
    message: str, calls: Sequence[Call], expected: Sequence[Expected], actual: Sequence[Outcome], device: str
) -> Failure:
    """The failure that a message describes, with the fields that the outcomes of the calls give it."""
    places = device != "cpu"
    functions = dict.fromkeys(call.function for call in calls)
    function = next((name for name in functions if f" [{name}(" in message), "")
    sentence, _, shown = message.partition(f" [{function}(") if function else (message, "", "")
    shown = f"{function}({shown.removesuffix(']')}" if function else ""
    for number, (asked, wanted, seen) in enumerate(zip(calls, expected, actual, strict=False)):
        difference = outcome_difference(wanted, seen, places=places)
        fatal = isinstance(seen, Raised) and seen.kind != "refusal"
        if difference is not None and (fatal or message.startswith(f"{difference} [")):
            return failure_of(difference, wanted, seen, function=asked.function, call=number, shown=shown)
    last = actual[-1] if actual else None
    if isinstance(last, Raised) and message.startswith(f"the call = {last.exception}: {last.message}"):
        return raised_instead(last, function=calls[-1].function, call=len(calls) - 1, shown=shown)
    observed, _, rest = sentence.partition(", but ")
    return stated(observed, rest, function=function, shown=shown)


def a_case(**changes: Any) -> Case:
    """A case about `divide(x=5, y=2)`, made without running anything."""
    fields: dict[str, Any] = {
        "property_id": "toys/divide",
        "sentence": "Toys divide.",
        "subject": "toy",
        "steps": (call("divide", x=5, y=2),),
        "expected": (Refusal("x"),),
        "actual": (Raised("ValueError", "out of order"),),
        "message": "the call = ValueError: out of order, but should be ValueError that names x",
    }
    fields |= changes
    message = fields.pop("message")
    calls = [step for step in fields["steps"] if isinstance(step, Call)]
    values = (calls, fields["expected"], fields["actual"], fields.get("device", "cpu"))
    fields.setdefault("failure", failure_in(message, *values))
    return Case(**fields)


def in_order(case: Case, schedule: str) -> Case:
    """The same, with the programs of every launch in that order, where a call does not name another one."""
    steps = (
        replace(step, schedule=step.schedule or schedule) if isinstance(step, Call) else step
        for step in case.steps
    )
    return replace(case, steps=tuple(steps))


def subject_of(case: Case) -> Subject | None:
    """The case's subject, None where it cannot be imported here."""
    try:
        return load(case.subject)
    except ValueError:
        return None
