"""The command `sanitize`: a script, or a saved case, under the sanitizer."""

from __future__ import annotations

import argparse
from typing import Any

from statecheck.cli.options import location

_DESCRIPTION = """Run a script as `python script.py` would, its kernels executed on the CPU, and stop at the first access
of a kernel that a GPU would not forgive. Options may also follow the script; what is not one of them is the script's own,
and so is everything after `--`. Tensors have to be on the CPU. 0: clean. 1: a finding. 2: the script failed, or launched
no kernel. 3: it cannot be run."""


def add_sanitize(commands: Any) -> None:
    """Add the command's parser."""
    parser = commands.add_parser(
        "sanitize", help="run a script, or a saved case, under the sanitizer", description=_DESCRIPTION
    )
    _add_options(parser)
    parser.add_argument("script", type=location, help="a Python script, or a case.json")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own")
    parser.set_defaults(run=run_sanitize)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--order", default="", help="of programs: reversed, or switches:5>1,3>0 (see docs/kernels.md)"
    )
    parser.add_argument(
        "--no-empties", dest="empties", action="store_false", help="do not watch what torch.empty returns"
    )


def run_sanitize(options: argparse.Namespace) -> int:
    """Run the script; the exit codes are those of a campaign.

    Raises:
        ValueError: no such file, or an option that cannot be.
    """
    from statecheck.kernels.sanitizer.script import SanitizedScript, sanitize_script

    _take_ours(options)
    if options.script.suffix == ".json" and options.script.is_file():
        from statecheck.diagnose.attribution import explain_case

        return explain_case(options.script)
    script = SanitizedScript(options.script, tuple(options.arguments), options.order, options.empties)
    return sanitize_script(script)


def _take_ours(options: argparse.Namespace) -> None:
    """Options of this command that follow the script, up to `--`."""
    given = options.arguments
    end = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    _add_options(parser)
    try:
        _, rest = parser.parse_known_args(given[:end], options)
    except argparse.ArgumentError as error:
        raise ValueError(f"{error} [sanitize]") from error
    options.arguments = rest + given[end + 1 :]
