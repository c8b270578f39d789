"""The command `sanitize`: a script, or a saved case, under the sanitizer."""

from __future__ import annotations

from types import SimpleNamespace

import click

from statecheck.cli.options import OptionsCommand, location, option
from statecheck.util.terminal import say


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
