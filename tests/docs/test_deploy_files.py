"""The ready files for schedulers are well-formed, and ask for nothing that there is not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from statecheck.campaign.plan import shard_of
from statecheck.cli import main as cli
from tests.breakages.broken import ROOT

GITHUB = ROOT / ".github/workflows/nightly.yml"
BUILDKITE = ROOT / "deploy/buildkite.yml"
KUBERNETES = ROOT / "deploy/kubernetes.yaml"
SLURM = ROOT / "deploy/nightly.slurm"
FILES = (GITHUB, BUILDKITE, KUBERNETES, SLURM)
PROMISED = {
    "nightly": ("--budget", "--gpus", "--engines", "--shard", "--ray", "--reports", "--corpus"),
    "merge": ("--reports", "--corpus"),
}
needs_yaml = pytest.mark.skipif(find_spec("yaml") is None, reason="PyYAML is not installed")
needs_schemas = pytest.mark.skipif(
    find_spec("check_jsonschema") is None, reason="check-jsonschema, which has the schemas, is not installed"
)


def _parsed(path: Path) -> Any:
    # Not `import`: it has no types, and need not be there.
    return import_module("yaml").safe_load(path.read_text(encoding="utf-8"))


def _commands(path: Path) -> str:
    """The text, with a command that is a list of words as a line."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"\[(python3, [^]]*)\]", lambda found: found[1].replace(",", ""), text)


def _run(path: Path) -> list[tuple[str, set[str]]]:
    """The targets of make that a file runs, each with the variables that it sets."""
    found = re.finditer(r"\bmake ([a-z-]+)((?: [A-Z_]+=(?:\"[^\"]*\"|[^\s;&|]+))*)", _commands(path))
    return [(one[1], set(re.findall(r"(?:^| )([A-Z_]+)=", one[2]))) for one in found]


def _shard_in(script: str, **variables: str) -> tuple[int, int]:
    """The shard that a job's script asks for, as its shell computes it."""
    (asked,) = re.findall(r'SHARD=("[^"]*")', script)
    done = subprocess.run(
        ["sh", "-c", f"echo {asked}"], env=variables, capture_output=True, text=True, check=True
    )
    return shard_of({"SHARD": done.stdout})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_target_and_every_variable_of_make_exists(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z_]+) \?=", makefile, re.MULTILINE))
    run = _run(path)
    by_hand = set(re.findall(r"\bpython3 -m statecheck ([a-z-]+)", _commands(path)))
    assert ({target for target, _ in run} | by_hand) - {"prove"} == {"nightly", "merge"}
    assert {target for target, _ in run} <= targets
    assert set().union(*(given for _, given in run)) <= variables


@pytest.mark.parametrize("command", PROMISED)
def test_the_options_that_files_and_people_rely_on_exist(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    printed = capsys.readouterr().out
    assert [option for option in PROMISED[command] if option not in printed] == []


@needs_schemas
@pytest.mark.parametrize(
    ("schema", "path"), [("vendor.github-workflows", GITHUB), ("vendor.buildkite", BUILDKITE)]
)
def test_a_pipeline_is_what_its_service_takes(schema: str, path: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode == 0, found.stdout


@needs_yaml
def test_a_workflow_gives_each_job_its_shard_and_reports_whatever_happens() -> None:
    jobs = _parsed(GITHUB)["jobs"]
    shard, merge = jobs["shard"], jobs["merge"]
    numbers = shard["strategy"]["matrix"]["shard"]
    assert shard["env"]["SHARD"] == "${{ matrix.shard }}/${{ strategy.job-total }}"
    assert numbers == [1, 2, 3, 4]
    assert (merge["needs"], merge["if"]) == ("shard", "always()")
    uploads = [
        one for job in jobs.values() for one in job["steps"] if "upload-artifact" in one.get("uses", "")
    ]
    assert [one["if"] for one in uploads] == ["always()", "always()"]
    assert shard["env"]["CAMPAIGN"] == "github-${{ github.run_id }}"
    assert "campaigns/github-$GITHUB_RUN_ID/" in GITHUB.read_text(encoding="utf-8")


@needs_yaml
def test_nothing_that_a_person_types_is_part_of_a_workflows_script() -> None:
    steps = [one for job in _parsed(GITHUB)["jobs"].values() for one in job["steps"]]
    assert [one["run"] for one in steps if "${{" in one.get("run", "")] == []


@needs_yaml
def test_a_pipeline_has_parallel_jobs_and_a_report_after_them() -> None:
    shards, report = _parsed(BUILDKITE)["steps"]
    script = shards["command"].replace("$$", "$")
    assert _shard_in(script, BUILDKITE_PARALLEL_JOB="0", BUILDKITE_PARALLEL_JOB_COUNT="4") == (0, 4)
    assert report["depends_on"] == [{"step": shards["key"], "allow_failure": True}]
    assert 'CAMPAIGN="buildkite-$$BUILDKITE_BUILD_NUMBER"' in shards["command"]
    assert "campaigns/buildkite-$$BUILDKITE_BUILD_NUMBER/" in report["command"]


@needs_yaml
def test_an_indexed_job_knows_how_many_it_is_of() -> None:
    job = _parsed(KUBERNETES)
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    spec, template = job["spec"], job["spec"]["template"]["spec"]
    (container,) = template["containers"]
    script, last = container["command"][2], spec["completions"] - 1
    assert spec["completionMode"] == "Indexed"
    assert _shard_in(script, JOB_COMPLETION_INDEX=str(last)) == (last, spec["completions"])
    assert [one["name"] for one in container["env"]] == ["CAMPAIGN"]
    # What the cluster demands where an index may fail without the others.
    assert (template["restartPolicy"], spec["backoffLimitPerIndex"]) == ("Never", 0)
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in template["volumes"]}


def test_the_slurm_script_is_a_shell_script() -> None:
    found = subprocess.run(["bash", "-n", str(SLURM)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
    text = SLURM.read_text(encoding="utf-8")
    assert _shard_in(text, SLURM_ARRAY_TASK_ID="3", SLURM_ARRAY_TASK_COUNT="4") == (3, 4)


def test_the_slurm_script_asks_for_an_array_before_its_first_command() -> None:
    lines = SLURM.read_text(encoding="utf-8").splitlines()
    asked = [line for line in lines if line.startswith("#SBATCH ")]
    assert all(re.fullmatch(r"#SBATCH --[a-z-]+=[\w%:.-]+", line) for line in asked)
    assert any(re.fullmatch(r"#SBATCH --array=0-\d+", line) for line in asked)
    # Slurm reads none of them that stands behind a command.
    first = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    assert max(number for number, line in enumerate(lines) if line in asked) < first


@needs_yaml
def test_a_budget_ends_before_the_scheduler_does() -> None:
    github, buildkite = _parsed(GITHUB)["jobs"]["shard"], _parsed(BUILDKITE)["steps"][0]
    minutes = {"5h": 300, "8h": 480}
    assert minutes[re.findall(r"'(\d+h)'", json.dumps(github["env"]))[0]] < github["timeout-minutes"]
    assert minutes[re.findall(r"BUDGET=(\d+h)", buildkite["command"])[0]] < buildkite["timeout_in_minutes"]
