"""Which shard of a campaign this machine runs, and what the campaign is called, as schedulers of jobs say it in variables."""

from __future__ import annotations

import re
from collections.abc import Mapping

from statecheck.campaign.record import require_id

_CAMPAIGN = "CAMPAIGN"
_RUNS = {"GITHUB_RUN_ID": "github", "SLURM_ARRAY_JOB_ID": "slurm", "BUILDKITE_BUILD_NUMBER": "buildkite"}
_SHARD, _SHARDS = "SHARD", "SHARDS"
_SLURM = "SLURM_ARRAY_TASK_ID"
_KUBERNETES = "JOB_COMPLETION_INDEX"
_BUILDKITE, _BUILDKITE_COUNT = "BUILDKITE_PARALLEL_JOB", "BUILDKITE_PARALLEL_JOB_COUNT"


def shard_of(environment: Mapping[str, str], option: str = "") -> tuple[int, int]:
    """The shard that a job does, counted from 0, and the number of shards: (0, 1) is the whole campaign.

    The option comes first, then the variable SHARD in the same form, an array of Slurm, an indexed job of Kubernetes (with
    SHARDS for the number of its completions) and a parallel step of Buildkite. An empty variable is not set.

    Args:
        option: "2/8" for the second of eight shards, "" where it is not given.

    Raises:
        ValueError: not of that form, half of a pair is set, not a number, or out of range.
    """
    variables = {name: value for name, value in environment.items() if value.strip()}
    if option or _SHARD in variables:
        return _named("shard", option) if option else _named(_SHARD, variables[_SHARD])
    if _SHARDS in variables and _KUBERNETES not in variables:
        raise ValueError(
            f"{_SHARDS} = {variables[_SHARDS]!r}, but should be set beside {_KUBERNETES} [shard_of]"
        )
    if _SLURM in variables:
        return _slurm(variables)
    if _KUBERNETES in variables:
        return _pair(variables, _KUBERNETES, _SHARDS)
    if _BUILDKITE in variables or _BUILDKITE_COUNT in variables:
        return _pair(variables, _BUILDKITE, _BUILDKITE_COUNT)
    return 0, 1


def campaign_of(environment: Mapping[str, str]) -> str:
    """The name that all shards of a campaign find in their surroundings, "" where no scheduler says anything.

    CAMPAIGN comes first; then what a run of GitHub Actions, an array of Slurm or a build of Buildkite is called.

    Raises:
        ValueError: no name for a folder.
    """
    variables = {name: environment.get(name, "").strip() for name in (_CAMPAIGN, *_RUNS)}
    if variables[_CAMPAIGN]:
        require_id(variables[_CAMPAIGN], _CAMPAIGN)
    names = (f"{kind}-{variables[name]}" for name, kind in _RUNS.items() if variables[name])
    return variables[_CAMPAIGN] or next(names, "")


def _named(name: str, text: str) -> tuple[int, int]:
    form = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text.strip())
    if form is None or not 1 <= int(form[1]) <= int(form[2]):
        rule = "a shard and the number of shards, such as 2/8 for the second of eight"
        raise ValueError(f"{name} = {text!r}, but should be {rule} [shard_of]")
    return int(form[1]) - 1, int(form[2])


def _pair(variables: Mapping[str, str], which: str, count: str) -> tuple[int, int]:
    return _within(which, _number(variables, which, count), count, _number(variables, count, which))


def _slurm(variables: Mapping[str, str]) -> tuple[int, int]:
    """An array's tasks by their places, whatever its first number and its step: `--array=10-40:10` has four."""
    first, count, step = (f"SLURM_ARRAY_TASK_{name}" for name in ("MIN", "COUNT", "STEP"))
    task, shards = _number(variables, _SLURM, count), _number(variables, count, _SLURM)
    width = _number({step: "1", **variables}, step, _SLURM)
    past = task - _number(variables, first, _SLURM)
    if width < 1 or past % width:
        rule = f"{first} plus a multiple of {step} = {width}"
        raise ValueError(f"{_SLURM} = {task}, but should be {rule} [shard_of]")
    return _within(f"({_SLURM} - {first}) / {step}", past // width, count, shards)


def _number(variables: Mapping[str, str], name: str, partner: str) -> int:
    text = variables.get(name, "").strip()
    if not text:
        raise ValueError(f"{name} = '', but should be set beside {partner} [shard_of]")
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{name} = {text!r}, but should be a number [shard_of]")
    return int(text)


def _within(which: str, shard: int, count: str, shards: int) -> tuple[int, int]:
    if shards < 1:
        raise ValueError(f"{count} = {shards}, but should be >= 1 [shard_of]")
    if shard >= shards:
        raise ValueError(f"{which} = {shard}, but should be < {shards} [{count}]")
    if shard < 0:
        raise ValueError(f"{which} = {shard}, but should be >= 0 [shard_of]")
    return shard, shards
