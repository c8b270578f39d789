"""A campaign on a Ray cluster: each shard is a task, for which Ray chooses the machine, and the driver merges the records."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from statecheck import rooms
from statecheck.campaign.merge import merge_records, write_merged
from statecheck.campaign.plan import Plan, shard_name
from statecheck.campaign.record import FILE, CampaignRecord
from statecheck.util import limits, temporary
from statecheck.util.command_lines import pip_line
from statecheck.util.text import said

_NOT_SENT = [".?*", "reports", "build", "**/__pycache__"]
_RETRIES = 3
RunShard = Callable[[Plan, Mapping[str, bytes]], str]


def run_shard(plan: Plan, corpus: Mapping[str, bytes]) -> str:
    """Run a shard on the machine where Ray calls this, as `--shard` does; its record as JSON, which has the cases that failed.

    Args:
        corpus: files to be replayed, as they were when the campaign began.
    """
    from statecheck.campaign.coordinator import run

    gpus = tuple(map(str, import_module("ray").get_gpu_ids()))
    with tempfile.TemporaryDirectory(prefix="statecheck-shard-") as folder:
        cases = Path(folder, "corpus")
        cases.mkdir()
        for name, content in corpus.items():
            (cases / name).write_bytes(content)
        return run(replace(plan, gpus=gpus, reports=f"{folder}/reports", corpus=str(cases))).to_json()


def run_on_ray(
    plan: Plan, address: str, shards: int, say: Callable[[str], None], run: RunShard = run_shard
) -> CampaignRecord:
    """Run the shards of a campaign on the cluster, to their end or to Ctrl-C; the record of the whole, which is written here.

    Each record is written to the folder of its shard when it comes, so that `merge` adds up what there is if this process is killed.

    Args:
        plan: of each shard, its budget included. On a GPU a shard has one, and Ray says which.
        address: "auto", "host:6379" or "ray://host:10001".
        shards: how many; 0 for as many as there are GPUs in the cluster, or machines where none is asked for.
        run: runs a shard where it is called.

    Raises:
        ValueError: Ray is not installed, no cluster at the address, or no shard came to an end.
    """
    # "auto" finds a cluster by a file there, and a command has temporary files elsewhere.
    os.environ.setdefault("RAY_TMPDIR", str(temporary.lasting_folder()))
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        rule = f"{pip_line('ray>=2.50')} (the extra `ray`)"
        raise ValueError(f"ray = not installed, but should be: {rule} [run_on_ray]") from error
    _connect(ray, address)
    try:
        if not shards:
            resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            gpus = sum(int(each.get("GPU", 0)) for each in resources)
            machines = sum(each.get("CPU", 0) >= plan.engines for each in resources)
            # One at least: machines may come later.
            shards = max(1, gpus if plan.device == "cuda" else machines)
        say(f"{shards} shards on the cluster")
        records, warnings, interrupted = _run_shards(ray, plan, shards, say, run)
    finally:
        ray.shutdown()
    if not records:
        rule = f"one at least that comes to an end: {'; '.join(warnings) or 'interrupted'}"
        raise ValueError(f"shards = 0 of {shards} ended, but should be {rule} [run_on_ray]")
    whole = merge_records(records)
    whole.interrupted |= interrupted
    whole.warnings += warnings
    return write_merged(whole, Path(plan.reports), Path(plan.corpus))


def _connect(ray: Any, address: str) -> None:
    try:
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if host and port.isdigit():
            socket.create_connection((host.strip("[]"), int(port)), timeout=limits.CLUSTER).close()
        # The machines get the tree, or the installed package, which has all of it inside.
        tree = {"working_dir": str(rooms.FOLDER), "excludes": _NOT_SENT}
        package = {"py_modules": [str(rooms.PACKAGE)]}
        ray.init(address, runtime_env=tree if rooms.is_checkout() else package, log_to_driver=False)
    except (OSError, ValueError, RuntimeError) as error:
        rule = f"the address of a cluster that can be reached: {error}"
        raise ValueError(f"ray = {address!r}, but should be {rule} [run_on_ray]") from error


def _run_shards(
    ray: Any, plan: Plan, shards: int, say: Callable[[str], None], run: RunShard
) -> tuple[list[CampaignRecord], list[str], bool]:
    """The records that came, a sentence for each shard without a record, and whether Ctrl-C was typed."""
    corpus = ray.put(
        {path.name: path.read_bytes() for path in sorted(Path(plan.corpus).glob("*.json")) if path.is_file()}
    )
    on_gpu = {"num_gpus": 1, "num_cpus": 0}
    uses = on_gpu if plan.device == "cuda" else {"num_cpus": plan.engines, "scheduling_strategy": "SPREAD"}
    # A shard whose machine is lost runs again elsewhere. Its seeds are the same, and so is what they find.
    start = ray.remote(run).options(max_retries=_RETRIES, **uses).remote
    plans = [replace(plan, shard=shard, shards=shards) for shard in range(shards)]
    running = {start(shard, corpus): shard for shard in plans}
    records, warnings, interrupted = list[CampaignRecord](), list[str](), False
    while running:
        try:
            ended, _ = ray.wait(list(running), timeout=limits.CLUSTER_END if interrupted else None)
            if not ended:
                break
            shard = running[ended[0]]
            name = f"shard {shard_name(shard.shard, shards)}"
            try:
                record = CampaignRecord.from_json(ray.get(ended[0]))
                records.append(record)
                record.save(shard.folder / FILE)
                say(f"{name}: {record.examples:,} examples, {len(record.buckets)} failures")
            except Exception as error:
                # Ray's own sentence has the traceback of the task and of everything around it.
                cause = getattr(error, "cause", None) or error
                warnings.append(f"{name}: {' '.join(f'{type(cause).__name__}: {cause}'.split())[:300]}")
                say(said(warnings[-1]))
            del running[ended[0]]
        except KeyboardInterrupt:
            interrupted = True
            for task in running:
                # In the task this is a Ctrl-C: the shard ends with its record, whose time is over.
                ray.cancel(task)
    return records, warnings, interrupted
