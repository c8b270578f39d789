"""The port: the module whose plain functions are asked."""

import importlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from operator import index
from types import ModuleType
from typing import Any

import torch

from statecheck.subject.subject import NotOffered

_in_use: dict[str, ModuleType] = {}
_calls = [0]


def use_port(port: ModuleType) -> None:
    """Ask this module from now on."""
    _in_use["port"] = port


def current_port() -> ModuleType:
    """The module to ask; where none was chosen, the one that the variable SUBJECT names."""
    if not _in_use:
        name = os.environ.get("SUBJECT", "")
        if not name:
            rule = "the module of plain functions, with its folder as SUBJECT_PATH"
            raise ImportError(f"SUBJECT = '', but should be {rule} [current_port]")
        use_port(importlib.import_module(name))
    return _in_use["port"]


def ask(function: str, documented: Mapping[str, str] | None = None, /, **arguments: Any) -> Any:
    """The result of the port's function; `documented` has the documents' names of arguments, for its refusals."""
    port = current_port()
    _require_promise(port)
    _calls[0] += 1
    try:
        return getattr(port, function)(**arguments)
    except NotImplementedError as error:
        lacks = f"{port.__name__} does not implement {function}"
        raise NotOffered(f"{lacks}: {error}" if str(error) else lacks) from error
    except ValueError as error:
        raise ValueError(_renamed(str(error), documented or {})) from error


def handed(function: str, starts: torch.Tensor) -> Any:
    """Starts in the form in which the port's function takes them: the tensor itself, or a list of ints.

    The list belongs to the tensor: a tensor that is changed in place comes as a list that is changed in place.
    """
    if function in getattr(current_port(), "TENSORS", ()):
        return starts
    kept = vars(starts).setdefault("statecheck_list", [])
    kept[:] = starts.tolist()
    return kept


def calls_so_far() -> int:
    """How many calls of the port's functions were made in this process."""
    return _calls[0]


def _require_promise(port: ModuleType) -> None:
    # While waiting is an error, nothing is measured but a promise that a port need not make.
    waiting_is_an_error = torch.cuda.is_available() and torch.cuda.get_sync_debug_mode() == 2
    if waiting_is_an_error and not getattr(port, "NEVER_WAITS", False):
        raise NotOffered("the port does not promise never to wait for the device")


def _renamed(message: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\w+", lambda word: names.get(word[0], word[0]), message)


def state_layout() -> str:
    """The layout of conv states that a call is made under."""
    return os.environ.get("VLLM_SSM_CONV_STATE_LAYOUT", "SD")


def read_as(form: Callable[[Any], Any], found: Any) -> Any:
    """The result of a function of the port in the documents' form; a result of another form is compared as it is."""
    try:
        _require_array(found)
        return form(found)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        return found


def ints(values: Sequence[Any]) -> list[int]:
    """Whole numbers as Python has them, whatever array they come in.

    Raises:
        TypeError: one is no whole number; True is none, nor is 1.0. Or they are in no array.
    """
    _require_array(values)
    return [_int(value) for value in values]


def _require_array(values: Any) -> None:
    """An iterator can be read only once, and what a set or a dictionary holds has no order that means something."""
    if isinstance(values, Mapping) or not hasattr(type(values), "__getitem__"):
        kind = type(values).__name__
        raise TypeError(f"values = {kind}, but should be a list, a tuple or an array")
    if isinstance(values, (list, tuple)) and type(values).__iter__ not in (list.__iter__, tuple.__iter__):
        kind = type(values).__name__
        raise TypeError(f"values = {kind}, but should be a list or a tuple without an iterator of its own")


def _int(value: Any) -> int:
    # Python takes True for 1, and torch does where a tensor holds it.
    if isinstance(value, bool) or getattr(value, "dtype", None) is torch.bool:
        raise TypeError(f"value = {value!r}, but should be an int")
    return index(value)


def vector_of(values: Sequence[Any], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Whole numbers as a tensor."""
    return torch.tensor(ints(values), dtype=dtype, device=device)
