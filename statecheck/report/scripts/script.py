"""Writes `repro.py`, a case as a script that says by its exit code whether the defect is there, and `test_repro.py`, the same for pytest.

A script is straight-line code of the project: its own calls (`calls`), or what a port of a library of sequences writes. A scenario of an engine,
and what plain calls do not show, it replays with the modules of statecheck that it carries, unchanged.
"""

from __future__ import annotations

import ast
import base64
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from textwrap import indent, shorten, wrap
from typing import Any

from oracle.sequences import ALL_LOGITS, REUSE, SequenceTokens, compared_places
from statecheck import rooms
from statecheck.case import Case
from statecheck.case.bucket import ExecutedCall, scenarios
from statecheck.case.values import Call, Outcome, Raised, Record, Returned
from statecheck.report.environment import revision
from statecheck.report.failure import headline, release_of, should_hold, titled
from statecheck.report.scenario_timeline import broken_law
from statecheck.report.scripts.calls import PlainCalls, plain_calls
from statecheck.sequences import ANOTHER_MODEL, TOKENS_OF_ANOTHER
from statecheck.subject import Subject
from statecheck.subject.subject import SequenceChoices
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


def subject_root(subject: Subject) -> Path | None:
    """The folder that has to be on the import path to find the subject, None inside site-packages.

    Of an engine with a module inside it is that module's: scripts carry what they need of the engine's adapter.
    """
    module = getattr(subject.module, "__inside__", subject.module)
    if module.__file__ is None or "site-packages" in module.__file__:
        return None
    depth = module.__name__.count(".") + (1 if Path(module.__file__).name == "__init__.py" else 0)
    return Path(module.__file__).resolve().parents[depth]


def calls_of(case: Case, subject: Subject | None) -> PlainCalls | None:
    """The case as straight-line code, None where that does not show it."""
    with suppress(ValueError):
        return plain_calls(case, subject)
    return None


def repro_script(case: Case, directory: Path, subject: Subject | None) -> str:
    """The script's text.

    Args:
        directory: where the script will stand; the path to the subject is written relative to it.
        subject: the case's, None where it cannot be imported here.
    """
    folder = subject_root(subject) if subject is not None else None
    root = os.path.relpath(folder, directory) if folder is not None else ""
    if case.model and subject is not None:
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
        subject,
        imports=imports,
        helpers=plain.helpers,
        body="\n".join(plain.lines),
        prepared="\n".join(prepared),
        judged=_JUDGED,
        ending='leave(0, "the defect is gone")',
        needs=f"Needs {needs} alone. To try another copy: {other}",
    )


def framed(case: Case, subject: Subject | None, *, imports: list[str], body: str, **values: Any) -> str:
    """What every straight-line script has around its lines."""
    ends = case.failure is not None and case.failure.kind in ("fault", "hang")
    imports = [*imports, *(["import signal"] if ends else [])]
    return _filled("script.py.j2", case, subject, ends=ends, imports="\n".join(imports), body=body, **values)


def _filled(template: str, case: Case, subject: Subject | None, **values: Any) -> str:
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
        headline=headline(case, release_of(subject)),
        should_hold=should_hold(case),
        call=shorten(case.failure.shown, _LONGEST_CALL) if case.failure is not None else "",
        **values,
    )


def repro_test(case: Case, subject: Subject | None) -> str:
    """The same as a test of the project, which imports the project alone; "" where straight-line code does not show it."""
    plain = calls_of(case, subject)
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
        subject,
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


_Arguments = Mapping[str, Any]
_PORT = '''\
import importlib
from pathlib import Path

here = Path(globals().get("__file__", "repro.py")).resolve().parent  # the working folder where the script is piped
sys.path.insert(0, os.environ.get("SUBJECT_PATH") or str(here / {root!r}))
{rooms}port = importlib.import_module(os.environ.get("SUBJECT", {name!r}))


def numbers(row):
    return [float(one) for one in (row.tolist() if hasattr(row, "tolist") else row)]


def fresh(tokens, **features):
    context = port.new(model, seed, **given)
    return numbers(port.extend(context, [(0, tokens)], **features)[0])


def happened(result):
    """The calls behind it rely on an operation that is done."""
    if result is False:
        leave(UNTRIED, "an operation is refused that was done: it cannot be tried here")
    return result


def refused(result):
    """The calls behind it rely on an operation that changes nothing."""
    if result is not False:
        leave(UNTRIED, "an operation is done that was refused: it cannot be tried here")

'''
_NUMBERS = "from math import inf, nan  # noqa: F401 - as Python writes numbers"
_COMPARISONS = '''\
TOLERANCE = TOLERANCE_OF_PORT  # share of the scale of a fresh run's logits: the port's; campaigns measure a smaller share for models with little noise
compared, wrong = [], []


def compare(what, seen, fresh):
    """Logits of a row beside those of a fresh run over the same tokens."""
    mean = sum(fresh) / len(fresh)
    scale = max(abs(one - mean) for one in fresh) or sys.float_info.min
    far = [abs(one - other) / scale for one, other in zip(seen, fresh)]
    print(f"{what}: logits differ by {max(far):.3g} of their scale")
    compared.append(what)
    if len(seen) != len(fresh) or not all(one <= TOLERANCE for one in far):
        wrong.append(what)


def equal(what, seen, expected):
    """Anything else that has to be the same."""
    print(f"{what}: {seen}" + ("" if seen == expected else f", but should be {expected}"))
    compared.append(what)
    if seen != expected:
        wrong.append(what)'''
_JUDGED_SEQUENCE = """\
traceback.print_exception(error, file=sys.stdout)
if wrong or (type(error).__name__ == RAISED and not isinstance(error, ImportError)):
    leave(1, "the defect is there")
leave(UNTRIED, f"it cannot be tried here: {type(error).__name__}: {error}")"""
_ENDING = """\
if not compared:
    leave(UNTRIED, "nothing was compared")
leave(*((1, "the defect is there") if wrong else (0, "the defect is gone")))"""
_ROOMS = """\
from statecheck.rooms import open_rooms

open_rooms()
"""
"""Ahead of a port that is a part of statecheck."""
_GREEDY = '''
def greedy(what, tokens, chosen, **features):
    """Each chosen token has the largest logit of a fresh run over what stands before it, or one within the tolerance of it."""
    for number, token in enumerate(chosen):
        logits = fresh([*tokens, *chosen[:number]], **features)
        mean = sum(logits) / len(logits)
        scale = max(abs(one - mean) for one in logits)
        best = max(range(len(logits)), key=logits.__getitem__)
        near = logits[best] - logits[token] <= TOLERANCE * scale
        equal(f"{what}, token {number}", token, token if near else best)


def chosen_by_fresh_runs(tokens, n):
    found = []
    while len(found) < n:
        logits = fresh([*tokens, *found])
        found.append(max(range(len(logits)), key=logits.__getitem__))
    return found

'''
_PROCESSED = '''
def processed(what, reported, tokens):
    """With the state behind the first tokens at hand, a library processes the others alone, or some anew where it has them all."""
    known, count = reported or ((), 0)
    both = min(len(known), len(tokens))
    if reported and list(known[:both]) == tokens[:both]:
        equal(f"{what}, tokens processed", count, min(count, len(tokens) - len(known) if both < len(tokens) else getattr(port, "AGAIN", 1)))

'''
_BY_ANOTHER_MODEL = f"""
def saved_by_another_model():
    names = list(port.models())
    at = names.index(model)
    for name in [*names[at + 1 :], *names[:at]]:
        try:
            context = port.new(name, 0)
            port.extend(context, [(0, {list(TOKENS_OF_ANOTHER)})])
            if (saved := port.save(context, 0)) is not False:
                return saved
        except Exception:
            continue

"""


def sequence_script(case: Case, subject: Subject, root: str) -> str:
    """The script's text.

    Args:
        root: the folder that the port's module is imported from, relative to the script's; "" where it is installed.
    """
    choices = subject.sequences
    assert choices is not None
    body = ""
    # What the port does not write for the library alone is written for the port: it compares logits and tokens, and neither lengths nor how much was processed.
    if choices.script is not None and not _other_law(case):
        with suppress(NotImplementedError):
            body = "".join(_of_library(case, choices.script))
    if not body:
        body = "\n".join(_of_port(case, choices, subject.module.__name__, root)) + "\n"
    return framed_sequence(body, case, subject)


def framed_sequence(body: str, case: Case, subject: Subject) -> str:
    """Lines that call `compare` and `equal`, with what defines these, and with the exit codes."""
    assert subject.sequences is not None
    last = case.actual[-1] if case.actual else None
    raised = last.exception if isinstance(last, Raised) else ""
    features = [call.named["features"] for call in case.calls if "features" in call.named]
    tolerance = max(map(subject.sequences.limit, [{}, *features]))
    return framed(
        case,
        subject,
        imports=["import os", "import sys", "import traceback", _NUMBERS],
        helpers=_COMPARISONS.replace("TOLERANCE_OF_PORT", repr(tolerance)),
        body=body,
        prepared="",
        # An exception, where no comparison is wrong, is the defect itself if it is the recorded one.
        judged=_JUDGED_SEQUENCE.replace("RAISED", repr(raised)),
        ending=_ENDING,
        needs="",
    )


def _other_law(case: Case) -> str:
    """The law that the failure breaks, where that is not about logits or generated tokens."""
    law = broken_law(case)
    return law if law in ("length", REUSE) else ""


def _of_library(case: Case, script: Any) -> Iterator[str]:
    """What the port writes for each model in turn; scenarios on the same model have contexts of their own in one text."""
    first = 0
    made: tuple[Any, ...] = ()
    operations: list[tuple[str, _Arguments]] = []
    for (call, _), *others in scenarios(case):
        named = call.named
        if made and made != (named["model"], named["seed"], named["features"]):
            yield script(*made, operations)
            operations, first = [], 0
        made = named["model"], named["seed"], named["features"]
        moved = list(_operations([call for call, _ in others], first))
        operations += moved
        first = 1 + max((given["context"] for _, given in moved), default=first)
    yield script(*made, operations)


def _operations(calls: Sequence[Call], first: int) -> Iterator[tuple[str, _Arguments]]:
    """Names and arguments; contexts are counted from `first`."""
    for call in calls:
        name, named = call.function.rpartition(".")[2], call.named
        named.pop("self", None)
        if name in ("cancel", "load_damaged") or "stop" in named:
            raise NotImplementedError(f"{name} with the library alone")
        yield name, named | {"context": first + named["context"]}


def _of_port(case: Case, choices: SequenceChoices, name: str, root: str) -> Iterator[str]:
    yield _PORT.format(root=root, name=name, rooms=_ROOMS if name.startswith("subjects.") else "")
    taken = scenarios(case)
    if any(call.function.endswith(".generate") for scenario in taken for call, _ in scenario):
        yield _GREEDY
    if any(call.named.get("damage") == ANOTHER_MODEL for one in taken for call, _ in one):
        yield _BY_ANOTHER_MODEL
    law = _other_law(case)
    if law == REUSE:
        yield _PROCESSED
    first = 0
    for number, scenario in enumerate(taken):
        writer = _Writer(choices, first, law if number == len(taken) - 1 else "")
        yield from writer.lines(scenario)
        first += len(writer.contexts)


@dataclass
class _Writer:
    """The lines of one scenario."""

    choices: SequenceChoices
    first: int
    """The number of its first context in the script."""
    law: str
    """As of `_other_law`; "" where none is compared."""
    contexts: dict[int, str] = field(default_factory=dict)
    tokens: SequenceTokens = field(default_factory=SequenceTokens)
    _before_the_next: str = ""

    def lines(self, taken: ExecutedCall) -> Iterator[str]:
        (made, _), *others = taken
        named = made.named
        features: Mapping[str, Any] = named["features"]
        given = {name: value for name, value in features.items() if name in self.choices.given_to_reference}
        yield f"model, seed, given = {named['model']!r}, {named['seed']}, {given!r}"
        new = f"port.new(model, seed{_named(features)})"
        for call, outcome in [(made, None), *others]:
            number = call.named.get("context", 0)
            if number not in self.contexts:
                self.contexts[number] = f"c{self.first + len(self.contexts)}"
                yield f"{self.contexts[number]} = {new}"
            if self._before_the_next:
                yield self._before_the_next
                self._before_the_next = ""
            if call is not made:
                yield from self._operation(call, outcome)

    def _operation(self, call: Call, outcome: Outcome | None) -> Iterator[str]:
        name, named = call.function.rpartition(".")[2], call.named
        number, features = named.pop("context"), named.pop("features", {})
        named.pop("self", None)
        context = self.contexts[number]
        saved = str(named.get("name", "")).replace(" ", "_")
        given = [repr(_plain(value)) for key, value in named.items() if key != "name"]
        if name in ("load", "load_damaged"):
            given += ["saved_by_another_model()" if named.get("damage") == ANOTHER_MODEL else saved]
        if "stop" in named:
            before = list(self.tokens.of((number, named["sequence"])))
            yield f"stop = chosen_by_fresh_runs({before}, {named['stop']})[-1]"
            given[-1] = "stop=stop"
        invocation = f"port.{name}({', '.join([context, *given])}{_named(features)})"
        step = outcome.value if isinstance(outcome, Returned) else None
        if not isinstance(step, Record):
            # The call that fails by what it raises, the last one.
            yield invocation
        elif name == "extend":
            yield from self._extend(invocation, number, named["rows"], features)
        elif name == "generate":
            yield from self._generate(invocation, context, number, named, features, step)
        elif not step["happened"]:
            yield f"refused({invocation})"
        else:
            yield f"{f'{saved} = ' if name == 'save' else ''}happened({invocation})"
            if name == "cancel":
                length = _length_behind(step, number, named["sequence"])
                self.tokens.cancel(number, named["sequence"], tuple(named["tokens"]), length)
                if length is None:
                    yield f"port.drop({context}, {named['sequence']})"
            else:
                getattr(self.tokens, name)(number, *named.values())
        if isinstance(step, Record) and self.law == "length":
            yield from self._lengths(context, number, named)

    def _extend(self, invocation: str, number: int, rows: Any, features: Mapping[str, Any]) -> Iterator[str]:
        whole = self.tokens.extend(number, [(sequence, tuple(tokens)) for sequence, tokens in rows])
        yield f"rows = {invocation}"
        for row, ((sequence, new), tokens) in enumerate(zip(rows, whole, strict=True)):
            if self.law == REUSE:
                yield self._processed(number, sequence, tokens)
            each = compared_places(len(new)) if features.get(ALL_LOGITS) else [None]
            for at in each:
                behind = tokens if at is None else tokens[: len(tokens) - len(new) + at + 1]
                seen = f"rows[{row}]" if at is None else f"rows[{row}][{at}]"
                wanted = f"fresh({list(behind)}{self._given(features)})"
                yield f'compare("sequence {sequence} of {self.contexts[number]}", numbers({seen}), {wanted})'

    def _generate(
        self,
        invocation: str,
        context: str,
        number: int,
        named: Mapping[str, Any],
        features: Mapping[str, Any],
        step: Record,
    ) -> Iterator[str]:
        sequence = named["sequence"]
        before = self.tokens.of((number, sequence))
        stop = ", stop=stop" if "stop" in named else ""
        yield f"chosen = [int(token) for token in {invocation}]"
        n = f"chosen.index(stop) + 1 if stop in chosen else {named['n']}" if "stop" in named else named["n"]
        yield f'equal("number of tokens", len(chosen), {n})'
        if self.law == REUSE:
            yield self._processed(number, sequence, before)
        given = self._given(features)
        if given:
            yield "context = port.new(model, seed, **given)"
            yield f"port.extend(context, [(0, {list(before)})])"
            wanted = f"[int(token) for token in port.generate(context, 0, {named['n']}{given}{stop})]"
            yield f'equal("generated tokens", chosen, {wanted})'
        else:
            yield f'greedy("generated", {list(before)}, chosen)'
        length = _length_behind(step, number, sequence)
        chosen: Any = step["generated"]
        other = "other tokens are generated than before: it cannot be tried here"
        self._before_the_next = f"if chosen != {list(chosen)}:\n    leave(UNTRIED, {other!r})"
        self.tokens.generate(number, sequence, tuple(chosen), length)
        if length is None:
            yield f"port.drop({context}, {sequence})"

    def _processed(self, number: int, sequence: int, tokens: Sequence[int]) -> str:
        name = self.contexts[number]
        return f'processed("sequence {sequence} of {name}", port.reuse({name}, {sequence}), {list(tokens)})'

    def _lengths(self, context: str, number: int, named: Mapping[str, Any]) -> Iterator[str]:
        changed = {named[key] for key in ("sequence", "source", "target") if key in named}
        changed |= {sequence for sequence, _ in named.get("rows", ())} | set(
            range(len(named.get("order", ())))
        )
        for sequence in sorted(changed):
            has = len(self.tokens.of((number, sequence)))
            yield f'equal("length of sequence {sequence}", port.length({context}, {sequence}), {has})'

    def _given(self, features: Mapping[str, Any]) -> str:
        names = self.choices.given_to_reference
        return _named({name: value for name, value in features.items() if name in names})


def _length_behind(step: Record, context: int, sequence: int) -> int | None:
    """The sequence's length by the result of a call; None where it is empty."""
    lengths: Any = step["lengths"]
    return next((count for *place, count in lengths if place == [context, sequence]), None)


def _plain(value: Any) -> Any:
    """Rows and orders as a person writes them."""
    if isinstance(value, (list, tuple)) and all(isinstance(item, int) for item in value):
        return list(value)
    if isinstance(value, (list, tuple)):
        return [(sequence, list(tokens)) for sequence, tokens in value]
    return value


def _named(features: Mapping[str, Any]) -> str:
    return "".join(f", {name}={value!r}" for name, value in features.items())
