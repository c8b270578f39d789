"""The ready files for schedulers ask for nothing that there is not; `tests/unit/cli/test_printed_commands.py` reads their commands."""

from __future__ import annotations

import re
import subprocess
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from statecheck.campaign.plan import shard_of
from tests.helpers.modules import ROOT

GITHUB = ROOT / ".github/workflows/nightly.yml"
BUILDKITE = ROOT / "deploy/buildkite.yml"
KUBERNETES = ROOT / "deploy/kubernetes.yaml"
SLURM = ROOT / "deploy/nightly.slurm"
needs_yaml = pytest.mark.skipif(find_spec("yaml") is None, reason="PyYAML is not installed")


@pytest.mark.parametrize(
    ("path", "variables", "shard"),
    [
        (BUILDKITE, {"BUILDKITE_PARALLEL_JOB": "0", "BUILDKITE_PARALLEL_JOB_COUNT": "4"}, (0, 4)),
        (KUBERNETES, {"JOB_COMPLETION_INDEX": "3"}, (3, 4)),
        (SLURM, {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "4"}, (3, 4)),
    ],
    ids=["buildkite", "kubernetes", "slurm"],
)
def test_each_job_asks_for_its_own_shard(
    path: Path, variables: dict[str, str], shard: tuple[int, int]
) -> None:
    script = path.read_text(encoding="utf-8").replace("$$", "$")
    (asked,) = re.findall(r'SHARD=("[^"]*")', script)
    done = subprocess.run(
        ["sh", "-c", f"echo {asked}"], env=variables, capture_output=True, text=True, check=True
    )
    assert shard_of({"SHARD": done.stdout}) == shard


def _parsed(path: Path) -> Any:
    # Not `import`: it has no types, and need not be there.
    return import_module("yaml").safe_load(path.read_text(encoding="utf-8"))


@needs_yaml
def test_a_workflow_gives_each_job_its_shard_and_reports_whatever_happens() -> None:
    jobs = _parsed(GITHUB)["jobs"]
    shard, merge = jobs["shard"], jobs["merge"]
    assert shard["env"]["SHARD"] == "${{ matrix.shard }}/${{ strategy.job-total }}"
    assert shard["strategy"]["matrix"]["shard"] == [1, 2, 3, 4]
    assert (merge["needs"], merge["if"]) == ("shard", "always()")
    steps = [one for job in jobs.values() for one in job["steps"]]
    assert [one["if"] for one in steps if "upload-artifact" in one.get("uses", "")] == ["always()"] * 2
    # What a person types is no part of a script.
    assert [one["run"] for one in steps if "${{" in one.get("run", "")] == []


@needs_yaml
def test_the_shards_of_an_indexed_job_are_as_many_as_it_has() -> None:
    spec = _parsed(KUBERNETES)["spec"]
    assert (spec["completionMode"], spec["completions"]) == ("Indexed", 4)
    # What the cluster demands where an index may fail without the others.
    assert (spec["template"]["spec"]["restartPolicy"], spec["backoffLimitPerIndex"]) == ("Never", 0)


def test_the_slurm_script_asks_for_an_array_before_its_first_command() -> None:
    lines = SLURM.read_text(encoding="utf-8").splitlines()
    asked = [line for line in lines if line.startswith("#SBATCH ")]
    assert "#SBATCH --array=0-3" in asked
    # Slurm reads none of them that stands behind a command.
    first = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    assert max(number for number, line in enumerate(lines) if line in asked) < first
