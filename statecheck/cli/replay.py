"""The commands for an input that there is: `replay` of a saved case, `upstream`, which makes a plain test of it for the project that has the defect,
`replay-trace` of recorded traffic, and `sanitize` of a script or a case.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import click
from rich.console import Console

from statecheck.cli.options import (
    OptionsCommand,
    corpus_option,
    location,
    option,
    require_own,
    subject_options,
    time_limit_option,
    together,
)
from statecheck.execution.verdict import CLEAN, FALSIFIED, INCOMPLETE
from statecheck.util.command_lines import near
from statecheck.util.text import said, say
from statecheck.workers.commands import run_command
from statecheck.workers.own_process import is_command
from statecheck.workers.supervised import supervise


@click.command(cls=OptionsCommand)
@click.argument("case")
@corpus_option("ids are looked up")
@option("--verdict", type=location, metavar="FILE", help="write verdict and message as JSON, too")
@time_limit_option
@subject_options()
def replay(options: SimpleNamespace) -> int:
    """Run a saved CASE again, a file or an id of the corpus: FIXED, FAILED, REPRODUCED (a declared defect) or NOT APPLICABLE."""
    from statecheck.campaign.corpus import path_of
    from statecheck.diagnose.replay import FAILED, FIXED, KNOWN, replay_file
    from statecheck.report.failure import headline
    from statecheck.util.files import write_text

    path = path_of(options.case, options.corpus)
    if is_command():
        supervise("replay", f"during the replay of {path}")
    found = replay_file(path, options.subject, options.device, time_limit=options.time_limit)
    line = f"{found.verdict}: {found.message}"
    if found.verdict in (FAILED, KNOWN):
        verdict = FAILED if found.verdict == FAILED else f"REPRODUCED (declared as {found.declared})"
        line = "; ".join(
            filter(
                None,
                (
                    f"{verdict}: {headline(replace(found.case, subject=found.subject), found.release)}",
                    found.notes,
                ),
            )
        )
    say(said(line))
    if options.verdict is not None:
        content = {"verdict": found.verdict, "message": found.message}
        write_text(options.verdict, json.dumps(content, indent=1) + "\n")
    return {FIXED: CLEAN, KNOWN: CLEAN, FAILED: FALSIFIED}.get(found.verdict, INCOMPLETE)


_FAILED = 1
"""Exit code of pytest where a test failed."""
_MOST_LINES, _LONGEST_LINE = 40, 1_200


@click.command(cls=OptionsCommand)
@click.argument("case")
@corpus_option("ids are looked up")
@option("--out", type=location, metavar="FILE", help="write it there (default: print it)")
@subject_options(default="")
def upstream(options: SimpleNamespace) -> int:
    """Write a saved CASE as a plain test that imports the verified project alone, once the test was seen to fail."""
    from statecheck.campaign.corpus import path_of
    from statecheck.case import Case
    from statecheck.diagnose.attribution import with_own_calls
    from statecheck.report.scripts.calls import plain_calls, require_plain
    from statecheck.report.scripts.script import subject_root, test_of
    from statecheck.subject import load
    from statecheck.util.files import write_text

    case = Case.named(path_of(options.case, options.corpus), "upstream")
    require_plain(case)
    subject = load(options.subject or case.subject)
    case = with_own_calls(case, subject)
    text = test_of(case, plain_calls(case, subject))
    lines = text.splitlines()
    if len(lines) > _MOST_LINES or max(map(len, lines)) > _LONGEST_LINE:
        raise ValueError(
            f"test = {len(lines)} lines of up to {max(map(len, lines)):,} characters, but should be at most {_MOST_LINES} "
            f"of {_LONGEST_LINE} [upstream]"
        )
    _require_failure(text, subject_root(subject))
    if options.out is None:
        say(text.rstrip("\n"))
        return CLEAN
    write_text(options.out, text)
    say(f"{said(near(options.out))}: fails here, as it should", sys.stderr)
    return CLEAN


def _require_failure(text: str, root: Path | None) -> None:
    """Run the test with the project alone on the path.

    Raises:
        ValueError: it does not fail.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "test_upstream.py"
        file.write_text(text, encoding="utf-8")
        line = [sys.executable, "-m", "pytest", "-c", os.devnull, "-q", "-p", "no:cacheprovider", file.name]
        path = os.pathsep.join(filter(None, (str(root or ""), os.environ.get("PYTHONPATH", ""))))
        environment = os.environ | {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        found = run_command(line, folder=folder, variables=environment)
    if found.returncode != _FAILED:
        last = " ".join(found.stdout.split()[-30:])
        raise ValueError(
            f"test = exit code {found.returncode}, but should be one that fails on this subject: {last} [upstream]"
        )


_PLAIN_WIDTH = 120
_OPTIONS: dict[str, tuple[type, object, str]] = {
    "requests": (int, 2000, "how many of the trace, at most"),
    "factor": (int, 64, "what lengths are divided by, a divisor of 512"),
    "runner": (str, "V2", "V1 keeps requests in rows, V2 in slots"),
    "block-size": (int, None, "tokens of a block (default 512 / factor)"),
    "blocks": (int, None, "how many (default: scarce)"),
    "tokens": (int, None, "most tokens of a step (default 65536 / factor)"),
    "max-num-seqs": (int, 16, "requests that run at a time"),
    "num-spec": (int, 3, "most drafts of a request in a step"),
    "method": (str, "ngram", "where drafts come from: ngram, or eagle, a model"),
    "acceptance": (float, 0.7, "how likely a draft is accepted after those before it"),
    "layout": (str, "SD", "of conv states: SD or DS"),
    "seed": (int, 0, "repeat another replay's random choices, or make others"),
}


@click.command("replay-trace", cls=OptionsCommand)
@click.argument("trace", type=location)
@subject_options(default="vllm")
@option("--out", type=location, default="build/replay", metavar="FOLDER", help="where files go")
@together(
    *(
        option(f"--{name}", type=kind, default=default, help=about)
        for name, (kind, default, about) in _OPTIONS.items()
    )
)
@option("--async-scheduling/--no-async-scheduling", default=None, help="(default: as the release chooses)")
def replay_trace(options: SimpleNamespace) -> int:
    """Send recorded traffic, a TRACE in the Mooncake format, through a release's own engine, and hold every step against the laws."""
    from statecheck.kernels import triton_mode

    require_own(options.out, "replay-trace", "out")
    # Decided before the subject is imported.
    triton_mode.prepare("cpu")
    from properties.releases.replay import ReplayOptions
    from properties.releases.replay import replay as replay_recorded

    console = Console() if sys.stdout.isatty() else Console(width=_PLAIN_WIDTH)
    return replay_recorded(ReplayOptions(**vars(options)), console)


# What is not an option of this command is the script's own, and so is everything behind `--`.
@click.command(cls=OptionsCommand, context_settings={"ignore_unknown_options": True})
@click.argument("script", type=location)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@option("--order", default="", help="of programs: reversed, or switches:5>1,3>0 (see docs/kernels.md)")
@option("--empties/--no-empties", default=True, help="watch what torch.empty returns (default: watch)")
def sanitize(options: SimpleNamespace) -> int:
    """Run a SCRIPT as Python would, its kernels executed on the CPU, up to the first access that a GPU would not forgive; or a case."""
    from statecheck.kernels.sanitizer.script import SanitizedScript, sanitize_script

    if options.script.suffix == ".json" and options.script.is_file():
        from statecheck.diagnose.attribution import explain_case

        sentence = explain_case(options.script)
        say(sentence or "CLEAN: the sanitizer says nothing against it, and no kernel wrote anything wrong.")
        return 1 if sentence else 0
    script = SanitizedScript(options.script, options.arguments, options.order, options.empties)
    return sanitize_script(script)
