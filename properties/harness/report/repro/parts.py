"""How a script comes by its subject: it imports it, or carries what adapts the release that the subject is about."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from textwrap import indent, shorten

from properties.harness.case import Case
from properties.harness.report.repro.adapter import carried_source, subject_of, titled
from properties.harness.text import visible

_TOLD = 400
_CODES = """\
Exit code 1 while the defect is there, 0 once it is gone, 2 where it cannot be tried: the subject, torch or the device is missing.
`git bisect run python repro.py --bisect` has 125 instead of 2, so that git skips a revision that cannot be tried."""
_IMPORTED_USAGE = f"""\
{_CODES}
Needs torch and the subject, which is looked for in @FOUND@. To try another copy, name its module or its folder:

    SUBJECT=@SUBJECT@ SUBJECT_PATH=some/folder DEVICE=@DEVICE@ python repro.py"""
_FOUND = """
HERE = os.path.dirname(os.path.abspath(__file__))
SUBJECT = os.environ.setdefault("SUBJECT", @MODULE@)
ROOT = os.environ.get("SUBJECT_PATH") or (@ROOT@ and os.path.join(HERE, @ROOT@))
if ROOT:
    sys.path.insert(0, os.path.abspath(ROOT))
try:
    @BIND@importlib.import_module(SUBJECT)
except KeyboardInterrupt:
    raise
except BaseException as error:
    cannot_try(f"cannot import {SUBJECT}: {type(error).__name__}: {error}")"""
_CARRIED_USAGE = f"""\
{_CODES}
Needs @NAME@, torch and triton, and nothing else; where there is no GPU, no driver either. In an environment that has them:

    python repro.py

SUBJECT_PATH=some/folder tries the @NAME@ that lies in that folder, such as a checkout."""
_CARRIED = '''
def adapter():
    """How the names that the case uses are found in @NAME@."""
@SOURCE@


if os.environ.get("SUBJECT_PATH"):
    sys.path.insert(0, os.path.abspath(os.environ["SUBJECT_PATH"]))
try:
    subject = types.SimpleNamespace(**{name: found for name, found in adapter().items() if found is not None})
except KeyboardInterrupt:
    raise
except BaseException as error:
    cannot_try(f"cannot import what the case needs: {type(error).__name__}: {error}")'''


@dataclass(frozen=True)
class SubjectPart:
    """What a script says of its use, the code that binds `subject`, and the release that the case was seen with."""

    usage: str
    code: str
    seen_with: str = ""


def subject_part(case: Case, root: str) -> SubjectPart:
    """For a script about `case`; `root` is the folder to import a subject from, relative to the script, "" for none."""
    subject = subject_of(case)
    imported = {
        "@SUBJECT@": in_docstring(case.subject),
        "@MODULE@": json.dumps(case.subject),
        "@ROOT@": json.dumps(root),
        "@DEVICE@": in_docstring(case.device),
        "@FOUND@": in_docstring(f"{root} from here" if root else "what Python imports from"),
    }
    if subject is not None and subject.carried:
        # An adapter that cannot be carried is imported, as any other subject.
        with suppress(ValueError):
            source = indent(carried_source(case, subject), "    ")
            told = {"@NAME@": in_docstring(case.subject), "@SOURCE@": source}
            usage, code = filled(_CARRIED_USAGE, told), filled(_CARRIED, told)
            if subject.module.__name__ != subject.carried:
                # Its adapter adapts any port: the port is a module like any other subject.
                usage = filled(_IMPORTED_USAGE, imported)
                code = f"{filled(_FOUND, imported | {'@BIND@': ''})}\n\n{code}"
            return SubjectPart(usage, code, titled(case.subject, subject))
    return SubjectPart(filled(_IMPORTED_USAGE, imported), filled(_FOUND, imported | {"@BIND@": "subject = "}))


def filled(template: str, told: dict[str, str]) -> str:
    """The template with every mark replaced; what replaces one is not looked through for others."""
    return re.sub("|".join(told), lambda mark: told[mark[0]], template)


def in_docstring(text: str) -> str:
    """Text that ends no docstring and has no escapes, of which a reader sees every character."""
    return visible(text).replace("\\", "").replace('"""', "'''")


def seen(case: Case) -> str:
    """The difference, as much of it as one reads."""
    return in_docstring(shorten(case.message, _TOLD))
