"""Libraries that keep sequences of tokens, behind the protocol of docs/sequences.md; a port is a module of plain functions.

Nothing here imports torch or Triton.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from oracle.sequences import FORMS
from statecheck.case import Case
from statecheck.case.bucket import last_scenario
from statecheck.subject.known import known_in
from statecheck.subject.subject import SequenceChoices, Subject
from subjects.sequences.conditions import CONDITIONS
from subjects.sequences.library import Isolated, Library, Local
from subjects.sequences.protocol import PortModule
from subjects.sequences.scenario import Sequences
from subjects.sequences.states import first_difference, first_layer

__all__ = ["adapted"]


def adapted(module: ModuleType, name: str = "") -> Subject:
    """A port of sequences as a subject.

    Raises:
        ValueError: the module lacks a needed function, or a constant of it is not what docs/sequences.md says.
    """
    port = PortModule.of(module)
    library: Library = Isolated(port) if port.isolated else Local(port)
    found = ModuleType(module.__name__, module.__doc__)
    found.__file__ = module.__file__
    # A form of `extend` has a property as a function has, which names it.
    scenarios: Any = type("Sequences", (Sequences,), {"library": library, **FORMS})
    found.Sequences = scenarios  # type: ignore[attr-defined]

    def explain(case: Case) -> str:
        own = last_scenario(case)
        return first_difference(library, own) or first_layer(library, scenarios, own)

    known = known_in(Path(port.known), port.release, CONDITIONS) if port.known else ()
    return Subject(
        name or module.__name__,
        found,
        known,
        refuses=False,
        release=port.release,
        sequences=SequenceChoices(
            port.models,
            library.features,
            port.function("script"),
            explain,
            port.limit,
            port.given_to_reference,
            offers=library.offers,
            warm_up=library.warm_up,
            unsupported=port.unsupported,
            effects=port.effects,
            isolated=port.isolated,
            damages=port.damages,
            needs=port.needs,
        ),
    )
