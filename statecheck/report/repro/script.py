"""Writes `repro.py`: a case as a script that needs torch and the subject, and nothing of this harness; and the same for pytest.

A reader finds in this order what is wrong, what is called and what should come out, how the subject is found, and the runtime.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from textwrap import shorten

from statecheck import rooms
from statecheck.case import Case
from statecheck.case.cause import first_wrong_call
from statecheck.report.filled import filled
from statecheck.report.law import should_hold
from statecheck.report.repro.adapter import adapter_source, called, subject_of, titled
from statecheck.report.repro.check import check_source
from statecheck.report.repro.embed import BEFORE_TORCH, WATCHED, WITH_TORCH, source_of_module
from statecheck.report.repro.plain import plain_script, plain_test
from statecheck.report.repro.sequences import sequence_script
from statecheck.subject import Subject
from statecheck.subject.identity import SOURCE, source_of
from statecheck.subject.source_files import source_digest, verified_files
from statecheck.util.text import visible

_TEMPLATES = Path(__file__).parents[1] / "templates"
_LONGEST_MESSAGE = 400


def repro_script(case: Case, directory: Path, subject_root: Path | None) -> str:
    """The script's text.

    Args:
        directory: where the script will stand; the path to the subject is written relative to it.
        subject_root: the folder to import the subject from, None where it is installed.
    """
    root = os.path.relpath(subject_root, directory) if subject_root else ""
    subject = subject_of(case)
    if case.model and subject is not None:
        return sequence_script(case, subject, root)
    if needs_statecheck(case):
        return _replaying_script(case, directory, root)
    arguments = ", ".join([*_judged(case), *_needs(case)])
    return plain_script(case, subject, root) or _text(case, root, end=f"end({arguments})")


def repro_test(case: Case, directory: Path, subject_root: Path | None) -> str:
    """The same as a file for pytest, "" where it takes statecheck; arguments as of `repro_script`."""
    if needs_statecheck(case) or case.model:
        return ""
    if text := plain_test(case, subject_of(case)):
        return text
    root = os.path.relpath(subject_root, directory) if subject_root else ""
    needs = ", ".join(_needs(case))
    decided = f"\n    if not wrong:\n        require_decisive({needs})" if needs else ""
    ends = case.device == "cpu" and case.failure is not None and case.failure.kind in ("fault", "hang")
    test = f"""\
def test_{case.property_name}() -> None:
    wrong = {"wrong_in_child" if ends else "wrong_with"}({", ".join(_judged(case))}){decided}
    assert wrong == [], "\\n".join(wrong)"""
    return _text(case, root, test=test)


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
    return source_digest(verified_files(subject.module))


def _text(case: Case, root: str, *, end: str = "", test: str = "") -> str:
    """The script with what it ends with, or the file with its test; `root` is where the subject is, relative to it."""
    subject = subject_of(case)
    adapter = _adapter(case, subject)
    # The adapter of an engine finds the engine itself; others adapt a port, which is a module like any other subject.
    engine = bool(adapter) and subject is not None and subject.module.__name__ == subject.carried
    import_it = f"subject = import_subject({json.dumps(case.subject)}, {json.dumps(root)})"
    inside = f", {json.dumps(root)}" if engine and subject is not None and subject.inside else ""
    statements = [
        *([] if engine else [import_it]),
        *([f"subject = adapted(adapter{inside})"] if adapter else []),
    ]
    statements.append(f"require({called(case)!r})")
    if any(call.function == "harness.capture" for call in case.calls):
        statements.append("require_gpu()")
    return filled(
        _TEMPLATES / "repro.py.j2",
        {"in_docstring": _in_docstring},
        case=case,
        should_hold=should_hold(case),
        release=titled(case.subject, subject) if adapter else "",
        message=shorten(case.message, _LONGEST_MESSAGE),
        engine=engine,
        root=root,
        check=check_source(case),
        test=test,
        adapter=adapter,
        before_torch=map(source_of_module, BEFORE_TORCH),
        with_torch=map(source_of_module, WITH_TORCH),
        statements=[*statements, *filter(None, [end])],
    )


def _replaying_script(case: Case, directory: Path, root: str) -> str:
    """A script for what Triton's interpreter does not show: it has this harness replay the case."""
    checkout = os.path.relpath(rooms.FOLDER, directory)
    arguments = ", ".join(["__doc__", *map(json.dumps, (case.subject, root, checkout))])
    statement = f"replay_with_statecheck({arguments})"
    return filled(
        _TEMPLATES / "watched.py.j2",
        {"in_docstring": _in_docstring},
        case=case,
        should_hold=should_hold(case),
        runtime=source_of_module(WATCHED),
        statement=statement,
    )


def _adapter(case: Case, subject: Subject | None) -> str:
    """The source of the function `adapter`, and what it takes; "" if the subject has none, or one that is imported as any other subject."""
    if subject is not None and subject.carried:
        with suppress(ValueError):
            return adapter_source(case, subject)
    return ""


def _in_docstring(text: str) -> str:
    """Text that ends no docstring and has no escapes, of which a reader sees every character."""
    return visible(text).replace("\\", "").replace('"""', "'''")
