"""Writes `repro.py`: a case as a script that needs torch and the subject, and nothing of this harness; and the same for pytest.

A reader finds in this order what is wrong, what is called and what should come out, how the subject is found, and the runtime.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

from statecheck import rooms
from statecheck.case import Case
from statecheck.case.cause import first_wrong_call
from statecheck.report.repro.adapter import adapter_source, called, subject_of, titled
from statecheck.report.repro.check import check_source
from statecheck.report.repro.embed import Script, script_text, watched_text
from statecheck.subject import Subject
from statecheck.subject.identity import SOURCE, source_of
from statecheck.subject.source_files import source_digest, source_files
from statecheck.text import visible

_LONGEST_MESSAGE = 400
_SCRIPT_CODES = """\
Exit code 1 while the defect is there, 0 once it is gone, 2 where it cannot be tried: the subject, torch or the device is missing.
`git bisect run python repro.py --bisect` has 125 instead of 2, so that git skips a revision that cannot be tried.
The case runs in a child process. One that ends early, or gives no answer within TIME_LIMIT=30 seconds, shows the defect; with --here
it runs in this process, for a debugger."""
_TEST_CODES = """\
Fails while the defect is there and passes once it is gone; skipped where it cannot be tried: the subject, torch or the device is
missing."""
_IMPORTED_USAGE = """\
@CODES@
Needs @TOOLS@ and the subject, which is looked for in @FOLDER@. To try another copy, name its module or its folder:

    SUBJECT=@SUBJECT@ SUBJECT_PATH=some/folder DEVICE=@DEVICE@ @COMMAND@"""
_CARRIED_USAGE = """\
@CODES@
Needs @SUBJECT@, triton, @TOOLS@, and nothing else; where there is no GPU, no driver either. In an environment that has them:

    @COMMAND@

SUBJECT_PATH=some/folder tries the @EITHER@ that lies in that folder, such as a checkout."""
_STATECHECK_USAGE = """\
It takes statecheck, which runs the programs of a launch in the order of the case, and watches each of their accesses.

Exit code 1 while the defect is there, 0 once it is gone, 2 where it cannot be tried: the subject, torch or statecheck is missing.
`git bisect run python repro.py --bisect` has 125 instead of 2, so that git skips a revision that cannot be tried.
Needs torch, triton, the subject, statecheck, and case.json beside this file. To try another copy of the subject:

    SUBJECT=@SUBJECT@ SUBJECT_PATH=some/folder STATECHECK=path/to/its/checkout python repro.py"""


@dataclass(frozen=True)
class _Use:
    """How a file is run: what says how it ended, what it needs beside the subject, and the command."""

    codes: str
    tools: str
    command: str


_AS_SCRIPT = _Use(_SCRIPT_CODES, "torch", "python repro.py")
_AS_TEST = _Use(_TEST_CODES, "torch and pytest", "python -m pytest test_repro.py")


def repro_script(case: Case, directory: Path, subject_root: Path | None) -> str:
    """The script's text.

    Args:
        directory: where the script will stand; the path to the subject is written relative to it.
        subject_root: the folder to import the subject from, None where it is installed.
    """
    root = os.path.relpath(subject_root, directory) if subject_root else ""
    if needs_statecheck(case):
        return _replaying_script(case, directory, root)
    arguments = ", ".join([*_judged(case), *_needs(case)])
    return _text(case, root, _AS_SCRIPT, last=f"end({arguments})")


def repro_test(case: Case, directory: Path, subject_root: Path | None) -> str:
    """The same as a file for pytest, "" where it takes statecheck; arguments as of `repro_script`."""
    if needs_statecheck(case):
        return ""
    root = os.path.relpath(subject_root, directory) if subject_root else ""
    needs = ", ".join(_needs(case))
    decided = f"\n    if not wrong:\n        require_decisive({needs})" if needs else ""
    ends = case.device == "cpu" and case.failure is not None and case.failure.kind in ("fault", "hang")
    test = f"""\
def test_{case.property_name}() -> None:
    wrong = {"wrong_in_child" if ends else "wrong_with"}({", ".join(_judged(case))}){decided}
    assert wrong == [], "\\n".join(wrong)"""
    return _text(case, root, _AS_TEST, test=test)


def needs_statecheck(case: Case) -> bool:
    """Whether Triton's interpreter cannot show what is wrong: an access has to be watched, or programs run in another order."""
    return case.sanitized or (case.device == "cpu" and any(call.schedule for call in case.calls))


def _stated(case: Case) -> str:
    """What a condition says is wrong with outcomes of which each alone is what the rules expect, "" where there is none.

    The script cannot judge the condition; as long as it sees these outcomes, the condition is as it was.
    """
    if case.failure is None or first_wrong_call(case) is not None:
        return ""
    return case.failure.message


def _judged(case: Case) -> list[str]:
    return ["check", *filter(None, [_stated(case) and repr(_stated(case))])]


def _needs(case: Case) -> list[str]:
    """Arguments of the runtime's `require_decisive`, none where a case in which nothing is wrong shows that the defect is gone."""
    needs = {
        "depends_on": "" if case.is_decisive else case.depends_on,
        "source": _source_of_failure(case),
    }
    return [f"{name}={value!r}" for name, value in needs.items() if value]


def _source_of_failure(case: Case) -> str:
    """The digest of the subject's files; "" if the files have changed since the failure, or if an adapter stands between."""
    subject = subject_of(case)
    if subject is None or subject.carried or case.first_seen.get(SOURCE) != source_of(subject):
        return ""
    return source_digest(source_files(subject.module))


def _text(case: Case, root: str, use: _Use, *, last: str = "", test: str = "") -> str:
    part = _subject_part(case, root, use)
    seen_with = part.release and f" with {part.release}"
    message = _in_docstring(shorten(case.message, _LONGEST_MESSAGE))
    statements = [*part.statements, f"require({called(case)!r})"]
    if any(call.function == "harness.capture" for call in case.calls):
        statements.append("require_gpu()")
    return script_text(
        Script(
            docstring=(
                f"Counterexample to: {_in_docstring(case.property_name)}",
                _in_docstring(case.should_hold),
                f"Seen{seen_with}: {message}",
                part.usage,
            ),
            check=check_source(case),
            device=case.device,
            statements=(*statements, *filter(None, [last])),
            adapter=part.adapter,
            test=test,
        )
    )


def _replaying_script(case: Case, directory: Path, root: str) -> str:
    """A script for what Triton's interpreter does not show: it has this harness replay the case."""
    checkout = os.path.relpath(rooms.FOLDER, directory)
    arguments = ", ".join(["__doc__", *map(json.dumps, (case.subject, root, checkout))])
    usage = _filled(_STATECHECK_USAGE, {"@SUBJECT@": _in_docstring(case.subject)})
    docstring = (f"Counterexample to: {_in_docstring(case.property_name)}", usage)
    return watched_text(docstring, f"replay_with_statecheck({arguments})")


@dataclass(frozen=True)
class _SubjectPart:
    """How a script is used, and how it comes by its subject.

    Args:
        usage: for its docstring.
        statements: what binds `subject`, in terms of the runtime.
        adapter: the source of a function `adapter` that the statements need, "" for none.
        release: the release that the case was seen with.
    """

    usage: str
    statements: tuple[str, ...]
    adapter: str = ""
    release: str = ""


def _subject_part(case: Case, root: str, use: _Use) -> _SubjectPart:
    """For a script about `case`; `root` is the folder to import a subject from, relative to the script, "" for none."""
    subject = subject_of(case)
    name = _in_docstring(case.subject)
    marks = {
        "@CODES@": use.codes,
        "@TOOLS@": use.tools,
        "@COMMAND@": use.command,
        "@SUBJECT@": name,
        "@DEVICE@": _in_docstring(case.device),
        "@FOLDER@": _in_docstring(f"{root} from here" if root else "what Python imports from"),
    }
    imported = _filled(_IMPORTED_USAGE, marks)
    import_it = f"subject = import_subject({json.dumps(case.subject)}, {json.dumps(root)})"
    adapter = _adapter(case, subject)
    if subject is None or not adapter:
        return _SubjectPart(imported, (import_it,))
    release = titled(case.subject, subject)
    if subject.module.__name__ != subject.carried:
        # Its adapter adapts any port: the port is a module like any other subject.
        return _SubjectPart(imported, (import_it, "subject = adapted(adapter)"), adapter, release)
    # An engine, and what stands in it.
    names = {"@SUBJECT@": name.replace("+", " and "), "@EITHER@": name.replace("+", " or ")}
    inside = f", {json.dumps(root)}" if subject.inside else ""
    bind_it = f"subject = adapted(adapter{inside})"
    return _SubjectPart(_filled(_CARRIED_USAGE, marks | names), (bind_it,), adapter, release)


def _adapter(case: Case, subject: Subject | None) -> str:
    """The source of the function `adapter`, and what it takes; "" if the subject has none, or one that is imported as any other subject."""
    if subject is not None and subject.carried:
        with suppress(ValueError):
            return adapter_source(case, subject)
    return ""


def _filled(template: str, marks: dict[str, str]) -> str:
    """The template with every mark replaced; what replaces one is not looked through for others."""
    return re.sub("|".join(marks), lambda mark: marks[mark[0]], template)


def _in_docstring(text: str) -> str:
    """Text that ends no docstring and has no escapes, of which a reader sees every character."""
    return visible(text).replace("\\", "").replace('"""', "'''")
