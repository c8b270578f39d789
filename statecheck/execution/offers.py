"""What a subject offers of all that there are properties of, and whether a name that it has was meant to be another one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from statecheck.subject import BUILT_IN, Subject, is_documented, is_engine
from statecheck.util.names import meant_by

_SHOWN = 8


@dataclass(frozen=True)
class Offers:
    """The functions of a subject, by the names under which its author knows them."""

    subject: Subject

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All that could be offered: plain functions of the protocol, or what properties call of the documents."""
        if self.subject.functions:
            return self.subject.functions
        return tuple(name for name in _called() if is_documented(name))

    @cached_property
    def engines(self) -> tuple[str, ...]:
        """Whole engines that it has, beside the functions."""
        return tuple(name for name in _called() if is_engine(name) and self.subject.provides(name))

    @cached_property
    def offered(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if self.subject.provides(name))

    @cached_property
    def alike(self) -> dict[str, str]:
        """Names that the subject has, and for each the one that may have been meant."""
        if self.subject.name in BUILT_IN:
            return {}
        missing = [name for name in self.names if name not in self.offered]
        own = [name for name in dir(self.subject.module) if not name.startswith("_")]
        near = {name: meant_by(name, missing) for name in own if name not in self.names}
        return {name: meant for name, meant in near.items() if meant}

    @property
    def sentence(self) -> str:
        """How many there are, which, and what may be a slip."""
        shown, more = self.offered[:_SHOWN], len(self.offered) - _SHOWN
        listed = ", ".join(shown) + (f", and {more} more" if more > 0 else "")
        counted = f"{self.subject.name} offers {len(self.offered)} of {len(self.names)}"
        engines = "".join(f", and the engine {name}" for name in self.engines)
        return f"{counted}{': ' if shown else ''}{listed}{engines}{''.join(self._questions())}"

    def _questions(self) -> Iterator[str]:
        for name, near in self.alike.items():
            yield f"; it has {name}: did you mean {near}?"

    def require(self, wanted: tuple[str, ...]) -> None:
        """Refuse a subject that lacks one of these.

        Raises:
            ValueError: it does, or there is no such function.
        """
        for name in wanted:
            if name not in self.names:
                meant = meant_by(name, self.names)
                near = f"; did you mean {meant}?" if meant else ""
                rule = f"functions that there are properties of: {', '.join(self.names)}"
                raise ValueError(f"require = {name!r}, but should be {rule}{near} [{self.subject.name}]")
        missing = [name for name in wanted if name not in self.offered]
        if missing:
            rule = f"offered by {self.subject.name}, which does not offer {', '.join(missing)}"
            raise ValueError(
                f"require = {','.join(wanted)!r}, but should be {rule}{''.join(self._questions())} [require]"
            )


def _called() -> list[str]:
    """What properties call, by name."""
    from statecheck.execution.registry import load_properties

    return sorted({name for tested in load_properties().values() for name in tested.functions})


def listed(text: str) -> tuple[str, ...]:
    """The names in a text such as "a,b"."""
    return tuple(one.strip() for one in text.split(",") if one.strip())
