"""The command line itself: its sections, its suggestions, and what it refuses."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
import torch

from lab.bench.__main__ import bench
from lab.compatibility.__main__ import compatibility
from lab.mutants.__main__ import mutants
from lab.prove.__main__ import prove
from statecheck.campaign.plan import Plan
from statecheck.cli import campaign, conform
from statecheck.cli.main import SECTIONS, main, statecheck
from statecheck.execution.verdict import MISCONFIGURED
from statecheck.kernels import triton_mode
from tests.helpers.modules import ROOT

COMMANDS = [*statecheck.commands.values(), bench, compatibility, mutants, prove]


def test_the_help_lists_each_command_in_a_section_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    output = capsys.readouterr().out
    assert [title for title in SECTIONS if f"{title}:" not in output] == []
    assert [name for name in statecheck.commands if f"  {name} " not in output] == []


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_each_command_and_each_option_has_a_help(command: click.Command) -> None:
    assert command.help
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize(
    ("words", "misspelt", "right"),
    [
        ("fuz", "fuz", "fuzz"),
        ("nihgtly --budget 8h", "nihgtly", "nightly"),
        ("fuzz --budgte 5s", "--budgte", "--budget"),
        ("fuzz --vlm 0.33.0", "--vlm", "--vllm"),
    ],
)
def test_a_misspelt_word_is_refused_and_the_right_word_suggested(
    words: str, misspelt: str, right: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == MISCONFIGURED
    message = capsys.readouterr().err.splitlines()[0]
    assert misspelt in message
    assert right in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--vllm 0.33.0 --sglang 0.5.23", "--vllm and --sglang are given, but should be of one project"),
        ("--vllm latest", "--vllm = 'latest', but should be the version of a release, such as 0.33.0"),
        (
            "--vllm 0.27.1",
            "vllm = '0.27.1', but should be 0.29.0 or later (tried: 0.29.0, 0.30.0, 0.31.0, 0.32.0, 0.33.0)",
        ),
        ("--subject my_port --vllm 0.33.0", "subject = 'my_port', but should be vllm, or vllm+<module>"),
        ("--vllm-path /nowhere", "--vllm-path = '/nowhere', but should be a folder with vllm/__init__.py"),
        ("--llamacpp build/none.so", "--llamacpp = 'build/none.so', but should be a release or a library"),
    ],
)
def test_a_release_that_cannot_be_is_refused(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fuzz", *words.split()]) == MISCONFIGURED
    assert message in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("fuzz",), ["fuzz"]),
        (("fuzz", "BUDGET=5m", "SUBJECT=it's"), ["fuzz", "--budget", "5m", "--subject", "it's"]),
        (("nightly", "GPUS=all", "SHARD=2/8"), ["nightly", "--gpus", "all", "--shard", "2/8"]),
    ],
)
def test_make_gives_its_variables_to_the_command(words: tuple[str, ...], command: list[str]) -> None:
    line = ["make", "-n", f"PYTHON={sys.executable}", *words]
    done = subprocess.run(line, capture_output=True, text=True, check=True, cwd=ROOT)
    assert shlex.split(done.stdout) == [sys.executable, "-m", "statecheck", *command]


@pytest.mark.parametrize("command", ["replay", "upstream", "bisect"])
def test_a_case_that_cannot_be_read_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(tmp_path / "no.json")]) == MISCONFIGURED
    assert f"no.json', but should be a readable file [{command}]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "device"),
    [
        ("conform --profile engines", "cpu"),
        ("fuzz --only real-engine", "cpu"),
        ("nightly --only real-engine", "cpu"),
        ("fuzz --only real-engine --device cuda", "cuda"),
        ("fuzz --only no-such-property", "cuda"),
        ("conform --profile functions", "cuda"),
    ],
)
def test_beside_a_gpu_properties_for_a_cpu_alone_run_on_the_cpu(
    words: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Plan] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(triton_mode, "executes", lambda: False)

    def run(plan: Plan, *_: object, **__: object) -> int:
        plans.append(plan)
        return 0

    for module in (campaign, conform):
        monkeypatch.setattr(module, "run_campaign", run)
    main(words.split())
    assert [plan.device for plan in plans] == [device]
