"""Where in a subject's own code an exception was raised."""

from __future__ import annotations

import linecache
import sys
from functools import lru_cache
from pathlib import PurePath
from types import CodeType, TracebackType
from typing import Any

from statecheck.case.raised import plain_text
from statecheck.case.values import SourceLine

_LIBRARIES = sys.stdlib_module_names | {"hypothesis", "numpy", "oracle", "torch", "triton"}
_OURS = ("statecheck.", "subjects.")
_LONGEST = 200


def source_line(error: BaseException) -> SourceLine | None:
    """The innermost line of the subject's own code in the traceback; None where there is none.

    An exception that another one was raised from shows that one's line if it has none itself: adapters name arguments
    otherwise.
    """
    found = _innermost(error.__traceback__)
    cause = error.__cause__
    if found is None and cause is not None:
        found = _innermost(cause.__traceback__)
    if found is None:
        return None
    module, code, line = found
    text = linecache.getline(code.co_filename, line).strip()[:_LONGEST]
    return SourceLine(_file(module, code.co_filename), line, _function(code), plain_text(text))


@lru_cache(maxsize=1_000)
def _function(code: CodeType) -> str:
    """The function that the line stands in. A comprehension is no function of its own: from Python 3.12 on it has no frame."""
    names = [name for name in code.co_qualname.split(".") if not name.startswith("<")]
    return plain_text(names[-1] if names else code.co_name)


def _innermost(trace: TracebackType | None) -> tuple[str, CodeType, int] | None:
    found = None
    while trace is not None:
        module: Any = trace.tb_frame.f_globals.get("__name__")
        if type(module) is str and _is_own(module):
            found = module, trace.tb_frame.f_code, trace.tb_lineno or 0
        trace = trace.tb_next
    return found


def _is_own(module: str) -> bool:
    return module.partition(".")[0] not in _LIBRARIES and not module.startswith(_OURS)


@lru_cache(maxsize=1_000)
def _file(module: str, file: str) -> str:
    """The file below the folder that its package is imported from, or its name alone."""
    parts, depth = PurePath(file).parts, module.count(".") + 1
    if parts[-1:] == ("__init__.py",):
        depth += 1
    names = [PurePath(part).stem for part in parts[-depth:] if part != "__init__.py"]
    known = ".".join(names) == module
    return plain_text("/".join(parts[-depth:] if known else parts[-1:]))
