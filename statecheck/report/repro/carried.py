"""Parts of an adapter's modules as source: the definitions that a script needs, in the order in which they would be imported.

The modules import the standard library, what they adapt, and each other, the latter by `from module import name`. Beside
definitions that are needed, a script gets what their modules do beside defining names, such as setting a variable of the
environment.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_NOT_HERE = ("properties", "statecheck", "subjects", "oracle")
"""What scripts do not have."""
_NOT_FOR_READERS = re.compile(r"\s+# (?:noqa|type: ignore|mypy:|pragma:).*")


@dataclass(eq=False)
class _Part:
    """One statement of a module, with the comments above it."""

    text: str
    defines: frozenset[str]
    uses: frozenset[str]
    acts: bool
    """Whether it does more than define names."""
    imports: bool
    kept: bool = False


@dataclass(eq=False)
class _Module:
    """A module to carry parts of; `siblings` has which name it imports from which other one."""

    name: str
    path: Path
    title: str = ""
    parts: list[_Part] = field(default_factory=list)
    siblings: dict[str, str] = field(default_factory=dict)
    foreign: dict[str, str] = field(default_factory=dict)
    """Names that it imports in a way in which nothing can be carried, with the place of the import."""
    offers: frozenset[str] = frozenset()
    """What it says in `__all__`."""
    reached: bool = False

    def read(self, package: str, modules: Iterable[str]) -> None:
        text = self.path.read_text(encoding="utf-8")
        tree, lines, end = ast.parse(text), text.splitlines(), 0
        self.title = (ast.get_docstring(tree) or self.name.rpartition(".")[2]).splitlines()[0]
        for number, node in enumerate(tree.body):
            begin, end = end, node.end_lineno or 0
            if _assigned(node) == {"__all__"}:
                self.offers = frozenset(ast.literal_eval(node.value))  # type: ignore[attr-defined]
            elif _imports_from(node, package):
                self._sibling(node, package, modules)
            elif _is_text(node) and self.parts and number:
                # A docstring of the name above it.
                self.parts[-1].text += "\n" + "\n".join(lines[begin:end])
            elif not (_is_text(node) or _is_future(node)):
                self.parts.append(_part(node, lines[_first(node, lines, begin) : end]))

    def _sibling(self, node: ast.stmt, package: str, modules: Iterable[str]) -> None:
        module = getattr(node, "module", "") or ""
        if getattr(node, "level", 0):
            module = f"{package}.{module}"
        for alias in node.names:  # type: ignore[attr-defined]
            if alias.asname or alias.name == "*" or module not in modules:
                self.foreign[alias.asname or alias.name] = f"{self.path.name}:{node.lineno}"
            else:
                self.siblings[alias.name] = module


class Carried:
    """What is carried of modules, and grows with what is wanted.

    Args:
        modules: the files to read, by the names that they import each other by.
        package: the package that they are in.
        given: names that the script defines itself.
    """

    def __init__(
        self, modules: Mapping[str, Path], package: str, given: frozenset[str] = frozenset()
    ) -> None:
        self._modules = {name: _Module(name, path) for name, path in modules.items()}
        self._given = given
        self._homes: dict[str, _Module] = {}
        """By name that is carried, the module that defines it: in a script there is one place for all of them."""
        for module in self._modules.values():
            module.read(package, modules)

    def want(self, name: str) -> bool:
        """Carry what defines a name, if a module offers it.

        Raises:
            ValueError: it comes from elsewhere, or two modules define a name that it needs.
        """
        found = [module for module in self._modules.values() if name in module.offers]
        for module in found:
            self._keep(module, name)
        return bool(found)

    def _keep(self, module: _Module, name: str) -> None:
        if name in self._given:
            return
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
        if not part.imports:
            self._settle(module, part)
        for name in sorted(part.uses):
            self._keep(module, name)
        if not module.reached:
            module.reached = True
            for other in module.parts:
                if other.acts:
                    self._keep_part(module, other)

    def _settle(self, module: _Module, part: _Part) -> None:
        for name in sorted(part.defines):
            home = self._homes.setdefault(name, module)
            if home is not module:
                rule = f"defined in one module, but is in {home.path.name}, too"
                raise ValueError(f"name = {name!r}, but should be {rule} [{module.path.name}]")

    def source(self) -> str:
        """What is carried: the modules that others import come first, and each import once."""
        order: list[_Module] = []
        for module in self._modules.values():
            self._place(module, order)
        written: set[str] = set()
        return "\n\n".join(_source(module, written) for module in order)

    def _place(self, module: _Module, order: list[_Module]) -> None:
        if module in order or not module.reached:
            return
        for name in dict.fromkeys(module.siblings.values()):
            self._place(self._modules[name], order)
        order.append(module)


def _source(module: _Module, written: set[str]) -> str:
    pieces = [f"# {module.title}"]
    for part in module.parts:
        if part.kept and part.text not in written:
            written.add(part.text)
            pieces.append(part.text)
    # Within a function, definitions are one line apart.
    return re.sub(r"\n{3,}", "\n\n", "\n".join(pieces)).strip("\n")


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
    return _Part(
        f"\n\n{text}\n\n" if spaced else text,
        frozenset(defines),
        frozenset(uses),
        acts,
        imports=isinstance(node, (ast.Import, ast.ImportFrom)),
    )


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
    missing = {_root(package), *_NOT_HERE}
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
