"""Writes `repro.py`, a case as a script that says by its exit code whether the defect is there, and `test_repro.py`, the same for pytest.

A script is straight-line code of the project (`calls`, `sequences`). A scenario of an engine, and what plain calls do not show, it replays with the
modules of statecheck that it carries, unchanged.
"""

from __future__ import annotations

import ast
import base64
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from textwrap import indent, shorten, wrap
from typing import Any

from statecheck import rooms
from statecheck.case import Case
from statecheck.report.environment import revision
from statecheck.report.failure import headline, release_of, should_hold, subject_of, titled
from statecheck.report.scripts.calls import PlainCalls, plain_calls
from statecheck.subject import Subject
from statecheck.util.files import in_file_name
from statecheck.util.text import visible

TEMPLATES = Path(__file__).parents[1] / "templates"
_LONGEST_CALL = 400
_WIDTH = 120
_ENTRY = "statecheck.diagnose.replay"
_CARRIED = ("statecheck", "oracle", "subjects")
_NOT_CARRIED = (
    "statecheck.campaign",
    "statecheck.cli",
    "statecheck.report",
    "statecheck.suite",
    "statecheck.execution.registry",
    "subjects.sequences",
)
"""Imported on demand by what a replay does not do: draw examples, and match declared defects."""
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
        return _replaying_script(case, subject, root)
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
    imports = [*imports, *(["import signal"] if ends else [])]
    return _filled("script.py.j2", case, ends=ends, imports="\n".join(imports), body=body, **values)


def _filled(template: str, case: Case, **values: Any) -> str:
    """A script, which begins with what is said of the case; a line of the template that is only a block leaves no line behind."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(  # noqa: S701 - a script is no HTML
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "in_docstring": in_docstring,
        "indented": lambda text: indent(text.strip("\n"), "    "),
    }
    return environment.get_template(template).render(
        case=case,
        headline=headline(case, release_of(subject_of(case))),
        should_hold=should_hold(case),
        call=shorten(case.failure.shown, _LONGEST_CALL) if case.failure is not None else "",
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


# A script that replays its case.


def _replaying_script(case: Case, subject: Subject | None, root: str) -> str:
    """The script's text.

    Args:
        root: the folder to import the subject from, relative to the script's; "" where it is installed.
    """
    module = subject.module.__name__ if subject is not None else ""
    files = dict(_files(module))
    if any(_place(path) in files for path in filter(None, [_path_of(module)])) and not case.subject.count(
        "+"
    ):
        # The subject's own adapter is among the files.
        root = ""
    packed = zlib.compress(json.dumps({**files, "case.json": case.to_json()}).encode(), 9)
    takes = f"torch, triton, numpy{'' if case.device == 'cpu' else f', a device {case.device}'} and {titled(case.subject, release_of(subject))}"
    other = f"SUBJECT={case.subject} SUBJECT_PATH=some/folder DEVICE={case.device} python repro.py"
    return _filled(
        "replayed.py.j2",
        case,
        needs=f"Needs {takes}. To try another copy of it: {other}",
        root=root,
        many=len(files),
        revision=revision(rooms.home()),
        files="\n".join(wrap(base64.b85encode(packed).decode(), _WIDTH)),
    )


@cache
def _files(subject: str) -> tuple[tuple[str, str], ...]:
    """The text of each module that a replay on the subject may import, and of the data beside them, by its path."""
    found: dict[Path, str] = {}
    # Some modules of these packages are named by texts alone.
    named = ("statecheck.workers", "statecheck.reference", "subjects.impl", "subjects.plain", subject)
    waiting = [_ENTRY, *(module for package in named for module in _modules_in(package))]
    seen = set(_NOT_CARRIED)
    while waiting:
        name = waiting.pop()
        package = name.rpartition(".")[0]
        path = _path_of(name)
        if name in seen or package in _NOT_CARRIED or path is None:
            continue
        seen.add(name)
        waiting += filter(None, [package])
        found[path] = path.read_text(encoding="utf-8")
        for data in path.parent.glob("*.toml"):
            found[data] = data.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(found[path])):
            if isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                waiting += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple((_place(path), text) for path, text in sorted(found.items()))


def _path_of(module: str) -> Path | None:
    """The file of a module of these packages, None of another one, and of a name that is no module."""
    root, *names = module.split(".")
    if root not in _CARRIED:
        return None
    folder = rooms.PACKAGE if root == "statecheck" else rooms.FOLDER / root
    path = folder.joinpath(*names)
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


def _modules_in(package: str) -> Iterator[str]:
    """The package and its modules, nothing of one that is not carried."""
    path = _path_of(package)
    if path is not None:
        yield package
        for file in path.parent.rglob("*.py") if path.name == "__init__.py" else ():
            yield ".".join([package, *file.relative_to(path.parent).with_suffix("").parts]).removesuffix(
                ".__init__"
            )


def _place(path: Path) -> str:
    """Where a file lies in the folder that the script makes."""
    inside = path.is_relative_to(rooms.PACKAGE) and not path.is_relative_to(rooms.PACKAGE / "_installed")
    return str(path.relative_to(rooms.PACKAGE.parent if inside else rooms.FOLDER))
