"""The part of a subject's adapter that a case needs, as source: what `repro.py` carries where the subject says so."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from statecheck import rooms
from statecheck.case import Case
from statecheck.case.values import BufferMaker, Call, Function, Record, Value
from statecheck.report.repro.carried import Carried
from statecheck.subject import NotOffered, Subject, load

_ALWAYS = ("get_conv_state_layout",)
"""What every script asks for: whether the layout is remembered."""
_MAKER = "CpuGpuBuffer"


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


def carried_source(case: Case, subject: Subject) -> str:
    """The definitions of `subject.carried` that the case needs, as the body of a function that returns them by name.

    Raises:
        ValueError: a module of the package imports another one in a way that cannot be carried, or has a name of another's.
    """
    adapter = parts_of(subject.carried)
    offered = [name for name in sorted(needed(case)) if adapter.want(name)]
    returned = ", ".join(f'"{name}": {name}' for name in offered)
    return f"{adapter.source()}\n\nreturn {{{returned}}}"


def parts_of(package: str) -> Carried:
    """The modules of an adapter, and the rules that they follow, of which nothing is carried yet."""
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.submodule_search_locations is not None
    folder = Path(found.submodule_search_locations[0])
    paths = [path for path in sorted(folder.rglob("*.py")) if path.stem != "__init__"]
    modules = {
        f"{package}.{'.'.join(path.relative_to(folder).with_suffix('').parts)}": path for path in paths
    }
    # The script's own class of that name says the same, and its `attempt` knows it.
    given = frozenset({NotOffered.__name__})
    return Carried(modules | _rules_of(modules.values()), package, given)


def _rules_of(paths: Iterable[Path]) -> dict[str, Path]:
    """Modules of the rules that the files import names from, and those that these do."""
    found: dict[str, Path] = {}
    waiting = list(paths)
    while waiting:
        text = waiting.pop().read_text(encoding="utf-8")
        for name in re.findall(r"^from (oracle(?:\.\w+)+) import", text, re.MULTILINE):
            path = rooms.FOLDER.joinpath(*name.split(".")).with_suffix(".py")
            if name not in found and path.is_file():
                found[name] = path
                waiting.append(path)
    return found


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
