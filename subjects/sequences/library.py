"""Calls of a port's functions, in this process or in others that the library may end; contexts and saved states go by numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import cached_property
from typing import Any, NamedTuple

from statecheck.sequences import ANOTHER_MODEL, TOKENS_OF_ANOTHER
from statecheck.subject.subject import NotOffered, NotVerified
from subjects.sequences.protocol import PortModule
from subjects.sequences.served import ServedModel
from subjects.sequences.serving import FAILED, Handles

_FEW_PROCESSES, _MOST_PROCESSES, _MOST_MEGABYTES = 6, 40, 2048
"""Processes of models that are kept whatever they need; the most of them; and what they may need together. A fork of a process that has imported all
needs 16 MB, one that has an environment of its own two hundred.
"""


class Handle(NamedTuple):
    """A context, by the process that it is in, and by its number there."""

    process: int
    number: int


class Library(ABC):
    """A port as its scenarios use it."""

    def __init__(self, port: PortModule) -> None:
        self.port = port
        self.fresh: dict[Any, Any] = {}
        """Logits of fresh runs, by model, features and tokens."""
        self.calls: Counter[str] = Counter()
        """Of functions for a context, those of fresh runs, too."""
        self._saved_in: dict[str, tuple[str, int]] = {}
        """By name, the model that saved it, and the number of its process."""
        self._others: list[tuple[str, Handle]] = []
        """Contexts of other models that saved something in this scenario, which may be needed until it ends: a server removes its files."""

    @abstractmethod
    def warm_up(self) -> None:
        """Import what all models need, before the time of a campaign begins."""

    def offers(self, name: str) -> bool:
        """See `PortModule.offers`."""
        return self.port.offers(name)

    def features(self, model: str, function: str) -> Mapping[str, Sequence[Any]]:
        """See `PortModule.features`; nothing of a model for which it fails, see `require_listed_features`."""
        try:
            found: Mapping[str, Sequence[Any]] = self._in(model, 0, "features", model, function)
        except Exception:
            return {}
        return found

    def chooses_experts(self, model: str) -> bool:
        """See `PortModule.chooses_experts`."""
        return self.offers("chooses_experts") and bool(self._in(model, 0, "chooses_experts", model))

    def require_listed_features(self, model: str) -> None:
        """Refuse a model of which the port cannot say what may vary.

        Raises:
            NotVerified: `features` of the port raises.
        """
        try:
            self._in(model, 0, "features", model, "new")
        except Exception as error:
            raise NotVerified(
                f"{model}: not verified: features ends in {type(error).__name__}: {error}"
            ) from error

    @cached_property
    def _models(self) -> frozenset[str]:
        """All names. The first list of a library's models may take longer than a call of a model may."""
        return frozenset(self.port.module.models())

    def require_features(self, model: str, function: str, features: Mapping[str, Any]) -> None:
        """Refuse what a case of another port has.

        Raises:
            NotOffered: the function has no such feature of the model, or not with this value.
        """
        offered = self.features(model, function) if features else {}
        for name, value in features.items():
            if value not in offered.get(name, ()):
                raise NotOffered(f"{model}: {function} has no feature {name} = {value!r}")

    def begin(self, model: str) -> None:
        """A scenario of the model begins: nothing of earlier scenarios is left.

        Raises:
            NotVerified: the port has no such model, as with a case of another port, or where it lists other models each time.
        """
        if model not in self._models:
            raise NotVerified(f"{model}: not verified: no model of {self.port.module.__name__}")
        self._saved_in.clear()
        for other, context in self._others:
            with suppress(Exception):
                self.call(other, "close", context)
        self._others.clear()
        self._forget(model)

    def new(self, model: str, seed: int, features: Mapping[str, Any], process: int = 0) -> Handle:
        """Make a context in a process of the model's; raises as `call`."""
        return Handle(process, self._offered(model, process, "new", model, seed, dict(features)))

    def call(self, model: str, name: str, context: Handle, *arguments: Any, **features: Any) -> Any:
        """Call a function of the port for a context.

        Raises:
            NotOffered: the library does not offer this.
            Faulted: the library ended the process, or took too long.
            Exception: what the function raised.
        """
        process, number = context
        self.calls[name] += 1
        if name == "load_damaged" and arguments[1] == ANOTHER_MODEL:
            arguments = (*arguments[:-1], self._saved_by_another(model))
        if name in ("load", "load_damaged"):
            self._carry(model, arguments[-1], process)
        if name in ("save", "load", "load_damaged", "close"):
            found = self._offered(model, process, name, number, *arguments)
        else:
            found = self._offered(model, process, "call", name, number, arguments, features)
        if name == "save" and found is not FAILED:
            self._saved_in[arguments[-1]] = model, process
        return found

    def _saved_by_another(self, model: str) -> str:
        """The name of what the next model that can save has saved: `TOKENS_OF_ANOTHER` with weights of seed 0.

        Raises:
            NotOffered: no other model can.
        """
        names, reason = tuple(self.port.module.models()), ""
        at = names.index(model)
        for other in (*names[at + 1 :], *names[:at]):
            saved = f"saved by {other}"
            try:
                context = self.new(other, 0, {})
                self._others.append((other, context))
                self.call(other, "extend", context, [(0, list(TOKENS_OF_ANOTHER))])
                if self.call(other, "save", context, 0, saved) is not FAILED:
                    return saved
            except Exception as error:
                # What is wrong with the other model is a matter of the examples that are about that model.
                reason = f"; {other}: {error}"
        raise NotOffered(f"{model}: load_damaged: no other model saves{reason}")

    def _carry(self, model: str, name: str, process: int) -> None:
        """Take what was saved to the process that loads it."""
        if self._saved_in[name] != (model, process):
            data = self._offered(*self._saved_in[name], "pickled", name)
            self._offered(model, process, "unpickle", name, data)

    def _offered(self, model: str, process: int, method: str, *arguments: Any) -> Any:
        try:
            return self._in(model, process, method, *arguments)
        except NotImplementedError as error:
            raise NotOffered(f"{model}: {error or method}") from error

    @abstractmethod
    def _in(self, model: str, process: int, method: str, *arguments: Any) -> Any:
        """Call a method of `Handles` in a process of the model's."""

    @abstractmethod
    def _forget(self, model: str) -> None: ...


class Local(Library):
    """In this process."""

    def __init__(self, port: PortModule) -> None:
        super().__init__(port)
        self._handles = Handles(port)

    def _in(self, model: str, process: int, method: str, *arguments: Any) -> Any:  # noqa: ARG002
        # Copies, as a process of its own gets: a port may change the lists that it is handed.
        return getattr(self._handles, method)(*deepcopy(arguments))

    def _forget(self, model: str) -> None:  # noqa: ARG002
        self._handles.forget()

    def warm_up(self) -> None:
        """All is imported with the port."""


class Isolated(Library):
    """Each model in processes of its own, which are made anew when they have come to their end."""

    def __init__(self, port: PortModule) -> None:
        super().__init__(port)
        self._served: OrderedDict[tuple[str, int], ServedModel] = OrderedDict()

    @property
    def processes(self) -> list[ServedModel]:
        """The processes of all models."""
        return list(self._served.values())

    def close(self) -> None:
        """End them."""
        while self._served:
            self._served.popitem()[1].end()

    def _in(self, model: str, process: int, method: str, *arguments: Any) -> Any:
        return self._of(model, process).call(method, *arguments)

    def _forget(self, model: str) -> None:
        for (name, _), served in self._served.items():
            if name == model and served.alive:
                served.forget()

    def _of(self, model: str, process: int) -> ServedModel:
        key = model, process
        if key not in self._served or not self._served[key].alive:
            if key in self._served:
                self._served.pop(key).end()
            while self._is_full():
                self._served.popitem(last=False)[1].end()
            self._served[key] = ServedModel(self.port)
        self._served.move_to_end(key)
        return self._served[key]

    def warm_up(self) -> None:
        """Have the process ready that those of models are forked from."""
        ServedModel(self.port).end()

    def _is_full(self) -> bool:
        """Whether a process has to end before there is another one."""
        if len(self._served) < _FEW_PROCESSES:
            return False
        megabytes = sum(served.megabytes for served in self._served.values())
        return len(self._served) >= _MOST_PROCESSES or megabytes > _MOST_MEGABYTES
