"""Writes `repro.py`, a case as a script that says by its exit code whether the defect is there, and `test_repro.py`, the same for pytest.

A script is straight-line code of the project (`calls`, `sequences`), or it replays the case with the modules of statecheck (`replayed`).
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from textwrap import indent, shorten
from typing import Any

from statecheck.case import Case
from statecheck.report.filled import filled
from statecheck.report.scripts.calls import PlainCalls, plain_calls
from statecheck.report.statement import headline, should_hold, subject_of
from statecheck.subject import Subject
from statecheck.util.files import in_file_name
from statecheck.util.text import visible

TEMPLATES = Path(__file__).parents[1] / "templates"
_LONGEST_MESSAGE = 400
_JUDGED = """\
if isinstance(error, ImportError) or type(error).__name__ in ("MemoryError", "NotOffered", "OutOfMemoryError"):
    leave(UNTRIED, f"it cannot be tried here: {error}")
if error.__traceback__.tb_next.tb_next is not None:  # it was not raised in `check` itself
    traceback.print_exception(error, file=sys.stdout)
leave(1, f"{type(error).__name__}: {error}\\nthe defect is there")"""
_OWN = """\
for found in ({},):
    plain = type(found).__name__ in ("function", "builtin_function_or_method", "type")
    if plain and str(found.__module__).partition(".")[0] in (*sys.stdlib_module_names, "numpy", "torch", "triton"):
        raise ImportError(f"{{found}} is no function of the project")"""
_INTERPRETED = """\
os.environ["TRITON_INTERPRET"] = "1"  # Triton runs kernels in Python, without a GPU
from triton.runtime import interpreter
import triton.language

patch_lang = interpreter._patch_lang


def patched(function):
    scope = patch_lang(function)
    # Of a loaded number, an array of one dimension, NumPy 2.4 and later make no int, as loops of kernels need.
    triton.language.tensor.__index__ = lambda scalar: int(scalar.handle.data.item())
    return scope


interpreter._patch_lang = patched"""


def calls_of(case: Case, subject: Subject | None) -> PlainCalls | None:
    """The case as straight-line code, None where that does not show it."""
    with suppress(ValueError):
        return plain_calls(case, subject)
    return None


def repro_script(case: Case, directory: Path, subject_root: Path | None) -> str:
    """The script's text.

    Args:
        directory: where the script will stand; the path to the subject is written relative to it.
        subject_root: the folder to import the subject from, None where it is installed.
    """
    root = os.path.relpath(subject_root, directory) if subject_root else ""
    subject = subject_of(case)
    if case.model and subject is not None:
        from statecheck.report.scripts.sequences import sequence_script

        return sequence_script(case, subject, root)
    plain = calls_of(case, subject)
    if plain is None:
        from statecheck.report.scripts.replayed import replaying_script

        return replaying_script(case, subject, root)
    return _script_of_calls(case, subject, plain, root)


def _script_of_calls(case: Case, subject: Subject | None, plain: PlainCalls, root: str) -> str:
    adapted = subject is not None and subject.is_adapter
    prepared = [f"os.environ.update({plain.environment!r})"] if plain.environment else []
    prepared += [_INTERPRETED] if plain.interpreted else []
    prepared += ["import torch"] if plain.takes_torch else []
    if case.device != "cpu":
        prepared.append(f'torch.empty(0, device="{case.device}")')
    if adapted and subject is not None and not subject.inside:
        # The lines name the project's own modules, and no adapter.
        root = ""
    folder = f"str(Path(__file__).resolve().parent / {json.dumps(root)})" if root else '""'
    prepared.append(f'sys.path.insert(0, os.environ.get("SUBJECT_PATH") or {folder})')
    for alias, module in plain.modules.items():
        own = not adapted and module != "statecheck.execution.in_process"
        named = f'os.environ.get("SUBJECT", {json.dumps(module)})' if own else json.dumps(module)
        prepared.append(f"{alias} = importlib.import_module({named})")
    prepared.append(_OWN.format(", ".join(plain.functions)))
    other = "SUBJECT_PATH=some/folder python repro.py"
    other = other if adapted else f"SUBJECT={case.subject} {other}"
    needs = "torch and the project" if plain.takes_torch else "the project"
    imports = ["import importlib", "import os", "import sys", "import traceback"]
    imports += ["from pathlib import Path", *plain.imports]
    return framed(
        case,
        imports=imports,
        helpers=plain.helpers,
        body="\n".join(plain.lines),
        prepared="\n".join(prepared),
        judged=_JUDGED,
        ending='leave(0, "the defect is gone")',
        needs=f"Needs {needs} alone. To try another copy: {other}",
    )


def framed(case: Case, *, imports: list[str], body: str, **values: Any) -> str:
    """What every straight-line script has around its lines."""
    ends = case.failure is not None and case.failure.kind in ("fault", "hang")
    return filled(
        TEMPLATES / "script.py.j2",
        {"in_docstring": in_docstring, "indented": lambda text: indent(text.strip("\n"), "    ")},
        headline=headline(case),
        should_hold=should_hold(case),
        message=shorten(case.message, _LONGEST_MESSAGE),
        ends=ends,
        imports="\n".join([*imports, *(["import signal"] if ends else [])]),
        body=body,
        **values,
    )


def repro_test(case: Case) -> str:
    """The same as a test of the project, which imports the project alone; "" where straight-line code does not show it."""
    plain = calls_of(case, subject_of(case))
    if plain is None or (case.failure is not None and case.failure.kind in ("fault", "hang")):
        return ""
    return test_of(case, plain)


def test_of(case: Case, plain: PlainCalls) -> str:
    """The text of a test module."""
    lines = [f'"""{in_docstring(shorten(should_hold(case), 300))}"""', ""]
    environment = plain.environment | ({"TRITON_INTERPRET": "1"} if plain.interpreted else {})
    if environment:
        lines += ["import os", "", f"os.environ.update({environment!r})", ""]
    lines += [*plain.imports, *(["import torch"] if plain.takes_torch else [])]
    for alias, module in plain.modules.items():
        package = module.rpartition(".")[0]
        lines.append(f"from {package} import {alias}" if package else f"import {alias}")
    lines += ["", "", *([plain.helpers, "", ""] if plain.helpers else [])]
    name = in_file_name(case.property_id).replace("-", "_")
    lines += [f"def test_{name}():", indent("\n".join(plain.lines), "    ")]
    return "\n".join(lines) + "\n"


def in_docstring(text: str) -> str:
    """Text that ends no docstring and has no escapes, of which a reader sees every character."""
    return visible(text).replace("\\", "").replace('"""', "'''")
