"""The part of a subject's adapter that a case needs, as source: what `repro.py` carries where the subject says so.

An adapter is a package of modules that import the standard library, what they adapt, and each other, the latter by
`from package.module import name`. Of these the script has the definitions that the case comes to, in the order in which
they would be imported, and whatever the modules do beside defining names, such as setting a variable of the environment.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from properties.harness.case import Case
from properties.harness.case.values import BufferMaker, Call, Function, Record, Value
from properties.harness.subject import Subject, load

_ALWAYS = ("get_conv_state_layout",)
"""What every script asks for: whether the layout is remembered."""
_HARNESS = ("properties", "oracle")
_MAKER = "CpuGpuBuffer"
_NOT_FOR_READERS = re.compile(r"\s+# (?:noqa|type: ignore|mypy:|pragma:).*")


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
        ValueError: a module of the package imports another one in a way that cannot be carried.
    """
    adapter = _Adapter(subject.carried)
    offered = [name for name in sorted(needed(case)) if adapter.want(name)]
    returned = ", ".join(f'"{name}": {name}' for name in offered)
    return f"{adapter.source()}\n\nreturn {{{returned}}}"


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


@dataclass(eq=False)
class _Part:
    """One statement of a module, with the comments above it."""

    text: str
    defines: frozenset[str]
    uses: frozenset[str]
    acts: bool
    """Whether it does more than define names."""
    kept: bool = False


@dataclass(eq=False)
class _Module:
    """A module of the adapter; `siblings` has which name it imports from which other one."""

    name: str
    path: Path
    parts: list[_Part] = field(default_factory=list)
    siblings: dict[str, str] = field(default_factory=dict)
    foreign: dict[str, str] = field(default_factory=dict)
    """Names that it imports in a way in which nothing can be carried, with the place of the import."""
    offers: frozenset[str] = frozenset()
    """What it says in `__all__`."""
    reached: bool = False

    def read(self, package: str) -> None:
        text = self.path.read_text(encoding="utf-8")
        lines, end = text.splitlines(), 0
        for number, node in enumerate(ast.parse(text).body):
            begin, end = end, node.end_lineno or 0
            if _assigned(node) == {"__all__"}:
                self.offers = frozenset(ast.literal_eval(node.value))  # type: ignore[attr-defined]
            elif _imports_from(node, package):
                self._sibling(node, package)
            elif _is_text(node) and self.parts and number:
                # A docstring of the name above it.
                self.parts[-1].text += "\n" + "\n".join(lines[begin:end])
            elif not (_is_text(node) or _is_future(node)):
                self.parts.append(_part(node, lines[_first(node, lines, begin) : end]))

    def _sibling(self, node: ast.stmt, package: str) -> None:
        module = (getattr(node, "module", "") or "").removeprefix(f"{package}.")
        for alias in node.names:  # type: ignore[attr-defined]
            if alias.asname or alias.name == "*" or not module.isidentifier():
                self.foreign[alias.asname or alias.name] = f"{self.path.name}:{node.lineno}"
            else:
                self.siblings[alias.name] = module


class _Adapter:
    """A package, of which parts are wanted."""

    def __init__(self, package: str) -> None:
        found = importlib.util.find_spec(package)
        assert found is not None
        assert found.submodule_search_locations is not None
        paths = sorted(Path(found.submodule_search_locations[0]).glob("*.py"))
        self._modules = {path.stem: _Module(path.stem, path) for path in paths if path.stem != "__init__"}
        for module in self._modules.values():
            module.read(package)
        self._order: list[_Module] = []

    def want(self, name: str) -> bool:
        """Keep what defines a name, if the adapter offers it."""
        found = [module for module in self._modules.values() if name in module.offers]
        for module in found:
            self._keep(module, name)
        return bool(found)

    def _keep(self, module: _Module, name: str) -> None:
        if name in module.foreign:
            rule = "imported from a module of the adapter, by its own name"
            raise ValueError(f"name = {name!r}, but should be {rule} [{module.foreign[name]}]")
        if name in module.siblings:
            self._keep(self._modules[module.siblings[name]], name)
        for part in module.parts:
            if name in part.defines:
                self._keep_part(module, part)

    def _keep_part(self, module: _Module, part: _Part) -> None:
        if part.kept:
            return
        part.kept = True
        for name in sorted(part.uses):
            self._keep(module, name)
        if not module.reached:
            module.reached = True
            for other in module.parts:
                if other.acts:
                    self._keep_part(module, other)

    def source(self) -> str:
        for module in self._modules.values():
            self._place(module)
        told: set[str] = set()
        text = "\n".join(piece for module in self._order for piece in _pieces(module, told))
        return re.sub(r"\n{3,}", "\n\n", text).strip("\n")

    def _place(self, module: _Module) -> None:
        """Behind the modules that it imports."""
        if module in self._order or not module.reached:
            return
        for name in dict.fromkeys(module.siblings.values()):
            self._place(self._modules[name])
        self._order.append(module)


def _pieces(module: _Module, told: set[str]) -> Iterator[str]:
    """The text of the module's kept parts; an import that another module has made already is left out."""
    title = (
        ast.get_docstring(ast.parse(module.path.read_text(encoding="utf-8"))) or module.name
    ).splitlines()[0]
    yield f"\n# {title}"
    for part in module.parts:
        if part.kept and part.text not in told:
            told.add(part.text)
            yield part.text


def _part(node: ast.stmt, lines: list[str]) -> _Part:
    names = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
    texts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
    # A name may be looked up by its text.
    uses = {one.id for one in names} | {
        text for text in texts if isinstance(text, str) and text.isidentifier()
    }
    defines = _assigned(node) | _bound_inside(node)
    acts = not isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not _only_assigns(node)
    acts |= any("noqa: F401" in line for line in lines)
    text = "\n".join(_NOT_FOR_READERS.sub("", line) for line in lines)
    spaced = isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.If))
    return _Part(f"\n{text}\n" if spaced else text, frozenset(defines), frozenset(uses), acts)


def _assigned(node: ast.stmt) -> set[str]:
    """Names that the statement itself binds."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _bound_inside(node: ast.stmt) -> set[str]:
    """Names that statements within it bind, such as those below an `if`."""
    bodies = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
    bodies += [handler.body for handler in getattr(node, "handlers", [])]
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return set()
    return {name for body in bodies for one in body for name in _assigned(one) | _bound_inside(one)}


def _only_assigns(node: ast.stmt) -> bool:
    """Whether the statement binds names and changes nothing else."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return True
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return all(isinstance(target, ast.Name) for target in targets)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _imports_from(node: ast.stmt, package: str) -> bool:
    """Whether it imports from the package, or what scripts do not have: what is around the package, and the harness."""
    missing = {_root(package), *_HARNESS}
    if isinstance(node, ast.ImportFrom):
        return node.level > 0 or _root(node.module or "") in missing
    return isinstance(node, ast.Import) and any(_root(one.name) in missing for one in node.names)


def _root(module: str) -> str:
    return module.partition(".")[0]


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _first(node: ast.stmt, lines: list[str], end_of_last: int) -> int:
    """The index of the statement's first line, or of the first comment right above it."""
    decorators = getattr(node, "decorator_list", [])
    first = min(one.lineno for one in (node, *decorators)) - 1
    while first > end_of_last and lines[first - 1].startswith("#"):
        first -= 1
    return first
