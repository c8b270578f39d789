"""The subject: where it is imported from, what of it a case may use, and its calls, each of which should return or raise."""

from __future__ import annotations

import importlib
import os
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from statecheck.report.repro.runtime.checks import findings
from statecheck.report.repro.runtime.process import (
    BEGUN,
    DEVICE,
    cannot_try,
    conclude,
    in_child,
    note,
)
from statecheck.subject.source_files import source_digest, verified_files
from statecheck.util.text import visible

subject: Any = types.SimpleNamespace()
"""A script sets it."""
FAILED = object()
"""In place of the result of a call that raised."""
refused: list[BaseException] = []
"""What the subject's classes raised when arguments were built."""
_MISSING = object()


def import_subject(module: str, folder: str) -> Any:
    """The module that SUBJECT names, by default `module`.

    Args:
        module: its name.
        folder: where to import it from, relative to this file, unless SUBJECT_PATH names another folder; "" for where
            Python imports from.
    """
    name = os.environ.setdefault("SUBJECT", module)
    if os.environ.get("SUBJECT_PATH"):
        _import_from(Path(os.environ["SUBJECT_PATH"]))
    elif folder:
        _import_from(Path(__file__).parent / folder)
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        cannot_try(f"cannot import {name}: {type(error).__name__}: {error}")


def adapted(adapter: Callable[[], dict[str, Any]], folder: str = "") -> Any:
    """The names that an adapter finds, in the folder that SUBJECT_PATH names, or where Python imports from.

    Args:
        folder: where to look first if SUBJECT_PATH names none, relative to this file; "" for nowhere else.
    """
    if os.environ.get("SUBJECT_PATH"):
        _import_from(Path(os.environ["SUBJECT_PATH"]))
    elif folder:
        _import_from(Path(__file__).parent / folder)
    try:
        return types.SimpleNamespace(
            **{name: value for name, value in adapter().items() if value is not None}
        )
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        cannot_try(f"cannot import what the case needs: {type(error).__name__}: {error}")


def carried(sources: dict[str, str], homes: dict[str, str]) -> dict[str, Any]:
    """Names of an adapter, whose modules import each other from a package `carried`.

    Args:
        sources: the modules, each behind those that it imports.
        homes: by name, the module that defines it.
    """
    modules = {}
    for name, source in sources.items():
        module = modules[name] = types.ModuleType(f"carried.{name}")
        sys.modules[module.__name__] = module
        exec(compile(source, f"<{name}>", "exec"), vars(module))  # noqa: S102 - of this script
    return {name: getattr(modules[home], name) for name, home in homes.items()}


def _import_from(folder: Path) -> None:
    sys.path.insert(0, os.path.normpath(folder.absolute()))


def require(functions: list[str]) -> None:
    """End without a verdict where a function that the case calls is missing, or the GPU that it runs on."""
    for name in functions:
        found = subject
        for part in name.split("."):
            found = getattr(found, part, _MISSING)
        if found is _MISSING:
            cannot_try(f"there is no {name}")
        if is_foreign(found):
            cannot_try(f"{name} is no function of the subject's own")
    if DEVICE == "cuda" and not torch.cuda.is_available():
        cannot_try("no GPU here; DEVICE=cpu tries it without")


def require_gpu() -> None:
    if DEVICE != "cuda":
        cannot_try("it cannot be tried here: graphs are captured on a GPU only; DEVICE=cuda tries it there")


def is_foreign(found: object) -> bool:
    """Whether it is Python's or a library's: a subject may import that, and a case must not call it."""
    if not isinstance(found, (type, types.FunctionType, types.BuiltinFunctionType)):
        return False
    package = (getattr(found, "__module__", None) or "builtins").partition(".")[0]
    return package in sys.stdlib_module_names or package in ("torch", "triton", "numpy")


def build(name: str, /, **fields: Any) -> Any:
    """An object of the subject's class of that name, or a plain object where the subject has no such class."""
    found: Any = getattr(subject, name, None)
    try:
        own = isinstance(found, type) and not is_foreign(found)
        return (found if own else types.SimpleNamespace)(**fields)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        refused.append(error)
        return None


def environment(variables: dict[str, str]) -> None:
    """Set the variables that the next call reads. A subject that remembers the layout reads it again."""
    os.environ.pop("VLLM_SSM_CONV_STATE_LAYOUT", None)
    os.environ.update(variables)
    clear = getattr(getattr(subject, "get_conv_state_layout", None), "cache_clear", None)
    if clear is not None:
        clear()


def make_buffer(*size: int, dtype: torch.dtype) -> Any:
    device = torch.device(DEVICE)
    return subject.CpuGpuBuffer(*size, dtype=dtype, device=device, pin_memory=DEVICE == "cuda")


def launch(kernel: str, grid: list[int], arguments: dict[str, Any], constexprs: dict[str, Any]) -> None:
    getattr(subject, kernel)[tuple(grid)](**arguments, **constexprs)


def attempt(call: Callable[[], Any]) -> Any:
    try:
        return _invoke(call)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        _require_offered(error)
        findings.append(
            f"the call raised {type(error).__name__}: {_message(error)}{_where(error)}, but should return a result"
        )
        return FAILED


def expect_refusal(exception: str, argument: str, call: Callable[[], Any]) -> None:
    """Expect an exception of that type, whose message has the argument's name as a word."""
    wanted = f"{exception} that names {argument}" if argument else exception
    try:
        observed = _invoke(call)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        _require_offered(error)
        named = re.search(rf"(?<!\w){re.escape(argument)}(?!\w)", _message(error))
        if type(error).__name__ != exception or (argument and not named):
            findings.append(
                f"the call raised {type(error).__name__}: {_message(error)}{_where(error)}, but should raise {wanted}"
            )
    else:
        findings.append(f"the call returned {observed}, but should raise {wanted}")


def _invoke(call: Callable[[], Any]) -> Any:
    """What an argument's class raised counts as raised by the call that takes the argument."""
    if refused:
        first = refused[0]
        refused.clear()
        raise first
    return call()


def _message(error: BaseException) -> str:
    """The message of an exception, as text that can be printed anywhere."""
    try:
        return str(error).encode("utf-8", "backslashreplace").decode()
    except BaseException as second:
        return f"<its message cannot be read: {type(second).__name__}>"


def _where(error: BaseException) -> str:
    """The innermost line of the subject's own code, such as " (port.py:3 in chunk_indices)"; "" where there is none."""
    libraries = sys.stdlib_module_names | {"carried", "hypothesis", "numpy", "torch", "triton"}
    for raised in (error, error.__cause__):
        trace, found = raised.__traceback__ if raised is not None else None, ""
        while trace is not None:
            module, code = str(trace.tb_frame.f_globals.get("__name__")), trace.tb_frame.f_code
            if code.co_filename != __file__ and module.partition(".")[0] not in libraries:
                path = code.co_filename.replace(os.sep, "/").split("/")[-1 - module.count(".") :]
                names = [name for name in code.co_qualname.split(".") if not name.startswith("<")]
                found = f" ({'/'.join(path)}:{trace.tb_lineno} in {(names or [code.co_name])[-1]})"
            trace = trace.tb_next
        if found:
            return found
    return ""


def _require_offered(error: BaseException) -> None:
    """End without a verdict where something is missing here, memory for example."""
    # By name: a port may have an exception of its own that means the same.
    not_offered = type(error).__name__ == "NotOffered"
    if not_offered or isinstance(error, (ImportError, MemoryError, torch.OutOfMemoryError)):
        cannot_try(f"it cannot be tried here: {_message(error)}")


def wrong_with(check: Callable[[], None], stated: str = "") -> list[str]:
    """Run the case; what is wrong, a sentence each.

    Args:
        check: the case.
        stated: what is wrong although each outcome alone is as expected. It holds as long as the outcomes stay as they are.
    """
    findings.clear()
    try:
        check()
    except Exception as error:
        _require_offered(error)
        findings.append(f"the result cannot be read as documented: {type(error).__name__}: {error}")
    wrong = ([] if findings else [stated]) if stated else findings
    return [visible(sentence) for sentence in wrong]


def wrong_in_child(check: Callable[[], None], stated: str = "") -> list[str]:
    """As `wrong_with`, in a child process, which the case may end or keep for ever."""
    ended = in_child()
    if ended is None:
        note(BEGUN)
        try:
            note("\n".join(["", *wrong_with(check, stated)]))
        except BaseException as error:
            note(f"untried\n{error}")
        finally:
            os._exit(0)
    noted, how = ended
    first, _, rest = noted.partition("\n")
    if first == "untried":
        cannot_try(rest)
    return [how] if first else rest.splitlines()


def require_decisive(depends_on: str = "", source: str = "") -> None:
    """End without a verdict where a case in which nothing is wrong does not show that the defect is gone.

    Args:
        depends_on: what else the failure needs that is not in the script.
        source: the digest of the files of the subject that failed; the same files have the same defect.
    """
    if depends_on:
        cannot_try(
            f"this script alone cannot decide it: nothing is wrong here, but the failure depends on {depends_on}"
        )
    if source and source == source_digest(verified_files(subject)):
        cannot_try("nothing is wrong here, but the source is the same in which the failure was seen")


def end(check: Callable[[], None], stated: str = "", **needs: str) -> None:
    """Print what is wrong with the case, and exit: with 1 if anything is, otherwise with 0; `needs` as of `require_decisive`."""
    note(BEGUN)
    wrong = wrong_with(check, stated)
    for finding in wrong:
        print(finding)
    if not wrong:
        require_decisive(**needs)
    print("the defect is there" if wrong else "the defect is gone")
    conclude(1 if wrong else 0)
