"""Properties: Hypothesis tests that know their sentence, their kind and the functions that they are about.

`prop` turns a body into an ordinary Hypothesis test that pytest collects, and remembers it, so that a campaign can
run the same body with settings and seeds of its own, and without Hypothesis's example database.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import hypothesis
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

import properties
from oracle.profile import Profile
from statecheck.case.former_names import name_today
from statecheck.case.rules import require_property_id
from statecheck.execution.example import ORDER_FREE, REFUSAL, Bench, KnownFailure
from statecheck.execution.private.hypothesis import ENDS_EXAMPLES
from statecheck.subject import Subject, is_engine

KINDS = frozenset(
    {
        "agreement",
        "provenance",
        "byte-exact",
        "order-free",
        "memmove",
        "partition",
        "classification",
        "padding",
        "ownership",
        "metamorphic",
        "red zone",
        "width",
        "algebra",
        "cost",
        REFUSAL,
        "capture = replay",
    }
)
PROPERTIES: dict[str, Property] = {}
_ON_A_CPU = 5
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
    }
)


def launches(function: str) -> bool:
    """Whether a documented function launches kernels."""
    return function in _LAUNCHING or is_engine(function)


@dataclass(frozen=True)
class Property:
    """One sentence about one or more documented functions, and the Hypothesis test that checks it.

    `name` is what files keep: buckets, the corpus, tables of defects. `id` is what a person types, such as
    "v1-postprocess/boundary"; "" for a property that only a test has. `device` restricts it to one device ("cuda") where the sentence has no meaning elsewhere.
    `any_of`: it is about each function alone, and applies where there is one of them.
    """

    name: str
    sentence: str
    kind: str
    functions: tuple[str, ...]
    body: Callable[..., None]
    strategies: dict[str, SearchStrategy[Any]]
    module: str
    device: str | None = None
    id: str = ""
    any_of: bool = False

    @property
    def launches(self) -> bool:
        """Whether its examples launch kernels, which take milliseconds each on a CPU."""
        return any(map(launches, self.functions))

    def examples(self, bench: Bench, most: int | None = None) -> int:
        """How many examples a test run gives it: `most`, or a share of them where kernels are executed on a CPU.

        These take many times as long as others; campaigns give them time, a test run does not.

        Args:
            most: by default as many as the profile has.
        """
        shared = _ON_A_CPU if self.launches and bench.port.device == "cpu" else 1
        return max(1, (most or settings().max_examples) // shared)

    def example(self, bench: Bench, **drawn: Any) -> None:
        """Run the body on one example; a failure that the subject declares is none."""
        with contextlib.suppress(KnownFailure), discards_counted(bench):
            trial = bench.begin(self)
            with trial.reading():
                self.body(trial, **_of_release(drawn, trial.profile))
            trial.end()

    def test(self) -> Callable[..., None]:
        """The Hypothesis test; its argument `trial` is the `Bench` to run on."""

        @functools.wraps(self.body)
        def example(trial: Bench, **drawn: Any) -> None:
            self.example(trial, **drawn)

        put_at(example, *self.place)
        return given(**self.strategies)(example)

    @property
    def place(self) -> tuple[str, int]:
        """File and line of its statement."""
        code = getattr(self.body, "__code__", None)
        return (code.co_filename, code.co_firstlineno) if code is not None else ("", 1)

    def search(self, bench: Bench, most: int | None = None) -> None:
        """Run the examples of a test run under the user's own profile; raises what the test raises for the shrunk one."""
        self._settled(self.examples(bench, most))(self.test())(bench)

    @staticmethod
    def _settled(max_examples: int, **others: Any) -> settings:
        """What holds for properties whatever the profile; it decides about the rest."""
        return settings(
            max_examples=max_examples,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            **others,
        )

    def explore(self, bench: Bench, *, seed: int, max_examples: int) -> None:
        """Run up to `max_examples` fresh examples; raises what the test raises for the shrunk one."""
        # The corpus remembers what failed; with a database, a seed would draw other inputs after a failure.
        chosen = settings(max_examples=max_examples, database=None, suppress_health_check=list(HealthCheck))
        chosen(hypothesis.seed(seed)(self.test()))(bench)

    def not_applicable(self, bench: Bench) -> str | None:
        """Why this property says nothing about the bench's subject or device, or None."""
        wanted = [function for function in self.functions if not function.startswith("harness.")]
        missing = [function for function in wanted if not bench.subject.has(function)]
        if self.any_of and len(missing) < len(wanted):
            wanted, missing = [one for one in wanted if one not in missing], []
        if missing:
            return f"{bench.subject.name} has no {', '.join(missing)}"
        if wanted and bench.subject.supplied.issuperset(wanted):
            return f"the adapter supplies {', '.join(wanted)}, not {bench.subject.name}"
        if self.kind == REFUSAL and not bench.subject.refuses:
            return f"{bench.subject.name} does not promise to refuse what is undocumented"
        device = bench.port.device
        if self.device not in (None, device):
            return f"needs {self.device}, runs on {device}"
        if self.kind == ORDER_FREE and device != "cpu":
            return f"where kernels are compiled, on {device}, programs run in an order of the device's own"
        return self._outside(bench.subject, wanted)

    def _outside(self, subject: Subject, wanted: Sequence[str]) -> str | None:
        """Why no input of any function that it needs is inside of the subject's contract."""
        reasons = [subject.never(function) for function in wanted]
        if not wanted or None in reasons:
            return None
        return "; ".join(dict.fromkeys(filter(None, reasons)))


def put_at(test: Any, file: str, line: int) -> None:
    """Let pytest, which asks a function's code, say that a test stands there."""
    test.__code__ = test.__code__.replace(co_filename=file, co_firstlineno=line)


@runtime_checkable
class Released(Protocol):
    """A drawn input from which releases are taken through other steps."""

    def of_release(self, profile: Profile) -> Any:
        """The same input for the release of that profile."""


def _of_release(drawn: Mapping[str, Any], profile: Profile) -> dict[str, Any]:
    return {
        name: value.of_release(profile) if isinstance(value, Released) else value
        for name, value in drawn.items()
    }


_Test = TypeVar("_Test", bound=Callable[..., None])


def written_examples(
    name: str, function: Callable[..., str] = lambda **parameters: ""
) -> Callable[[_Test], _Test]:
    """Marks a test that hands one written example to a property: its verdict is one on that property.

    Args:
        name: the property's name or id.
        function: the only one that the example is about, of the parameters of the test; "" for all of the property's.
    """

    def mark(test: _Test) -> _Test:
        test.written = found(name), function  # type: ignore[attr-defined]
        return test

    return mark


def property_of(test: Any, **parameters: Any) -> Property | None:
    """What a pytest test tests, if that is a property; `parameters` are those of a written example."""
    tested: Property | None = getattr(test, "property", None)
    if tested is None and hasattr(test, "properties"):
        return cast(Property, test.properties[parameters["property_name"]])
    if tested is None and hasattr(test, "written"):
        whole, function = test.written
        chosen = function(**parameters)
        tested = replace(whole, functions=(chosen,)) if chosen else whole
    return tested


@contextlib.contextmanager
def discards_counted(bench: Bench) -> Iterator[None]:
    """Count the example that ends here because the property itself, or Hypothesis, does not want it."""
    try:
        yield
    except ENDS_EXAMPLES:
        bench.counts.discarded += 1
        raise


def prop(
    id_: str,
    kind: str,
    *functions: str,
    device: str | None = None,
    any_of: bool = False,
    **strategies: SearchStrategy[Any],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the decorated body, `body(trial, **drawn)`, as a property.

    Args:
        id_: a topic and a word, such as "v1-postprocess/boundary", that no other property has.
        kind: an id of the vocabulary, `KINDS`.
        functions: the documented symbols that it calls, dotted for methods.
        device: the only device on which it has a meaning, if there is one.
        any_of: it applies to a subject that has one of the functions; the body asks `trial.offered` which.
        strategies: what to draw for each of the body's arguments but `trial`.
    """

    def register(body: Callable[..., None]) -> Callable[..., None]:
        name = body.__name__.removeprefix("test_")
        sentence = " ".join((body.__doc__ or name.replace("_", " ")).split())
        module = body.__module__
        return remember(
            Property(name, sentence, kind, functions, body, strategies, module, device, id_, any_of)
        )

    return register


def remember(new: Property) -> Callable[..., None]:
    """Register a property; its test, as pytest collects it.

    Raises:
        ValueError: it has no proper id, an unknown kind, or what only another property may have.
    """
    require_property_id(new.id, "id")
    if new.kind not in KINDS:
        raise ValueError(f"kind = {new.kind!r}, but should be one of {sorted(KINDS)} [prop]")
    taken = next((one for one in PROPERTIES.values() if one.id == new.id and one.name != new.name), None)
    if taken is not None:
        raise ValueError(f"id = {new.id!r}, but should not be that of {taken.name} [prop]")
    earlier = PROPERTIES.get(new.name, new)
    # A module may be imported again.
    if (earlier.module, earlier.id) != (new.module, new.id):
        raise ValueError(f"property = {new.name!r}, but should be a name of its own [prop]")
    PROPERTIES[new.name] = new
    test = new.test()
    test.property = new  # type: ignore[attr-defined]
    return test


def load_properties() -> dict[str, Property]:
    """All properties, by name, after importing every `properties.test_*` module."""
    for module in pkgutil.iter_modules(properties.__path__):
        if module.name.startswith("test_"):
            importlib.import_module(f"properties.{module.name}")
    return dict(PROPERTIES)


def found(name: str) -> Property:
    """The registered property of that name or id; a name that it had once will do.

    Raises:
        KeyError: there is none.
    """
    name = name_today(name)
    by_id = (one for one in PROPERTIES.values() if one.id == name)
    return PROPERTIES.get(name) or next(by_id, None) or PROPERTIES[name]
