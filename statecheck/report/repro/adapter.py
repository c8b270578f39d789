"""The modules of a subject's adapter that a case needs: what `repro.py` carries where the subject says so."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from statecheck.case import Case
from statecheck.case.values import BufferMaker, Call, Function, Record, Value
from statecheck.subject import Subject, load

_ALWAYS = ("get_conv_state_layout",)
"""What every script asks for: whether the layout is remembered."""
_MAKER = "CpuGpuBuffer"
_NOT_HERE = ("oracle", "properties", "statecheck", "subjects")
"""What is not installed where a script runs."""
_NOT_OFFERED = "statecheck.subject.not_offered"
_SHARED = "subjects.shared."


def subject_of(case: Case) -> Subject | None:
    """The case's subject, None where it cannot be imported here."""
    try:
        return load(case.subject)
    except Exception:
        # A report is written all the same, also where the subject is another machine's.
        return None


def titled(name: str, subject: Subject | None) -> str:
    """The subject's name, with its release where it has one."""
    return f"{name} {subject.release}" if subject is not None and subject.release else name


def adapter_source(case: Case, subject: Subject) -> str:
    """A function `adapter`, which returns what the case needs of `subject.carried` by name, and the modules that define it.

    Raises:
        ValueError: such a module imports what scripts do not have.
    """
    homes = {name: module for module in _modules_of(subject.carried) for name in _offered_by(module)}
    wanted = {name: homes[name] for name in sorted(needed(case)) if name in homes}
    sources: dict[str, str] = {}
    for module in wanted.values():
        _carry(module, subject.carried, sources)
    modules = "".join(f"    {json.dumps(name)}: {_quoted(text)},\n" for name, text in sources.items())
    title = f"How the names that the case uses are found in {subject.name}."
    return (
        f'MODULES = {{\n{modules}}}\n"""Of an adapter, as they are."""\n\n\n'
        f'def adapter():\n    """{title}"""\n    return carried(MODULES, {json.dumps(wanted)})'
    )


def _modules_of(package: str) -> Iterator[str]:
    """The names of the package's modules."""
    folder = _file_of(package).with_suffix("")
    for path in sorted(folder.rglob("*.py")):
        if path.stem != "__init__":
            yield f"{package}.{'.'.join(path.relative_to(folder).with_suffix('').parts)}"


def _file_of(module: str) -> Path:
    root, *names = module.split(".")
    # Not the specification of the module itself: to find it, Python would import the packages that it is in.
    found = importlib.util.find_spec(root)
    assert found is not None
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0], *names).with_suffix(".py")


def _offered_by(module: str) -> list[str]:
    """What a module says in `__all__`."""
    for node in ast.parse(_file_of(module).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def _carry(module: str, package: str, sources: dict[str, str]) -> None:
    """Add a module, behind those that it imports: others of the package, and of the rules."""
    if module in sources:
        return
    text = _file_of(module).read_text(encoding="utf-8")
    root = package.partition(".")[0]
    for imported in re.findall(
        rf"^ *(?:from|import) ((?:{root}|{'|'.join(_NOT_HERE)})\b[\w.]*)", text, re.MULTILINE
    ):
        if not (imported == _NOT_OFFERED or imported.startswith((f"{package}.", _SHARED, "oracle."))):
            rule = f"a module of {package}, of what adapters share, or of the rules"
            raise ValueError(f"import = {imported!r}, but should be {rule} [{module}]")
        _carry(imported, package, sources)
    sources[module] = re.sub(
        rf"^( *from )(?=(?:{root}|oracle|statecheck)\.)", r"\1carried.", text, flags=re.MULTILINE
    )


def _quoted(text: str) -> str:
    return repr(text) if "'''" in text else f"r'''{text}'''"


def called(case: Case) -> list[str]:
    """The subject's functions and kernels that the case runs, each once."""
    names = (
        str(call.named["kernel"]) if call.function == "harness.launch" else call.function
        for call in case.calls
    )
    return [name for name in dict.fromkeys(names) if not name.startswith("harness.")]


def needed(case: Case) -> set[str]:
    """What the case asks the subject for by name: first parts of dotted ones, and classes that it may not have."""
    found = {*_ALWAYS, *(name.partition(".")[0] for name in called(case))}
    for value in _inside(case.steps):
        if isinstance(value, Record):
            found.add(value.type)
        elif isinstance(value, Function):
            found.add(value.name.partition(".")[0])
        elif isinstance(value, BufferMaker):
            found.add(_MAKER)
    return found


def _inside(value: Value) -> Iterator[Value]:
    """The value, and all that it is made of."""
    yield value
    if isinstance(value, dict):
        items: Iterable[Value] = value.values()
    elif isinstance(value, (list, tuple)):
        items = value
    elif isinstance(value, Record):
        items = [item for _, item in value.fields]
    elif isinstance(value, Call):
        items = value.named.values()
    else:
        items = [getattr(value, name) for name in ("of", "value") if hasattr(value, name)]
    for item in items:
        yield from _inside(item)
