"""Calls of a port's functions, in this process or in one that the library may end; contexts and saved states go by numbers."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from statecheck.subject.not_offered import NotOffered
from subjects.sequences.protocol import PortModule
from subjects.sequences.served import ServedModel, plain

FAILED = False
"""What an operation returns that reports that it failed."""


class Handles:
    """Contexts and saved states by number, in the process where the port's functions run."""

    def __init__(self, port: PortModule) -> None:
        self.port = port
        self._contexts: dict[int, Any] = {}
        self._saved: dict[str, Any] = {}
        self._numbers = itertools.count()

    def call(self, name: str, arguments: tuple[Any, ...], features: Mapping[str, Any]) -> Any:
        """Call a function of the port; a context is named by its number, in the first argument.

        Raises:
            NotImplementedError: the port has no such function, or says that the library does not offer this.
        """
        function = self.port.function(name)
        if function is None:
            if name == "close":
                self._contexts.pop(arguments[0], None)
                return None
            raise NotImplementedError(f"{name} is not in the port")
        if name == "new":
            number = next(self._numbers)
            self._contexts[number] = function(*arguments, **features)
            return number
        context, *others = arguments
        if name == "close" and context not in self._contexts:
            # Of a process that came to its end.
            return None
        if name == "save":
            *others, saved = others
            state = function(self._contexts[context], *others)
            if state is not False:
                self._saved[saved] = state
            return None if state is not False else FAILED
        if name == "load":
            others[-1] = self._saved[others[-1]]
        held = self._contexts.pop(context) if name == "close" else self._contexts[context]
        return plain(name, function(held, *others, **features))

    def forget(self) -> None:
        """Close all contexts, and drop what was saved."""
        for number in list(self._contexts):
            self.call("close", (number,), {})
        self._saved.clear()


class Library(ABC):
    """A port as its scenarios use it."""

    def __init__(self, port: PortModule) -> None:
        self.port = port
        self.fresh: dict[Any, Any] = {}
        """What fresh runs gave, by model, features and tokens."""

    def offers(self, name: str) -> bool:
        """Whether the port has the function."""
        return self.port.function(name) is not None

    def call(self, model: str, name: str, *arguments: Any, **features: Any) -> Any:
        """Call a function of the port for a model.

        Raises:
            NotOffered: the library does not offer this.
            Faulted: the library ended the process, or took too long.
            Exception: what the function raised.
        """
        try:
            return self._call(model, name, arguments, features)
        except NotImplementedError as error:
            raise NotOffered(f"{model}: {error or name}") from error

    @abstractmethod
    def _call(
        self, model: str, name: str, arguments: tuple[Any, ...], features: Mapping[str, Any]
    ) -> Any: ...

    @abstractmethod
    def begin(self, model: str) -> None:
        """A scenario of the model begins: nothing of earlier scenarios is left."""


class Local(Library):
    """In this process."""

    def __init__(self, port: PortModule) -> None:
        super().__init__(port)
        self._handles = Handles(port)

    def _call(self, model: str, name: str, arguments: tuple[Any, ...], features: Mapping[str, Any]) -> Any:  # noqa: ARG002
        return self._handles.call(name, arguments, features)

    def begin(self, model: str) -> None:  # noqa: ARG002
        """Close what is left of the scenario before."""
        self._handles.forget()


class Isolated(Library):
    """Each model in a process of its own, made anew when it has come to its end."""

    def __init__(self, port: PortModule) -> None:
        super().__init__(port)
        self._served: dict[str, ServedModel] = {}

    def _call(self, model: str, name: str, arguments: tuple[Any, ...], features: Mapping[str, Any]) -> Any:
        return self._of(model).call(name, arguments, features)

    def begin(self, model: str) -> None:
        """The model's process closes what is left of the scenario before."""
        self._of(model).forget()

    def _of(self, model: str) -> ServedModel:
        if model not in self._served or not self._served[model].alive:
            self._served[model] = ServedModel(self.port)
        return self._served[model]
