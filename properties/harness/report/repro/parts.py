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
_IMPORTED_USAGE = """\
@CODES@
Needs @TOOLS@ and the subject, which is looked for in @FOUND@. To try another copy, name its module or its folder:

    SUBJECT=@SUBJECT@ SUBJECT_PATH=some/folder DEVICE=@DEVICE@ @RUN@"""
_CARRIED_USAGE = """\
@CODES@
Needs @SUBJECT@, triton, @TOOLS@, and nothing else; where there is no GPU, no driver either. In an environment that has them:

    @RUN@

SUBJECT_PATH=some/folder tries the @EITHER@ that lies in that folder, such as a checkout."""
STATECHECK_USAGE = """\
It takes statecheck, which runs the programs of a launch in the order of the case, and watches each of their accesses.

Exit code 1 while the defect is there, 0 once it is gone, 2 where it cannot be tried: the subject, torch or statecheck is missing.
`git bisect run python repro.py --bisect` has 125 instead of 2, so that git skips a revision that cannot be tried.
Needs torch, triton, the subject, statecheck, and case.json beside this file. To try another copy of the subject:

    SUBJECT=@SUBJECT@ SUBJECT_PATH=some/folder STATECHECK=path/to/its/checkout python repro.py"""


@dataclass(frozen=True)
class Usage:
    """How a file is run: what says how it ended, what it needs beside the subject, and the command."""

    codes: str
    tools: str
    command: str


AS_SCRIPT = Usage(
    """\
Exit code 1 while the defect is there, 0 once it is gone, 2 where it cannot be tried: the subject, torch or the device is missing.
`git bisect run python repro.py --bisect` has 125 instead of 2, so that git skips a revision that cannot be tried.
The case runs in a child process. One that ends early, or gives no answer within TIME_LIMIT=30 seconds, shows the defect; with --here
it runs in this process, for a debugger.""",
    "torch",
    "python repro.py",
)
AS_TEST = Usage(
    """\
Fails while the defect is there and passes once it is gone; skipped where it cannot be tried: the subject, torch or the device is
missing.""",
    "torch and pytest",
    "python -m pytest test_repro.py",
)


@dataclass(frozen=True)
class SubjectPart:
    """How a script is used, and how it comes by its subject.

    Args:
        usage: for its docstring.
        statements: what binds `subject`, in terms of the runtime.
        adapter: the source of a function `adapter` that the statements need, "" for none.
        seen_with: the release that the case was seen with.
    """

    usage: str
    statements: tuple[str, ...]
    adapter: str = ""
    seen_with: str = ""


def subject_part(case: Case, root: str, usage: Usage = AS_SCRIPT) -> SubjectPart:
    """For a script about `case`; `root` is the folder to import a subject from, relative to the script, "" for none."""
    subject = subject_of(case)
    told = {
        "@CODES@": usage.codes,
        "@TOOLS@": usage.tools,
        "@RUN@": usage.command,
        "@SUBJECT@": in_docstring(case.subject),
        "@DEVICE@": in_docstring(case.device),
        "@FOUND@": in_docstring(f"{root} from here" if root else "what Python imports from"),
    }
    text = filled(_IMPORTED_USAGE, told)
    import_it = f"import_subject({json.dumps(case.subject)}, {json.dumps(root)})"
    if subject is not None and subject.carried:
        # An adapter that cannot be carried is imported, as any other subject.
        with suppress(ValueError):
            adapter = (
                f'def adapter():\n    """How the names that the case uses are found in {told["@SUBJECT@"]}."""\n'
                + indent(carried_source(case, subject), "    ")
            )
            bind_it = "subject = adapted(adapter)"
            seen_with = titled(case.subject, subject)
            if subject.module.__name__ == subject.carried:
                # An engine, and what stands in it.
                both = {"@SUBJECT@": " and ", "@EITHER@": " or "}
                names = {key: told["@SUBJECT@"].replace("+", word) for key, word in both.items()}
                text = filled(_CARRIED_USAGE, told | names)
                if subject.inside:
                    bind_it = f"subject = adapted(adapter, {json.dumps(root)})"
                return SubjectPart(text, (bind_it,), adapter, seen_with)
            # Its adapter adapts any port: the port is a module like any other subject.
            return SubjectPart(text, (import_it, bind_it), adapter, seen_with)
    return SubjectPart(text, (f"subject = {import_it}",))


def filled(template: str, told: dict[str, str]) -> str:
    """The template with every mark replaced; what replaces one is not looked through for others."""
    return re.sub("|".join(told), lambda mark: told[mark[0]], template)


def in_docstring(text: str) -> str:
    """Text that ends no docstring and has no escapes, of which a reader sees every character."""
    return visible(text).replace("\\", "").replace('"""', "'''")


def seen(case: Case) -> str:
    """The difference, as much of it as one reads."""
    return in_docstring(shorten(case.message, _TOLD))
