"""The command `workflow`: a required check as a file for a project's CI, with the address of the statecheck that is installed."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from statecheck.cli.options import location
from statecheck.execution.verdict import CLEAN
from statecheck.rooms import origin
from statecheck.text.command_lines import near
from statecheck.text.terminal import said, say

_TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
_GITHUB, _BUILDKITE = "github", "buildkite"
_FILES = {_GITHUB: "conform.yml.j2", _BUILDKITE: "conform-buildkite.yml.j2"}
CALLABLE = {
    "STATECHECK": "${{ inputs.statecheck }}",
    "SUBJECT": "${{ inputs.subject }}",
    "PROFILE": "${{ inputs.profile }}",
    "RELEASE": "${{ inputs.release }}",
    "XFAILS": "${{ inputs.xfails }}",
    "INSTALL": "${{ inputs.install }}",
    "TORCH_INDEX": "${{ inputs.torch-index }}",
}
"""The variables of `.github/workflows/conform.yml`, which other workflows call."""


def add_workflow(commands: Any) -> None:
    """Add the command's parser."""
    workflow = commands.add_parser(
        "workflow", help="print a required check for a project's CI, with the address of this statecheck"
    )
    # Not `subject`: nothing is run, so that no release is needed here.
    workflow.add_argument(
        "--subject", dest="verified", required=True, help="the module to verify, or vllm, sglang, ..."
    )
    workflow.add_argument(
        "--profile", default="functions", help="functions, engines or sequences (default functions)"
    )
    workflow.add_argument(
        "--release", default="", help="of a built-in subject: VLLM_PATH=. for a checkout, or VLLM=0.33.0"
    )
    workflow.add_argument(
        "--xfails", default="", metavar="FILE", help="expected failures, from the root of the repository"
    )
    workflow.add_argument(
        "--install", default="", metavar="COMMAND", help="a command that installs the project"
    )
    workflow.add_argument(
        "--system", choices=tuple(_FILES), default=_GITHUB, help="whose file it is (default github)"
    )
    workflow.add_argument(
        "--statecheck",
        default="",
        metavar="ADDRESS",
        help="what pip installs (default: where this one is from)",
    )
    workflow.add_argument(
        "--out", type=location, default=None, metavar="FILE", help="write it there (default: print it)"
    )
    workflow.set_defaults(run=run_workflow)


def run_workflow(options: argparse.Namespace) -> int:
    """Print or write the file.

    Raises:
        ValueError: no such profile; or nothing says where this statecheck is from.
    """
    from statecheck.campaign.conformance.profiles import profile_of
    from statecheck.data.files import write_text

    profile_of(options.profile)
    variables = {
        "STATECHECK": options.statecheck or _address(),
        "SUBJECT": options.verified,
        "PROFILE": options.profile,
        "RELEASE": options.release,
        "XFAILS": options.xfails,
        "INSTALL": options.install,
        "TORCH_INDEX": _TORCH_INDEX,
    }
    text = workflow_text(options.system, {name: json.dumps(value) for name, value in variables.items()})
    if options.out is None:
        say(text.rstrip("\n"))
        return CLEAN
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_text(options.out, text)
    say(said(near(options.out)), sys.stderr)
    return CLEAN


def _address() -> str:
    address = origin()
    if not address:
        raise ValueError(
            "statecheck = an unknown address, but should be what pip installs, such as a tag of a repository or a wheel: "
            "--statecheck ADDRESS [workflow]"
        )
    return address


def workflow_text(system: str, variables: dict[str, str], *, is_callable: bool = False) -> str:
    """The file's text.

    Args:
        system: "github" or "buildkite".
        variables: of the job, as YAML has them.
        is_callable: whether other workflows call it.
    """
    from statecheck.report.filled import filled

    parts = ("inputs.statecheck", "inputs.release") if is_callable else ("env.STATECHECK", "env.RELEASE")
    key = "-".join(("statecheck", *(f"${{{{ {part} }}}}" for part in (*parts, "runner.os"))))
    values = {"variables": variables.items(), "callable": is_callable, "key": key}
    return filled(Path(__file__).with_name(_FILES[system]), {}, **values)
